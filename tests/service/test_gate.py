"""The gate admits what its policy allows and refuses everything else."""

import ast
import asyncio
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest

import goqueue
from goqueue.base.caller import EMBEDDED, Caller, Transport, caller_at
from goqueue.base.deeds import Deed, Permission, ResourceKind
from goqueue.base.errors import ForbiddenError
from goqueue.base.grant import Grant
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.fetch import fetch
from goqueue.runtime.log.page import read_page
from goqueue.runtime.log.plain import publish_plain
from goqueue.runtime.log.small_requests import SmallRequests
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.polling import Polling, PollLimits
from goqueue.runtime.tx.transactions import Transactions
from goqueue.service import gate as gate_module
from goqueue.service.gate import GRANTS_MAX, Gate, Session
from goqueue.testing.disk import MemoryDisk

LOCAL = Caller(transport=Transport.NATIVE, peer="127.0.0.1")


class AllowList:
    """Allows what it lists, and counts how often it is asked."""

    def __init__(self, *allowed: tuple[Deed, tuple[str, ...]]) -> None:
        self.allowed = set(allowed)
        self.asked = 0

    def allows(self, caller: Caller, deed: Deed, names: tuple[str, ...]) -> bool:
        del caller
        self.asked += 1
        return (deed, names) in self.allowed


def test_a_deed_needs_a_permission_on_a_kind_of_resource() -> None:
    """A deed that is about nothing needs nothing, and the other way round."""
    for deed in Deed:
        needs_nothing = deed.permission is Permission.NOTHING
        assert needs_nothing == (deed.kind is ResourceKind.NOTHING), deed
        assert deed.value == deed.name.lower()

    assert Deed.PUBLISH.need == "write topic"
    assert Deed.PING.need == "nothing"


def test_what_is_not_listed_is_refused() -> None:
    """Only the listed deed on the listed name is admitted; the error says what is missing."""
    gate = Gate(AllowList((Deed.PUBLISH, ("orders",))))

    grant = gate.admit(LOCAL, Deed.PUBLISH, ("orders",))
    assert (grant.caller, grant.deed, grant.names) == (LOCAL, Deed.PUBLISH, ("orders",))
    for deed in set(Deed) - {Deed.PUBLISH}:
        with pytest.raises(ForbiddenError):
            gate.admit(LOCAL, deed, ("orders",))
    with pytest.raises(ForbiddenError, match="publish is not permitted: it needs write topic 'a'"):
        gate.admit(LOCAL, Deed.PUBLISH, ("a",))
    with pytest.raises(ForbiddenError, match=r"needs write topic$"):
        gate.admit(LOCAL, Deed.PUBLISH)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_this_machine_may_do_everything(peer: str) -> None:
    """Without another policy, loopback is trusted."""
    for transport in (Transport.NATIVE, Transport.HTTP):
        for deed in Deed:
            assert Gate().admit(caller_at(transport, (peer, 4000)), deed).deed is deed


@pytest.mark.parametrize(
    "address",
    [("10.0.0.1", 1), ("::ffff:10.0.0.1", 1), ("fe80::1%eth0", 1), ("192.168.0.1", 1), ("", 1),
     ("localhost", 1), (), None, ""],
)  # fmt: skip
def test_nobody_else_may_do_anything(address: object) -> None:
    """Other machines, and addresses nobody knows, are refused."""
    for deed in Deed:
        with pytest.raises(ForbiddenError):
            Gate().admit(caller_at(Transport.HTTP, address), deed)


def test_a_program_that_opened_the_directory_may_do_everything() -> None:
    """The embedded client has no address, and needs none."""
    for deed in Deed:
        assert Gate().admit(EMBEDDED, deed).caller is EMBEDDED


def test_a_session_asks_the_policy_once() -> None:
    """The same grant serves all requests for one deed and name, and only those."""
    policy = AllowList((Deed.FETCH, ("a",)), (Deed.FETCH, ("b",)))
    session = Gate(policy).open(LOCAL)

    first = session.admit(Deed.FETCH, ("a",))
    assert session.admit(Deed.FETCH, ("a",)) is first
    assert policy.asked == 1
    assert session.admit(Deed.FETCH, ("b",)).names == ("b",)
    for deed, names in ((Deed.PUBLISH, ("a",)), (Deed.FETCH, ("c",)), (Deed.FETCH, ())):
        with pytest.raises(ForbiddenError):
            session.admit(deed, names)


def test_a_refusal_is_not_remembered() -> None:
    """What is allowed later is admitted later."""
    policy = AllowList()
    session = Gate(policy).open(LOCAL)
    with pytest.raises(ForbiddenError):
        session.admit(Deed.POLL, ("g",))

    policy.allowed.add((Deed.POLL, ("g",)))

    session.admit(Deed.POLL, ("g",))


def test_a_change_of_policy_ends_the_grants_of_open_sessions() -> None:
    """A grant from before the change is asked for again."""
    gate = Gate()
    session = gate.open(LOCAL)
    session.admit(Deed.PUBLISH, ("orders",))

    gate.use(AllowList())

    with pytest.raises(ForbiddenError):
        session.admit(Deed.PUBLISH, ("orders",))


def test_a_session_remembers_so_many_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come from callers, so what is remembered of them is bounded."""
    assert len(Deed) <= GRANTS_MAX
    monkeypatch.setattr(gate_module, "GRANTS_MAX", 3)
    session: Session = Gate().open(LOCAL)
    for number in range(10):
        session.admit(Deed.FETCH, (f"t{number}",))
    session.admit(Deed.FETCH, ("t" * 1_000,))

    assert repr(session) == "<Session of anonymous: 1 grants>"


def test_only_the_gate_makes_grants() -> None:
    """No other file calls the constructor, so a grant is proof that the gate was asked.

    Beside it there are two, for what the broker itself writes and reads.
    """
    root = Path(goqueue.__file__).parent
    makers = [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr) == "Grant"
    ]

    assert makers == ["base/grant.py", "base/grant.py", "service/gate.py"]


@pytest.mark.parametrize(
    "entry",
    [
        Transactions.publish,
        Transactions.publish_last,
        fetch,
        Polling.poll,
        Polling.poll_ready,
        Polling.begin,
        Topic.append_all,
        Topic.publish,
        Topic.publish_all,
        SmallRequests.begin,
        SmallRequests.begin_parts,
        SmallRequests.publish_at_once,
        SmallRequests.publish_parts_at_once,
        Topic.publish_drafts,
        publish_plain,
        read_page,
        Consumption.settle,
        Consumption.begin_settle,
        Consumption.begin_next,
    ],
)
def test_the_runtime_asks_for_a_grant(entry: Callable[..., object]) -> None:
    """What transports call takes a grant first and has no default for it."""
    first = next(one for one in signature(entry).parameters.values() if one.name != "self")

    assert first.annotation is Grant
    assert first.default is first.empty


def test_a_grant_for_something_else_is_no_grant() -> None:
    """Who may describe a group may not poll for it."""
    consume = Broker(BrokerConfig(), MemoryDisk()).consume
    grant = Gate().admit(LOCAL, Deed.DESCRIBE_GROUP, ("g",))

    with pytest.raises(AssertionError, match="a grant to poll"):
        asyncio.run(consume.poll(grant, "g", "m", None, PollLimits(1, 1, 0)))
    with pytest.raises(AssertionError, match="a grant to settle"):
        consume.begin_settle(grant, "g", "m", [])
    with pytest.raises(AssertionError, match="a grant to settle and poll"):
        asyncio.run(consume.begin_next(grant, "g", "m", [], PollLimits(1, 1, 0)))
