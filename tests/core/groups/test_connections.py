"""A member is lost when the last connection it was heard on has ended, and not before."""

from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.ids import GroupId, MemberId
from goqueue.base.limits import MEMBER_CONNECTIONS_MAX
from goqueue.core.groups.connections import Connections, MemberOf

GROUP = GroupId("billing")
MEMBERS = [MemberId(name) for name in "abc"]


def test_a_member_with_two_connections_is_lost_with_the_second() -> None:
    """Polls come on one connection and heartbeats on another: both stand for the member."""
    connections = Connections()
    polls, heartbeats = connections.open(), connections.open()
    connections.attach(polls, GROUP, MEMBERS[0])
    connections.attach(heartbeats, GROUP, MEMBERS[0])
    connections.attach(heartbeats, GROUP, MEMBERS[1])

    assert connections.close(polls) == []
    assert connections.close(heartbeats) == [(GROUP, MEMBERS[0]), (GROUP, MEMBERS[1])]
    assert connections.close(heartbeats) == []


def test_a_connection_that_has_ended_stands_for_nobody() -> None:
    """A request that is finished late does not bring its member back."""
    connections = Connections()
    number = connections.open()
    connections.close(number)

    assert not connections.attach(number, GROUP, MEMBERS[0])
    assert not connections.attach(0, GROUP, MEMBERS[0])


def test_of_many_connections_the_latest_count() -> None:
    """However many connections somebody names a member on, few are remembered."""
    connections = Connections()
    numbers = [connections.open() for _ in range(MEMBER_CONNECTIONS_MAX + 2)]
    for number in numbers:
        connections.attach(number, GROUP, MEMBERS[0])
    ended = [connections.close(number) for number in reversed(numbers)]

    assert ended.index([MemberOf(GROUP, MEMBERS[0])]) == MEMBER_CONNECTIONS_MAX - 1
    assert ended.count([]) == len(numbers) - 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["open", "attach", "close", "forget"]),
        st.integers(1, 6),
        st.sampled_from(MEMBERS),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_happens_a_member_is_alone_when_none_is_left(
    plan: list[tuple[str, int, MemberId]],
) -> None:
    """The model: a set of pairs. Fewer connections than are remembered, so none is forgotten."""
    connections = Connections()
    opened: set[int] = set()
    pairs: set[tuple[int, MemberId]] = set()
    for deed, number, member in plan:
        if deed == "open" and len(opened) < MEMBER_CONNECTIONS_MAX:
            opened.add(connections.open())
        elif deed == "attach":
            assert connections.attach(number, GROUP, member) is (number in opened)
            if number in opened:
                pairs.add((number, member))
        elif deed == "close":
            before = {one for at, one in pairs if at == number}
            pairs = {(at, one) for at, one in pairs if at != number}
            alone = before - {one for _, one in pairs}
            assert {one for _, one in connections.close(number)} == alone
            opened.discard(number)
        elif deed == "forget":
            connections.forget(GROUP, member)
            pairs = {(at, one) for at, one in pairs if one != member}
