"""Where things are, as a broker by itself and a node of a cluster tell it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.base.caller import EMBEDDED
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, LeaderNotAvailableError
from goqueue.base.grant import Grant
from goqueue.base.ids import TopicName
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.cluster import Cluster
from goqueue.service.gate import Gate
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.wire import calls
from goqueue.wire import metadata_calls as said
from tests.service.views import SetTopology, SetView


def with_broker(
    topology: SetTopology | None, story: Callable[[Broker], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        broker = Broker(BrokerConfig(node_id="a", sync_threads=0), MemoryDisk(), topology=topology)
        await broker.start()
        try:
            broker.create_topic("orders", partitions=3)
            await story(broker)
        finally:
            await broker.stop()

    asyncio.run(run())


def grant_for(deed: Deed) -> Grant:
    return Gate().open(EMBEDDED).admit(deed, ())


async def metadata(broker: Broker, call: said.Metadata) -> said.ClusterMetadata:
    return await Cluster(broker).metadata(grant_for(Deed.FIND_LEADERS), call)


async def coordinator(broker: Broker, call: said.FindCoordinator) -> said.Coordinator:
    return await Cluster(broker).find_coordinator(grant_for(Deed.FIND_COORDINATOR), call)


def a_view() -> SetView:
    view = SetView({"a": "10.0.0.1:7070", "b": "10.0.0.2:7070"})
    view.lead("orders", ["b", None, "a"])
    view.lead("__consumer_offsets", ["b"] * 50)
    view.lead("__transactions", ["a", "b"])
    return view


def test_a_broker_by_itself_is_the_only_node() -> None:
    """It leads every partition in epoch 0 and is in no cluster, at the address it listens at."""

    async def story(broker: Broker) -> None:
        service = Service(broker)
        service.cluster.listeners = lambda: ("127.0.0.1:7171", "127.0.0.1:8181")
        reply = await service.cluster.metadata(grant_for(Deed.FIND_LEADERS), said.Metadata())
        found = await coordinator(broker, said.FindCoordinator("group", "workers"))

        assert (reply.cluster_id, reply.controller, reply.is_known) == ("", "a", False)
        assert reply.nodes == [said.NodeEntry("a", "127.0.0.1:7171", "127.0.0.1:8181")]
        assert reply.topics == [said.TopicLeaders("orders", [0, 0, 0], [0, 0, 0])]
        assert (found.node, found.epoch, found.topic) == ("a", 0, "__consumer_offsets")

    with_broker(None, story)


@pytest.mark.parametrize(
    "kind", ["group", "transaction", "producer", "schema", "schedule", "redrive"]
)
def test_a_broker_by_itself_is_every_coordinator(kind: Any) -> None:
    """Whatever is asked for, also before its internal topic is made."""

    async def story(broker: Broker) -> None:
        assert (await coordinator(broker, said.FindCoordinator(kind, "7"))).node == "a"

    with_broker(None, story)


def test_a_node_tells_what_its_view_says() -> None:
    """Leaders are places among the nodes; one that is not there is no leader."""

    async def story(broker: Broker) -> None:
        reply = await metadata(broker, said.Metadata())
        some = await metadata(broker, said.Metadata(["none", "orders"]))

        assert [one.id for one in reply.nodes] == ["a", "b"]
        assert reply.topics == [said.TopicLeaders("orders", [1, -1, 0], [1, 1, 1])]
        assert some.topics == reply.topics

    with_broker(SetTopology(a_view()), story)


def test_a_version_says_the_same_before_its_topics_are_open() -> None:
    """A client that asks while a node opens a new topic would not hear of it any more."""
    view = a_view()

    async def story(broker: Broker) -> None:
        view.lead("new", ["a"])
        early = await metadata(broker, said.Metadata())
        broker.create_topic("new", partitions=1)
        late = await metadata(broker, said.Metadata(None, early.version))

        assert early.topics[-1] == said.TopicLeaders("new", [0], [1])
        assert late.is_known

    with_broker(SetTopology(view), story)


def test_a_known_version_is_not_told_again() -> None:
    """A client that refreshes for nothing costs next to nothing."""
    view = a_view()

    async def story(broker: Broker) -> None:
        known = await metadata(broker, said.Metadata(None, view.version))
        view.lead("orders", ["b", "b", "b"])
        fresh = await metadata(broker, said.Metadata(None, known.version))

        assert (known.is_known, known.topics, known.nodes) == (True, [], [])
        assert (fresh.is_known, fresh.topics[0].leaders) == (False, [1, 1, 1])

    with_broker(SetTopology(view), story)


def test_coordinators_are_leaders_of_internal_topics() -> None:
    """Ids of one family have one coordinator; a place without a leader is named."""
    view = a_view()

    async def story(broker: Broker) -> None:
        group = await coordinator(broker, said.FindCoordinator("group", "workers"))
        family = [
            await coordinator(broker, said.FindCoordinator("transaction", f"job{end}"))
            for end in ("", ".task-1", ".task-2")
        ]
        owners = [
            await coordinator(broker, said.FindCoordinator("producer", number))
            for number in ("1", "1001")
        ]
        view.lead("__consumer_offsets", [None] * 50)

        assert (group.node, group.native) == ("b", "10.0.0.2:7070")
        assert len(set(family)) == 1
        assert [one.node for one in owners] == ["a", "b"]
        with pytest.raises(LeaderNotAvailableError, match=r"__consumer_offsets/\d+ has no leader"):
            await coordinator(broker, said.FindCoordinator("group", "workers"))
        with pytest.raises(InvalidRequestError, match="not the number of a producer"):
            await coordinator(broker, said.FindCoordinator("producer", "x"))

    with_broker(SetTopology(view), story)


def test_only_a_node_says_that_it_is_in_a_cluster() -> None:
    """Clients of a broker by itself never ask where things are."""

    async def features(broker: Broker) -> list[str]:
        hello = calls.Hello(calls.PROTOCOL_VERSION, "test")
        return (await Service(broker).status.hello(grant_for(Deed.GREET), hello)).features

    async def alone(broker: Broker) -> None:
        assert said.CLUSTER not in await features(broker)

    async def in_cluster(broker: Broker) -> None:
        assert said.CLUSTER in await features(broker)
        assert broker.topology is not None
        assert broker.topology.view.leaders_of(TopicName("none")) == []

    with_broker(None, alone)
    with_broker(SetTopology(a_view()), in_cluster)
