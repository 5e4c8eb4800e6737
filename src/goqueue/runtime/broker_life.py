"""The start and the end of a broker by itself: all state is loaded, all partitions are closed."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.base.names import is_internal
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.coordinators import Coordinators
from goqueue.runtime.log.lost_tails import report_repair, skip_lost_tails
from goqueue.runtime.log.partition import Partition

if TYPE_CHECKING:
    from goqueue.runtime.broker import Broker

log = get_logger("goqueue.broker")


async def open_all(broker: "Broker") -> None:
    """Open every topic of the catalogue."""
    catalogue = broker.catalogue
    catalogue.report_strangers()
    catalogue.remove_deleted()
    openings = [broker.opening(one) for one in catalogue.catalog.topics.values()]
    await broker.open_partitions(openings)
    for opening in openings:
        catalogue.open(opening)
        await asyncio.sleep(0)


async def load_all(broker: "Broker") -> None:
    """Load every state partition, in an order in which each finds what it looks for."""
    ledgers, redrives = broker.consume.ledgers, broker.redrives
    for name, state in broker.state_logs.items():
        state.start(broker.topics.get(name))
        for partition in state.partitions:
            state.load(partition)
    broker.schemas.load(0)
    for partition in broker.state.partitions:
        broker.groups.load(partition)
        broker.delays.load(partition)
    broker.gain_all(broker.topics.values())
    await broker.delays.release()
    for partition in broker.state.partitions:
        ledgers.load(partition)
        redrives.load(partition)
        broker.schedules.load(partition)
    skip_lost_tails(broker.topics, ledgers, redrives)
    for partition in broker.tx_state.partitions:
        broker.transactions.load(partition)
    broker.transactions.recover()
    # Commits that were carried out only now may know of more.
    skip_lost_tails(broker.topics, ledgers, redrives)


def follow_all(broker: "Broker") -> None:
    """Let every group be swept and watched."""
    for partition in broker.state.partitions:
        broker.groups.follow(partition)


def resume_all(broker: "Broker") -> None:
    """Go on with every redrive."""
    for partition in broker.state.partitions:
        broker.redrives.resume(partition)


def take_in(broker: "Broker", partitions: Iterable[Partition]) -> None:
    """See to partitions that were just opened: what was repaired is told, delays wait."""
    for partition in partitions:
        report_repair(partition)
        if broker.state.is_beside and not is_internal(partition.name.topic):
            broker.delays.withhold(partition)


def gain_at_once(coordinators: Coordinators, partitions: Iterable[Partition]) -> None:
    """Decide about the messages of partitions from now on."""
    for partition in partitions:
        if not is_internal(partition.name.topic):
            coordinators.gain_at_once(partition.name)


def close_all(partitions: Iterable[Partition]) -> None:
    """Make everything durable and let go of the files, whatever becomes of one of them."""
    for partition in partitions:
        try:
            partition.close()
        except Exception:
            log.exception(LogEvent.PARTITION_CLOSE_FAILED, partition=str(partition.name))
