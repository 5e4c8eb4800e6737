"""Nodes are killed, stopped and started under a trickle of messages: how long partitions pause."""

import signal
import time

import goqueue
from benchmarks.cluster.fleet import NODES, Fleet, middle, quantile, wait
from benchmarks.cluster.pulse import Pulse

QUIET_SECONDS = 5.0
"""How long the trickle is looked at with nothing else going on: what the machine does by itself."""

Found = dict[str, object]


def _rounded(values: list[float]) -> dict[str, float]:
    return {
        "p50": round(middle(values), 3),
        "p99": round(quantile(values, 0.99), 3),
        "longest": round(max(values), 3),
    }


def takeovers(fleet: Fleet, client: goqueue.Client, *, kills: int, partitions: int) -> Found:
    """Kill node after node; measure until the partitions that it led acknowledge again."""
    client.create_topic("kills", partitions=partitions)
    pulse = Pulse(client, "kills", partitions)
    pulse.start()
    others: list[float] = []
    controllers: list[float] = []
    for turn in range(kills):
        fleet.until_in_sync("kills")
        time.sleep(2 * pulse.period)
        victim = f"n{turn % NODES}"
        partitions_of = fleet.partitions("kills")
        led = [number for number, one in partitions_of.items() if one["leader"] == victim]
        is_controller = fleet.state()["controller_id"] == victim
        pulse.look_from(time.monotonic())
        fleet.end(turn % NODES, signal.SIGKILL)
        first = pulse.until_all()
        (controllers if is_controller else others).extend(first[one] for one in led)
        fleet.start(turn % NODES)
        time.sleep(1.0)
    pulse.finish()
    client.delete_topic("kills")
    found: Found = {"partitions": partitions, "kills": kills, "errors": len(pulse.errors)}
    if others:
        found["kill -9 of a leader to its next acks, s"] = _rounded(others)
    if controllers:
        found["kill -9 of the controller to the next acks of what it led, s"] = _rounded(
            controllers
        )
    return found


def rolling(fleet: Fleet, client: goqueue.Client, *, partitions: int) -> Found:
    """Stop and start node after node; measure the longest pause of each partition."""
    client.create_topic("rolling", partitions=partitions)
    fleet.until_in_sync("rolling")
    pulse = Pulse(client, "rolling", partitions)
    pulse.start()
    time.sleep(2.0)
    pulse.take_pauses()
    time.sleep(QUIET_SECONDS)
    quiet = pulse.take_pauses()
    stops: list[float] = []
    starts: list[float] = []
    for number in range(NODES):
        fleet.end(number, signal.SIGTERM)
        time.sleep(1.0)
        stops += pulse.take_pauses()
        fleet.start(number)
        fleet.until_in_sync("rolling")
        time.sleep(1.0)
        starts += pulse.take_pauses()
    pulse.finish()
    client.delete_topic("rolling")
    return {
        "partitions": partitions,
        "pause with nothing going on, s": _rounded(quiet),
        "pause while a node stops, s": _rounded(stops),
        "pause while a node starts, s": _rounded(starts),
        "errors": len(pulse.errors),
    }


def catch_up(fleet: Fleet, client: goqueue.Client, *, megabytes: int) -> Found:
    """Publish while a node is down; measure how fast it copies that, and until it is in sync."""
    client.create_topic("behind", partitions=NODES)
    fleet.until_in_sync("behind")
    fleet.end(NODES - 1, signal.SIGTERM)
    value = bytes(1_000)
    with client.producer("behind") as producer:
        for _ in range(megabytes * 1_000):
            producer.send(value)
    wanted = _size(fleet, 0)
    before = _size(fleet, NODES - 1)
    fleet.start(NODES - 1)
    wait(lambda: _size(fleet, NODES - 1) > before)
    first, began = _size(fleet, NODES - 1), time.monotonic()
    wait(lambda: _size(fleet, NODES - 1) >= wanted)
    seconds = time.monotonic() - began
    fleet.until_in_sync("behind")
    in_sync = time.monotonic() - began
    client.delete_topic("behind")
    return {
        "bytes on the disk": wanted,
        "MB/s": round((wanted - first) / seconds / 1_000_000, 1),
        "first byte to in sync, s": round(in_sync, 2),
    }


def _size(fleet: Fleet, number: int) -> int:
    folder = fleet.data_of(number) / "logs" / "behind"
    return sum(path.stat().st_size for path in folder.glob("*/*.log"))
