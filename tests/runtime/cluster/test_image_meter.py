"""Counters and log lines of a cluster's nodes and partitions, as nodes die, return and leave."""

import pytest

from goqueue.observability.events import LogEvent
from goqueue.runtime.cluster import image_meter
from goqueue.runtime.cluster.image_meter import ImageMeter
from tests.runtime.cluster.control_fleet import ControlFleet, run_control
from tests.runtime.cluster.test_control import founded, others_of


def samples(meter: ImageMeter) -> dict[tuple[str, str], float]:
    """Return the series by name and label: a topic or a node, and the kind of an election."""
    found: dict[tuple[str, str], float] = {}
    for family in meter.metrics():
        for one in family.samples:
            found[one.name.removeprefix("goqueue_cluster_"), "/".join(one.labels.values())] = (
                one.value
            )
    return found


def test_metrics_and_events_move_as_nodes_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A death shrinks sets and elects leaders; one that returns joined, one that stops left."""
    lines: list[tuple[LogEvent, object]] = []

    class Lines:
        def info(self, event: LogEvent, **fields: object) -> None:
            lines.append((event, fields.get("node")))

        warning = info

    monkeypatch.setattr(image_meter, "log", Lines())

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        (controller,) = fleet.controllers()
        victim, watcher = others_of(controller)
        meter = ImageMeter(fleet.node(watcher).metadata)
        meter.hear(None)
        before = samples(meter)
        fleet.kill(victim)
        await fleet.until(lambda: fleet.alive_on(fleet.node(watcher)) == {controller, watcher})
        died = samples(meter)
        fleet.start(victim)
        await fleet.all_alive()
        await fleet.stop(victim)
        await fleet.until(lambda: (LogEvent.NODE_LEFT, victim) in lines)

        assert before["isr_size", "__schemas"] == 3
        assert died["isr_size", "__transactions"] == 2
        assert died["isr_shrinks_total", "__consumer_offsets"] == 50
        assert died["leader_elections_total", "__consumer_offsets/clean"] > 0
        assert died["failure_detections_total", victim] == 1
        assert (LogEvent.NODE_JOINED, victim) in lines

    run_control(scenario)


def test_a_quorum_without_a_leader_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it is lost, and once when it is there again."""
    lines: list[LogEvent] = []

    class Lines:
        def info(self, event: LogEvent, **_: object) -> None:
            lines.append(event)

        warning = info

    monkeypatch.setattr(image_meter, "log", Lines())

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        (controller,) = fleet.controllers()
        watcher, other = others_of(controller)
        ImageMeter(fleet.node(watcher).metadata)
        fleet.kill(controller)
        fleet.kill(other)
        await fleet.until(lambda: LogEvent.QUORUM_LOST in lines)
        fleet.start(other)
        await fleet.until(lambda: LogEvent.QUORUM_RESTORED in lines)
        await fleet.all_alive([watcher, other])

        assert lines.index(LogEvent.QUORUM_LOST) < lines.index(LogEvent.QUORUM_RESTORED)

    run_control(scenario)
