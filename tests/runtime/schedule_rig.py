"""Recurring schedules on a memory disk, ticked by a clock of the test."""

from goqueue.core.record.message import Message
from goqueue.core.recurring.spec import HEADER_TICK, Missed, ScheduleSpec
from goqueue.runtime.recurring.schedules import ScheduleView
from tests.runtime.rig import Rig, read_all

TOPIC = "t"


def every(seconds: int, *, missed: str = "one", value: bytes = b"v") -> ScheduleSpec:
    """Return a schedule of an interval."""
    return ScheduleSpec(topic=TOPIC, value=value, every_ms=seconds * 1_000, missed=Missed(missed))


def cron(line: str, zone: str = "UTC", *, missed: str = "one") -> ScheduleSpec:
    """Return a schedule of a cron line."""
    return ScheduleSpec(topic=TOPIC, value=b"v", cron=line, zone=zone, missed=Missed(missed))


async def begin(rig: Rig | None = None, *, partitions: int = 1) -> Rig:
    """Start a broker with one topic."""
    rig = rig or Rig()
    await rig.start()
    rig.broker.create_topic(TOPIC, partitions=partitions)
    return rig


async def tick(rig: Rig) -> None:
    """Publish what is due."""
    rig.broker.schedules.tick()
    await rig.broker.schedules.settled()


async def pass_ms(rig: Rig, duration_ms: int, *, step_ms: int = 1_000) -> None:
    """Let time pass in steps, and publish what is due at each."""
    for _ in range(duration_ms // step_ms):
        rig.clock.advance(step_ms)
        await tick(rig)


async def restart(rig: Rig, *, down_ms: int = 0) -> None:
    """Stop the broker, let time pass and start it again."""
    await rig.stop()
    rig.clock.advance(down_ms)
    rig.clock.restart()
    await rig.start()


async def published(rig: Rig) -> list[Message]:
    """Return the messages of the topic in the order of partitions and offsets."""
    topic = rig.broker.topic(TOPIC)
    found: list[Message] = []
    for number in range(len(topic.partitions)):
        found += (await read_all(topic, number))[0]
    return found


async def ticks(rig: Rig) -> list[str]:
    """Return the times of the ticks that were published, without fractions of a second."""
    return [(message.headers or {})[HEADER_TICK].decode()[:19] for message in await published(rig)]


def view(rig: Rig, name: str = "s") -> ScheduleView:
    """Return a schedule as people see it."""
    return rig.broker.schedules.get(name)
