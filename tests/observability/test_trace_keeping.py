"""The ring, the queue of an exporter, and the files: each within its bounds."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.core.tracing import kinds
from goqueue.core.tracing.ids import place_of
from goqueue.core.tracing.kinds import PUBLISHED_SPANS
from goqueue.core.tracing.note import PACKED_MAX, Note, TraceSpan, packed, spans_of
from goqueue.observability.metrics import Metrics
from goqueue.observability.trace_export import BATCH_SPANS_MAX, TraceExport
from goqueue.observability.trace_files import TraceFiles
from goqueue.observability.trace_metrics import TraceMetrics
from goqueue.observability.trace_ring import TraceRing

PLACES = [place_of("orders", number, life=1) for number in range(2)]


def note(
    start: int, end: int, *, kind: str = kinds.PERSISTED, at_ns: int = 1, place: int = 0
) -> Note:
    return Note(kind=kind, place=PLACES[place], messages=BitMap64(range(start, end)), at_ns=at_ns)


NOTES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(1, 50),
        st.sampled_from([kinds.PERSISTED, kinds.FIRED, kinds.ACKED, kinds.REDRIVEN]),
    ),
    max_size=60,
)


@given(NOTES, st.integers(1, 100), st.randoms(use_true_random=False))
def test_a_ring_keeps_the_latest(
    sizes: list[tuple[int, int, str]], most: int, random: object
) -> None:
    """Never more spans than it may, never an older note in place of a newer one."""
    del random
    ring, ends = TraceRing(most), [0, 0]
    added: list[Note] = []
    for number, (place, size, kind) in enumerate(sizes):
        added.append(
            note(ends[place], ends[place] + size, kind=kind, at_ns=number + 1, place=place)
        )
        ends[place] += size
        ring.add(added[-1])

        assert ring.spans == sum(one.count for one in ring.notes()) <= most
    kept = ring.notes()
    assert [one.at_ns for one in kept] == [one.at_ns for one in added][len(added) - len(kept) :]
    assert ring.added == len(added)
    assert len(ring.since(0)) == len(kept)
    assert ring.since(ring.added) == []
    for place in (0, 1):
        wanted = BitMap64(range(ends[place]))
        found = list(ring.ready(PLACES[place], wanted)) if wanted else []
        assert sum(len(part) for part, _ in found) == len(wanted)
        ready = {
            one.at_ns: one.offsets
            for one in kept
            if one.place == PLACES[place] and one.kind != kinds.ACKED
        }
        for part, at_ns in found:
            assert not at_ns or part <= ready[at_ns]


@given(st.sets(st.integers(0, 2**62), min_size=1, max_size=80))
def test_a_packed_note_is_about_the_same_messages(offsets: set[int]) -> None:
    """Few messages are kept as numbers, many as a set; nobody sees a difference."""
    whole = note(0, 1)
    whole = msgspec.structs.replace(whole, messages=BitMap64(offsets), kind=kinds.PUBLISHED)
    kept = packed(whole)

    assert kept.offsets == whole.offsets
    assert kept.count == whole.count == PUBLISHED_SPANS * len(offsets)
    assert isinstance(kept.messages, bytes) == (len(offsets) <= PACKED_MAX)
    assert list(spans_of(kept)) == list(spans_of(whole))


def test_what_the_ring_let_go_of_is_not_kept_by_its_index() -> None:
    """However many partitions there are, each keeps about as many notes as are in the ring."""
    ring = TraceRing(100)
    for place in PLACES:
        for number in range(500):
            ring.add(note(number, number + 1, place=PLACES.index(place)))
    for number in range(60):
        ring.add(note(number, number + 1, kind=kinds.ACKED))

    held = sum(len(shelf.notes) for shelf in ring._shelves.values())  # noqa: SLF001
    assert held <= 2 * 40


def test_a_message_that_was_delayed_is_ready_when_it_is_due() -> None:
    ring = TraceRing(100)
    ring.add(note(0, 10, at_ns=5))
    ring.add(note(3, 4, kind=kinds.FIRED, at_ns=50))

    assert {at_ns: list(part) for part, at_ns in ring.ready(PLACES[0], BitMap64([2, 3, 11]))} == {
        50: [3],
        5: [2],
        0: [11],
    }


class Hanging:
    """A sink that takes its time."""

    def __init__(self) -> None:
        self.go_on, self.is_called = threading.Event(), threading.Event()
        self.spans: list[TraceSpan] = []
        self.is_closed = False

    def write(self, spans: Sequence[TraceSpan]) -> None:
        self.is_called.set()
        assert self.go_on.wait(60)
        if spans[0].offset == 666:
            raise OSError("no")
        assert len(spans) <= BATCH_SPANS_MAX
        self.spans += spans

    def close(self) -> None:
        self.is_closed = True


def sample(metrics: Metrics, name: str) -> float:
    found = metrics.registry.get_sample_value(f"goqueue_tracing_{name}_total", {"exporter": "x"})
    return found or 0.0


def test_a_sink_that_hangs_costs_spans_and_nothing_else() -> None:
    """Its queue is bounded; what finds no room is counted, the rest comes when it goes on."""
    sink, metrics = Hanging(), Metrics()
    export = TraceExport(
        "x", sink, metrics=TraceMetrics(metrics), interval_ms=3_600_000, spans_max=2_000
    )
    export.start()
    export.offer(note(0, 1_000))
    assert sink.is_called.wait(60)
    for start in range(1_000, 10_000, 500):
        export.offer(note(start, start + 500))
    waiting = export.waiting
    sink.go_on.set()
    export.stop(30)

    assert waiting <= 2_000
    assert sample(metrics, "spans_dropped") + sample(metrics, "spans_exported") == 10_000
    assert sample(metrics, "spans_exported") == len(sink.spans) >= 1_500
    assert [span.offset for span in sink.spans] == sorted(span.offset for span in sink.spans)
    assert sink.is_closed


def test_a_sink_that_fails_is_asked_again() -> None:
    sink, metrics = Hanging(), Metrics()
    sink.go_on.set()
    export = TraceExport("x", sink, metrics=TraceMetrics(metrics), interval_ms=3_600_000)
    export.offer(note(666, 667))
    export.start()
    export.stop(30)
    again = TraceExport("x", sink, metrics=TraceMetrics(Metrics()), interval_ms=10)
    again.start()
    again.offer(note(0, 1))
    again.stop(30)

    assert (sample(metrics, "export_failures"), sample(metrics, "spans_dropped")) == (1, 1)
    assert [span.offset for span in sink.spans] == [0]


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    """A full file is followed by the next, the oldest goes; strangers' files stay."""
    stranger = tmp_path / "notes.json"
    stranger.write_text("mine")
    (line,) = spans_of(note(0, 1))
    for life in range(2):
        files = TraceFiles(tmp_path, files_max=3, file_bytes_max=1_000)
        for start in range(life * 100, life * 100 + 100):
            files.write(list(spans_of(note(start, start + 1))))
        files.close()
    paths = sorted(tmp_path.glob("traces-*.json"))
    offsets = [
        json.loads(text)["offset"] for path in paths for text in path.read_text().splitlines()
    ]

    assert len(paths) == 3
    assert all(path.stat().st_size <= 1_000 for path in paths)
    assert offsets == list(range(200 - len(offsets), 200))
    assert stranger.read_text() == "mine"
    assert line.trace_id == f"{int(line.trace_id, 16):032x}"


def test_ten_mebibytes_are_a_file(tmp_path: Path) -> None:
    """The size of the contract, with its names."""
    files = TraceFiles(tmp_path, files_max=10)
    for start in range(0, 60_000, 5_000):
        files.write(list(spans_of(note(start, start + 5_000))))
    files.close()
    first, second = sorted(tmp_path.glob("traces-*.json"))

    assert first.name.endswith("-001.json")
    assert second.name.endswith("-002.json")
    assert 10 * 2**20 - 1_000 < first.stat().st_size <= 10 * 2**20


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_event_makes_a_span(kind: str) -> None:
    (span,) = spans_of(note(7, 8, kind=kind, at_ns=1_000))

    assert (span.event_type, span.offset, span.timestamp_ns) == (kind, 7, 1_000)
    assert span.span_id != span.parent_span_id
    assert (span.parent_span_id is None) == (kind in kinds.BEGINNINGS)
