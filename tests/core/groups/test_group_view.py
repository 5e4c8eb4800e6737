"""A view of a group answers as the group itself does, and believes nothing that is old."""

from random import Random

import msgspec
import pytest

from goqueue.base.ids import GroupId, MemberId, PartitionId, TopicName, TopicPartition
from goqueue.core.groups.events import Event
from goqueue.core.groups.group import DISCONNECTED, EXPIRED, LEFT, Group
from goqueue.core.groups.group_view import GroupSight, GroupView, SightOf
from goqueue.core.groups.member import JoinRequest

COUNTS = {TopicName("t"): 4}
PLACES = [TopicPartition(TopicName("t"), PartitionId(number)) for number in range(4)]


class Host:
    """A group and what its coordinator shows of it."""

    def __init__(self, *, created_ms: int = 1, epoch: int = 1, life: str = "x") -> None:
        self.group = Group(GroupId("g"))
        self.of = SightOf(epoch, life, 0)
        self.gone: dict[MemberId, str] = {}
        self._now_ms = created_ms

    def apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.group.apply(event)
        self.of = SightOf(self.of.epoch, self.of.life, self.of.version + 1)

    def join(self, name: str, **options: object) -> MemberId:
        request = JoinRequest(client_id=name, topics=("t",), options=options)
        decision = self.group.join(
            request, new_id=MemberId(name), partitions=COUNTS, now_ms=self._now_ms
        )
        self.apply(decision.events)
        return decision.reply

    def leave(self, member: MemberId) -> None:
        self.apply(self.group.leave(member, partitions=COUNTS).events)
        self.gone[member] = LEFT

    def sight(self) -> GroupSight:
        """Return what travels, as it travels."""
        shown = GroupSight(self.of, self.group.snapshot(), dict(self.gone))
        return msgspec.msgpack.decode(msgspec.msgpack.encode(shown), type=GroupSight)


def test_who_is_gone_and_why() -> None:
    """A member that left is told from one of which nothing is known."""
    host, view = Host(), GroupView(GroupId("g"))
    one, two, three = (host.join(name) for name in ("one", "two", "three"))
    assert not view.is_known
    view.take(host.sight())
    assert view.is_there
    host.leave(one)
    host.apply(host.group.expire([two], partitions=COUNTS).events)
    change = view.take(host.sight())

    assert change.gone == {one: LEFT, two: EXPIRED}
    assert not change.is_deleted
    assert list(view.roster.members) == [three]


def test_what_members_own_no_more() -> None:
    """The partitions that another member got."""
    host, view = Host(), GroupView(GroupId("g"))
    one = host.join("one")
    view.take(host.sight())
    host.join("two")
    change = view.take(host.sight())

    assert change.gone == {}
    assert change.lost[one] == set(PLACES) - host.group.owned_by(one)


def test_a_group_that_is_gone_or_another_one() -> None:
    """Without events there is none; made at another time it is another group."""
    view = GroupView(GroupId("g"))
    first = Host(created_ms=1)
    one = first.join("one")
    view.take(first.sight())
    other = Host(created_ms=2, life="y")
    other.join("two")
    change = view.take(other.sight())
    assert change.is_deleted
    assert set(change.gone) == {one}
    assert view.identity == "2"
    change = view.take(GroupSight(SightOf(1), []))

    assert change.is_deleted
    assert not view.is_there


@pytest.mark.parametrize(
    ("of", "is_newer"),
    [
        (SightOf(2, "x", 5), False),
        (SightOf(2, "x", 4), False),
        (SightOf(2, "x", 6), True),
        (SightOf(2, "y", 1), True),
        (SightOf(1, "y", 9), False),
        (SightOf(3, "y", 1), True),
        (SightOf(2), True),
    ],
)
def test_what_is_believed(of: SightOf, *, is_newer: bool) -> None:
    """A later leader's word, or a later one of the same; never that of a former leader."""
    view = GroupView(GroupId("g"))
    host = Host(epoch=2)
    host.join("one")
    view.take(GroupSight(SightOf(2, "x", 5), host.group.snapshot()))

    assert view.is_newer(of) is is_newer


@pytest.mark.parametrize("seed", range(30))
def test_a_view_answers_as_the_group(seed: int) -> None:
    """Members, owners and generations are the same, in every mode and protocol."""
    random = Random(seed)
    host, view = Host(), GroupView(GroupId("g"))
    options = random.choice([{}, {"mode": "shared"}, {"ordering": "key"}])
    protocol = random.choice(["eager", "cooperative"])
    for step in range(20):
        members = list(host.group.members)
        if not members or random.random() < 0.5:
            request = JoinRequest(
                client_id=f"m{step}", topics=("t",), protocol=protocol, options=options
            )
            new_id = MemberId(f"m{step}")
            joined = host.group.join(request, new_id=new_id, partitions=COUNTS, now_ms=1)
            host.apply(joined.events)
        elif random.random() < 0.5:
            gone = random.choice(members)
            host.apply(host.group.disconnect([gone], partitions=COUNTS).events)
            host.gone[gone] = DISCONNECTED
        else:
            late = list(host.group.pending)
            host.apply(host.group.force(late).events)
        if random.random() < 0.7:
            view.take(host.sight())
            assert view.roster.generation == host.group.generation
            assert view.roster.options == host.group.options
            assert list(view.roster.members) == list(host.group.members)
            for member in host.group.members:
                assert view.roster.open_to(member) == host.group.open_to(member)
                owned = [host.group.owns(member, one) for one in PLACES]
                assert [view.roster.owns(member, one) for one in PLACES] == owned
