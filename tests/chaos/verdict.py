"""Judges a run by what clients were told and what the cluster holds in the end."""

from collections import Counter, defaultdict
from typing import Final

import goqueue
from goqueue.base.ids import TopicName, TopicPartition
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.testing.log_checker import LogChecker
from tests.chaos.crew import Crew
from tests.chaos.load import ACCOUNTS, LATER, ORDERS, TOPICS, place_of
from tests.chaos.metadata import violations
from tests.chaos.nodes import wait_until

SHOWN_MAX: Final = 12
"""Findings of one kind that are listed."""
TX_SECONDS_MAX: Final = 60

Rows = dict[int, list[tuple[int, bytes]]]


def judge(client: goqueue.Client, crew: Crew) -> tuple[dict[str, int], list[str]]:
    """Return where the logs end, by ``topic/partition``, and every promise that was broken."""
    orders, later = _read(client, ORDERS), _read(client, LATER)
    found = _shown(_judge_log(crew, orders))
    found += _shown(_judge_follower(crew, orders))
    found += _judge_groups(crew, orders, later)
    # A transaction that was left in doubt hides what follows it until it is timed out.
    wait_until(lambda: not _judge_transfers(client, crew), TX_SECONDS_MAX)
    found += _judge_transfers(client, crew)
    found += violations([one for registrar in crew.registrars for one in registrar.history])
    found += crew.told.faults
    ends = {
        f"{topic}/{number}": part[-1][0] + 1
        for topic, rows in ((ORDERS, orders), (LATER, later))
        for number, part in rows.items()
        if part
    }
    return ends, found


def _read(client: goqueue.Client, topic: TopicName) -> Rows:
    found: Rows = defaultdict(list)
    for message in client.read(topic, delayed="show"):
        found[message.partition].append((message.offset, message.value or b""))
    return found


def _judge_follower(crew: Crew, orders: Rows) -> list[str]:
    there = {(number, offset): value for number, rows in orders.items() for offset, value in rows}
    return [
        f"the follower read {value!r} at {where}, there is {there.get(where)!r}"
        for where, value in crew.follower.seen.items()
        if there.get(where) != value
    ]


def _shown(found: list[str]) -> list[str]:
    more = [f"… and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
    return found[:SHOWN_MAX] + more


def _judge_log(crew: Crew, orders: Rows) -> list[str]:
    checker = LogChecker()
    for publisher in crew.publishers:
        for value, key, future in publisher.sent:
            where = place_of(ORDERS, partition_of_key(key, TOPICS[ORDERS]))
            checker.sent(where, value, producer=publisher.name)
            if future.exception() is None:
                checker.acked(where, future.result().offset, value)
    for number, rows in orders.items():
        checker.read(place_of(ORDERS, number), rows, start_offset=0, end_offset=len(rows))
    return [str(one) for one in checker.findings()]


def _judge_groups(crew: Crew, orders: Rows, later: Rows) -> list[str]:
    """P2 over what was told: everything published was settled, once and for all."""
    groups = crew.told.groups
    for publisher in crew.publishers:
        for _, _, future in publisher.sent:
            if future.exception() is None:
                placed = future.result()
                groups.sent(place_of(ORDERS, placed.partition), [placed.offset])
    for partition, offset in crew.delayer.acked:
        groups.sent(place_of(LATER, partition), [offset])
    found = list(groups.faults)
    for group, topic in crew.groups.items():
        rows = orders if topic == ORDERS else later
        for number in range(TOPICS[topic]):
            there = {offset for offset, _ in rows.get(number, ())}
            found += _not_consumed(crew, group, place_of(topic, number), there)
    return _shown(found)


def _not_consumed(crew: Crew, group: str, place: TopicPartition, there: set[int]) -> list[str]:
    found: list[str] = []
    published = set(crew.told.groups.published[place])
    if never := published - crew.told.delivered[group, place]:
        found.append(f"{group} never got {place}@{sorted(never)[:10]}")
    if lost := published - there:
        found.append(f"{place}@{sorted(lost)[:10]} was acknowledged and is gone")
    return found


def _judge_transfers(client: goqueue.Client, crew: Crew) -> list[str]:
    told = crew.told
    sides: dict[str, Counter[str]] = defaultdict(Counter)
    for message in client.read(ACCOUNTS):
        name, side = (message.value or b"").decode().split(" ")
        sides[name][side] += 1
    found = [
        f"{name}: {dict(counts)} is not both sides once"
        for name, counts in sides.items()
        if counts != {"+": 1, "-": 1}
    ]
    found += [f"{name} was aborted and is visible" for name in sides.keys() & told.aborted]
    found += [f"{name} was committed and is gone" for name in told.committed - sides.keys()]
    return _shown(found)
