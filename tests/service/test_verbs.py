"""Everything a service can be asked is a verb with a deed, and takes a grant for it."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed, Permission, ResourceKind
from goqueue.base.grant import Grant
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.service import NOUNS, Service
from goqueue.service.verb import deeds_of
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.http.api import operations
from goqueue.transport.native.dispatch import verbs_of_operations
from goqueue.wire import calls
from goqueue.wire.packet import Operation


def verbs_of(noun: type) -> dict[str, Callable[..., Any]]:
    """Return the verbs of a service class by their names."""
    return {name: method for name, method in vars(noun).items() if deeds_of(method)}


VERBS = [
    pytest.param(method, id=f"{noun.__name__}.{name}")
    for noun in NOUNS
    for name, method in verbs_of(noun).items()
]
NO_VERB = {Deed.READ_DOCUMENTATION}
"""Documentation is the transport's own: nothing of a broker is asked."""


def service() -> Service:
    return Service(Broker(BrokerConfig(), MemoryDisk()))


def test_a_service_is_its_nouns() -> None:
    """Whatever else a service has opens nothing: settings, the gate, turns, counters."""
    there = service()
    nouns = {type(one) for name, one in vars(there).items() if not name.startswith("_")}

    assert set(NOUNS) <= nouns
    assert {kind.__name__ for kind in nouns - set(NOUNS)} == {"BrokerConfig", "Gate", "Turns"}
    assert {name for name, _ in inspect.getmembers(Service, inspect.isfunction)} == {
        "__init__", "__repr__", "open", "connect", "disconnect", "now_ms", "count_connections",
        "stop_leasing", "catch_up",
    }  # fmt: skip


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_whatever_a_noun_offers_is_a_verb(noun: type) -> None:
    """A public method that is no verb would be a road past the gate."""
    offered = {
        name for name, one in vars(noun).items() if callable(one) and not name.startswith("_")
    }

    assert offered
    assert offered == set(verbs_of(noun))


@pytest.mark.parametrize("method", VERBS)
def test_a_verb_takes_a_grant_for_its_deed(method: Callable[..., Any]) -> None:
    """One for any other deed is not taken; verbs on busy paths leave that to the runtime."""
    deeds = deeds_of(method)
    other = next(deed for deed in Deed if deed not in deeds)
    grant = Gate().admit(EMBEDDED, other)

    for deed in deeds:
        assert (deed.permission is Permission.NOTHING) == (deed.kind is ResourceKind.NOTHING)
    if hasattr(method, "__wrapped__"):
        with pytest.raises(AssertionError, match=f"a grant for {deeds[0]}"):
            method(None, grant)
    else:
        first = list(inspect.signature(method).parameters.values())[1]
        assert first.annotation is Grant
        assert deeds[0] in {Deed.PUBLISH, Deed.FETCH, Deed.POLL, Deed.SETTLE, Deed.NEXT}


def test_every_native_operation_is_one_verb() -> None:
    """Its header is the verb's request, and no two operations share a verb."""
    verbs = verbs_of_operations(service())

    assert set(verbs) == set(Operation)
    assert len({getattr(verb, "__func__", verb) for verb in verbs.values()}) == len(Operation)
    for verb in verbs.values():
        hints = get_type_hints(verb)
        assert issubclass(hints.get("call") or hints["_"], calls.Call)
        assert deeds_of(verb)


def test_every_deed_has_a_verb_and_every_route_a_deed_of_one() -> None:
    """What can be asked over HTTP is served by a verb, and nothing is listed that none serves."""
    served = {deed for noun in NOUNS for verb in verbs_of(noun).values() for deed in deeds_of(verb)}

    assert served == set(Deed) - NO_VERB
    assert {one.deed for one in operations(service())} <= served | NO_VERB
