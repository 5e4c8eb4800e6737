"""The registry survives crashes, and what does not fit a schema stays out of the log."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.base.errors import (
    DiskFullError,
    GoQueueError,
    InvalidNameError,
    SchemaViolationError,
    StorageFailedError,
)
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.core.dlq.record import read_story
from goqueue.core.record.check import check_frames
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.schema import Reference, Schema, read_schema
from goqueue.runtime import state_records
from goqueue.runtime.log.places import outcomes_of
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.schemas.schemas import SCHEMAS_TOPIC, Schemas
from goqueue.testing.disk import CrashError
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import Rig, read_all, run

State = dict[str, object]
Deed = Callable[[Schemas], Coroutine[Any, Any, object]]


def object_of(*names: str, **more: object) -> Schema:
    properties = {name: {"type": "integer"} for name in names}
    return read_schema(json.dumps({"type": "object", "properties": properties, **more}), "JSON")


def using(name: str) -> Schema:
    reference = Reference(name="r", subject=SubjectName(name), version=SchemaVersion(1))
    return read_schema('{"$ref": "r"}', "JSON", [reference])


DEEDS: tuple[Deed, ...] = (
    lambda s: s.register("a", object_of("x")),
    lambda s: s.register("a", object_of("x", "y")),
    lambda s: s.register("b", object_of("x")),
    lambda s: s.configure("b", Compatibility.NONE),
    lambda s: s.register("b", read_schema('"string"', "AVRO")),
    lambda s: s.register("c", using("a")),
    lambda s: s.delete_version("b", 1),
    lambda s: s.delete_version("b", 1, is_permanent=True),
    lambda s: s.configure(None, Compatibility.FULL),
    lambda s: s.delete_subject("b"),
    lambda s: s.delete_subject("b", is_permanent=True),
    lambda s: s.register("b", object_of("z")),
    lambda s: s.register("a", object_of("x", "y", "z")),
)


def state_of(schemas: Schemas) -> State:
    """Return all that can be seen."""
    registry = schemas.registry
    return {
        "mode": registry.compatibility,
        "schemas": {one: registry.library.get(one) for one in registry.library},
        "subjects": {
            one.name: (one.snapshot(), registry.compatibility_of(one.name))
            for one in registry.subjects(with_deleted=True)
        },
    }


async def history() -> list[State]:
    """Return the state after every deed, without any crash."""
    rig = Rig()
    broker = await rig.start()
    states = [state_of(broker.schemas)]
    for deed in DEEDS:
        await deed(broker.schemas)
        states.append(state_of(broker.schemas))
    await rig.stop()
    return states


async def die_at(operation: int, states: list[State]) -> bool:
    """Die at an operation, look at what is left, and tell whether the life ended before."""
    rig = Rig()
    rig.die_in(operation)
    done = 0
    try:
        broker = await rig.start()
        for deed in DEEDS:
            await deed(broker.schemas)
            done += 1
        await rig.stop()
    except (CrashError, StorageFailedError):
        rig.recover_with(rig.disk.crash())
    else:
        return True
    broker = await rig.start()
    found = state_of(broker.schemas)
    expected = states[done : done + 2]
    # The mode of a subject is set before it has a version: a purge may be cut between its steps.
    assert found in expected or _is_between(found, expected), (operation, done)
    last = max([0, *(int(one) for state in states[: done + 1] for one in state["schemas"])])  # type: ignore[attr-defined]
    place = await broker.schemas.register("new", object_of("never", "seen"))
    assert place.id > last, "an id was given twice"
    await rig.stop()
    return False


def _is_between(found: State, expected: list[State]) -> bool:
    """Tell whether each part of a state is that before or that after the deed under way."""
    return all(found[part] in [state[part] for state in expected] for part in found)


@pytest.fixture
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_records, "SLOTS", 3)


@pytest.mark.usefixtures("_few_slots")
def test_the_registry_survives_a_crash_at_any_operation() -> None:
    """After a crash everything is as the last answer said, or as the deed under way wanted it."""

    async def main() -> None:
        states = await history()
        operation = 1
        while not await die_at(operation, states):
            operation += 1
        assert operation > 30

    run(main())


@pytest.mark.usefixtures("_few_slots")
def test_the_registry_comes_back_as_it_was() -> None:
    """Restarts in between change nothing, snapshots or not."""

    async def main() -> None:
        states = await history()
        rig = Rig()
        for number, deed in enumerate(DEEDS):
            broker = await rig.start()
            assert state_of(broker.schemas) == states[number]
            await deed(broker.schemas)
            assert state_of(broker.schemas) == states[number + 1]
            await rig.stop()

    run(main())


async def register_on(schemas: Schemas) -> None:
    """Register large schemas until the room that is kept on the disk is used up."""
    for number in range(20):
        text = json.dumps({"title": str(number), "description": "d" * 900_000})
        await schemas.register(f"s{number}", read_schema(text, "JSON"))


def test_a_full_disk_stores_nothing_half() -> None:
    """A registration that finds no room is refused; what a restart finds was answered."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        await broker.schemas.register("a", object_of("x"))
        rig.disk.fill_up(0)
        with pytest.raises(DiskFullError):
            await register_on(broker.schemas)
        seen = state_of(broker.schemas)["subjects"]
        rig.disk.make_room()
        await rig.stop()
        broker = await rig.start()

        assert state_of(broker.schemas)["subjects"] == seen
        assert not broker.schemas.registry.unused()
        await rig.stop()

    run(main())


def test_nobody_else_writes_the_schemas() -> None:
    """The topic belongs to the broker."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        await broker.schemas.register("a", object_of("x"))
        topic = broker.topic(SCHEMAS_TOPIC)
        assert len(topic.partitions) == 1
        assert topic.settings.is_compacted
        with pytest.raises(InvalidNameError):
            await topic.publish_all(PUBLISHING, [(0, memoryview(b""))])
        await rig.stop()

    run(main())


# Messages.


def drafts(rig: Rig, *values: bytes | None, dedup: bool = False) -> list[Draft]:
    return [
        Draft(
            value=value,
            timestamp_us=rig.clock.now_us(),
            dedup_id=(value or b"-")[:20] if dedup else None,
        )
        for value in values
    ]


async def publish(
    rig: Rig, topic: Topic, client: str | None, *values: bytes | None, dedup: bool = False
) -> list[int | str]:
    """Publish one batch as a producer would; return offsets, or why there is none."""
    messages = drafts(rig, *values, dedup=dedup)
    if client is None:
        frame = frame_drafts(messages)
    else:
        stamp = rig.client(client).next_stamp(topic.record.name, 0)
        frame = frame_drafts(messages, stamp)
    published = await topic.publish(PUBLISHING, 0, memoryview(frame))
    return [
        one.message.partition(": ")[2] if isinstance(one, GoQueueError) else int(one[1])
        for one in outcomes_of(published, len(values))
    ]


GOOD, BAD = b'{"x": 1}', b'{"x": "one"}'
UNFIT = '/x: "one" is not of type "integer"'


@pytest.mark.parametrize("client", [None, "p"])
@pytest.mark.parametrize("count", [1, 3])
def test_misfits_are_left_out_of_their_batch(client: str | None, count: int) -> None:
    """Row frames and batch frames, with a producer id or without: the others are published."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        topic = broker.create_topic("t", partitions=1, settings={"schema_validation": "on"})
        await broker.schemas.register("t", object_of("x"))

        values = [GOOD, BAD, None] * count
        found = await publish(rig, topic, client, *values)
        messages, _ = await read_all(topic, 0)

        assert found == [part for n in range(count) for part in (2 * n, UNFIT, 2 * n + 1)]
        assert [one.value for one in messages] == [GOOD, None] * count
        assert await publish(rig, topic, None, BAD) == [UNFIT]
        await rig.stop()

    run(main())


def test_a_repeated_batch_is_refused_the_same_rows() -> None:
    """A retry after a lost answer gets the same places and the same refusals, restart or not."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        broker.create_topic("t", partitions=1, settings={"schema_validation": "on"})
        await broker.schemas.register("t", object_of("x"))
        first = await publish(rig, broker.topic("t"), "p", GOOD, BAD, GOOD, BAD, GOOD)
        await broker.schemas.configure("t", Compatibility.NONE)
        await broker.schemas.register("t", read_schema('{"type": "null"}', "JSON"))
        for _ in range(2):
            again = await publish(rig, broker.topic("t"), "p", GOOD, BAD, GOOD, BAD, GOOD)

            assert [one for one in first if isinstance(one, int)] == [0, 1, 2]
            assert [one for one in again if isinstance(one, int)] == [0, 1, 2]
            assert [isinstance(one, str) for one in again] == [False, True, False, True, False]
            await rig.stop()
            broker = await rig.start()
        await rig.stop()

    run(main())


def test_misfits_and_repeats_are_told_apart() -> None:
    """A dedup id of a refused message is not remembered, one of a published message is."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        settings = {"schema_validation": "on", "dedup_window_ms": "1m"}
        topic = broker.create_topic("t", partitions=1, settings=settings)
        await broker.schemas.register("t", object_of("x"))
        other = b'{"x": 2}'

        assert await publish(rig, topic, "p", BAD, GOOD, dedup=True) == [UNFIT, 0]
        rig.client("p").acked("t", 0, 2)
        found = await publish(rig, topic, "p", GOOD, BAD, other, BAD, GOOD, dedup=True)
        assert found == [0, UNFIT, 1, UNFIT, 0]
        await rig.stop()

    run(main())


def test_the_subject_is_found_by_the_strategy() -> None:
    """Record names choose the subject when the topic says so; plain values have none."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        text = '{"type": "record", "name": "shop.Order", "fields": [{"name": "n", "type": "int"}]}'
        place = await broker.schemas.register("shop.Order", read_schema(text, "AVRO"))
        await broker.schemas.register("t-shop.Order", read_schema(text, "AVRO"))
        framed = b"\0" + place.id.to_bytes(4, "big") + b"\x04"
        for strategy in ("record", "topic_record"):
            settings = {"schema_validation": "on", "schema_subject": strategy}
            name = "t" if strategy == "topic_record" else "r"
            topic = broker.create_topic(name, partitions=1, settings=settings)

            results = await topic.publish_drafts(
                PUBLISHING,
                [
                    (one, 0)
                    for one in drafts(rig, framed, framed + b"\0", b"\x04", b"\0\0\0\0\x09x")
                ],
            )
            refused = [one.message for one in results[1:] if isinstance(one, GoQueueError)]

            assert not isinstance(results[0], GoQueueError)
            assert "1 bytes are left over" in refused[0]
            assert "does not name its schema" in refused[1]
            assert refused[2] == "there is no schema 9"
        await rig.stop()

    run(main())


def test_a_schema_of_another_subject_is_no_excuse() -> None:
    """A value that names a schema must name a version of its topic's subject."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        topic = broker.create_topic("t", partitions=1, settings={"schema_validation": "on"})
        await broker.schemas.register("t", object_of("x"))
        loose = await broker.schemas.register("other", read_schema("{}", "JSON"))
        framed = b"\0" + loose.id.to_bytes(4, "big") + BAD

        (result,) = await topic.publish_drafts(
            PUBLISHING, [(one, 0) for one in drafts(rig, framed)]
        )

        assert isinstance(result, SchemaViolationError)
        assert result.message == f"schema {loose.id} is no version of subject t"
        await rig.stop()

    run(main())


def test_many_misfits_do_not_hold_up_the_others() -> None:
    """Thousands of refused messages in one request leave the good ones through."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        topic = broker.create_topic("t", partitions=1, settings={"schema_validation": "on"})
        await broker.schemas.register("t", object_of("x"))

        results = await topic.publish_drafts(
            PUBLISHING, [(one, 0) for one in drafts(rig, *([BAD] * 6_000), GOOD)]
        )

        assert results[-1] == (0, 0)
        assert all(isinstance(one, SchemaViolationError) for one in results[:-1])
        await rig.stop()

    run(main())


def test_misfits_are_kept_where_the_topic_says_so() -> None:
    """They lie in the dead letters, whole and with their story, before the producer is told."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        topic = broker.create_topic("t", partitions=2, settings={"schema_validation": "dlq"})
        await broker.schemas.register("t", object_of("x"))
        bad = Draft(value=BAD, key=b"k", headers={"h": b"1"}, timestamp_us=rig.clock.now_us())

        results = await topic.publish_drafts(PUBLISHING, [(bad, 0), (drafts(rig, GOOD)[0], 0)])
        letters = [
            message
            for number in (0, 1)
            for message in (await read_all(broker.topic("t.dlq"), number))[0]
        ]
        story = read_story(letters[0].headers)

        assert results[1] == (0, 0)
        assert isinstance(results[0], SchemaViolationError)
        assert results[0].message.endswith(f"{UNFIT} (kept in t.dlq)")
        assert [(one.key, one.value) for one in letters] == [(b"k", BAD)]
        assert (letters[0].headers or {})["h"] == b"1"
        assert (story.reason, story.original_topic) == ("SCHEMA_VIOLATION", "t")
        assert story.last_error == f"subject t version 1: {UNFIT}"
        await rig.stop()

    run(main())


def test_a_redrive_is_judged_again() -> None:
    """What still does not fit does not come back through the dead letters."""

    async def main() -> None:
        rig = Rig()
        broker = await rig.start()
        topic = broker.create_topic("t", partitions=1, settings={"schema_validation": "on"})
        await broker.schemas.register("t", object_of("x"))
        for value, error in ((GOOD, None), (BAD, SchemaViolationError)):
            raw = frame_drafts(drafts(rig, value))
            frames = check_frames(memoryview(raw), now_ms=rig.clock.now_ms())
            if error is None:
                await topic.check_fit(frames)
                continue
            with pytest.raises(error, match="subject t version 1"):
                await topic.check_fit(frames)
        await rig.stop()

    run(main())
