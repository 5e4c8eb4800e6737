"""The time of the append that a batch with dedup ids carries."""

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.log.rewrite import keep_rows
from goqueue.core.record.batch import batch_fields, with_append_time
from goqueue.core.record.frame import read_header, seal_header, verify
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP

MOMENT_MS = (1 << 41) + 12_345


def stamped() -> bytes:
    drafts = [Draft(value=b"v", key=b"%d" % n, dedup_id=b"%d" % n) for n in range(8)]
    raw = frame_drafts(drafts, NO_STAMP)
    raw = with_append_time(read_header(raw), raw, MOMENT_MS)
    return seal_header(read_header(raw), raw[34:]) + raw[34:]


def test_a_batch_says_when_it_was_appended() -> None:
    """The rest of its fields and its messages are as they were; the checksum covers it."""
    raw = stamped()
    header = read_header(raw)
    verify(raw, header)
    fields = batch_fields(header, raw)

    assert fields.appended_ms == MOMENT_MS
    assert (fields.rows, fields.transaction, fields.repeats) == (8, 0, ())


def test_compaction_keeps_it() -> None:
    """Whatever stays of the batch, however little, still says when it came."""
    raw = stamped()
    dropped = BitMap64([1, 2, 5])
    kept = list(keep_rows(read_header(raw), memoryview(raw), rows=8, dropped=dropped))

    assert [(one.offset, one.rows) for one in kept] == [(Offset(0), 1), (Offset(3), 2), (6, 2)]
    for one in kept:
        header = read_header(one.frame)
        verify(one.frame, header)
        assert batch_fields(header, one.frame).appended_ms == MOMENT_MS
