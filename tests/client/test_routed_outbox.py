"""Batches for several leaders that move and stall: each partition has them once and in order."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.errors import ConnectionLostError, NotLeaderError
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.outbox import Batch, Pause
from goqueue.client.protocol.routed_outbox import RoutedOutbox
from goqueue.wire import calls
from goqueue.wire.metadata_calls import ClusterMetadata, NodeEntry, TopicLeaders
from tests.client.test_outbox import (
    GROUPS,
    PARTITIONS,
    TOPIC,
    NaiveBroker,
    One,
    Plain,
    Sent,
    answer,
    group,
)

NODES = ("a:1", "b:1", "c:1")
FOREVER = 10**9


class Moving:
    """Performs the steps of a routed outbox while leaders move and requests wait for nodes."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.now = 0.0
        self.broker = NaiveBroker()
        self.leaders = [0] * PARTITIONS
        self.view = ClusterView(NODES)
        self._version = 0
        self._stamps: list[Plain] = []
        self.outbox: RoutedOutbox[One] = RoutedOutbox(self.view, self._lane, in_flight_max=2)
        self.under_way: dict[str, list[list[Batch[One]]]] = {node: [] for node in NODES}
        self.tell()

    def _lane(self) -> Plain:
        lane = Plain(acks="all", in_flight_max=3, on_settled=lambda _: None)
        lane.stamps = []
        return lane

    def tell(self) -> None:
        """Let the client know who leads."""
        self._version += 1
        nodes = [NodeEntry(id=one[0], native=one, http="") for one in NODES]
        leaders = TopicLeaders(TOPIC, list(self.leaders), [self._version] * PARTITIONS)
        reply = ClusterMetadata(self._version, "cluster", "a", nodes, [leaders])
        self.view.take(reply, self.now, of=NODES[0])

    def perform(self) -> None:
        """Do what the outbox asks for, until it waits for something."""
        while (step := self.outbox.step(self.now)) is not None:
            if isinstance(step, Pause):
                return
            if isinstance(step, list):
                # What travels is stamped when it leaves.
                self.outbox.content(step)
                self.under_way[self.outbox.node_of(step)].append(step)
            else:
                given_ids = [self.broker.init(calls.InitProducer(0, 0)) for _ in range(step.count)]
                first, *others = given_ids
                assert isinstance(first, calls.ProducerIdentity)
                numbers = [one.producer_id for one in others if not isinstance(one, calls.Failure)]
                identity = calls.ProducerIdentity(first.producer_id, 0, numbers)
                self.outbox.introduced(answer(identity), self.now)

    def happen(self) -> None:
        """Let a leader move, a client learn of it, or a node answer its oldest request."""
        fate = self.dice.random()
        if fate < 0.1:
            self.leaders[self.dice.randrange(PARTITIONS)] = self.dice.randrange(len(NODES))
        elif fate < 0.25:
            self.tell()
        else:
            self._answer(self.dice.choice(NODES), is_lost=fate < 0.3)

    def _answer(self, node: str, *, is_lost: bool) -> None:
        if not self.under_way[node]:
            return
        step = self.under_way[node].pop(0)
        sent = [self._as_sent(one) for one in step]
        if any(self.leaders[one[0]] != NODES.index(node) for one in sent):
            self.outbox.failed(step, NotLeaderError("elsewhere"), self.now)
            return
        produced = self.broker.publish(sent)
        if is_lost:
            self.outbox.failed(step, ConnectionLostError("lost"), self.now)
        else:
            self.outbox.answered(step, answer(produced), self.now)

    def _as_sent(self, batch: Batch[One]) -> Sent:
        lane = self.outbox._lanes[TOPIC, batch.part.partition]  # noqa: SLF001 - as it travels
        stamp = lane._stamp(batch)  # noqa: SLF001
        return (
            batch.part.partition,
            stamp.producer_id,
            stamp.epoch,
            stamp.sequence,
            batch.owner.value,
        )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_sent_to_moving_leaders_is_placed_once_and_in_order(seed: int) -> None:
    """P3, P7: a request that waits for an old leader is not overtaken by later ones to the new."""
    dice = Random(seed)
    world = Moving(dice)
    batches: list[Batch[One]] = []
    number = 0
    for _ in range(5_000):
        if number < GROUPS and dice.random() < 0.5:
            number += 1
            one = group(dice, number, FOREVER)
            batches += one
            world.outbox.submit(one)
        world.perform()
        world.happen()
        world.now += 0.01
        if number == GROUPS and world.outbox.is_idle:
            break

    assert world.outbox.is_idle
    for partition in range(PARTITIONS):
        mine = [one.owner.value for one in batches if one.part.partition == partition]
        assert world.broker.logs[partition] == mine
