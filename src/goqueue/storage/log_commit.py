"""What a sync of a log makes durable."""

import msgspec

from goqueue.base.ids import Offset
from goqueue.storage.disk import File
from goqueue.storage.segment_index import Flush


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A promise being kept: everything before ``end_offset`` becomes durable."""

    file: File
    end_offset: Offset
    end_size: int
    flush: Flush

    def begin(self) -> None:
        """Have the system begin to write, where other logs are synced first."""
        self.file.begin_sync()

    def run(self) -> None:
        """Sync, then write the index entries that now speak of durable bytes. Any thread.

        Only the sync can fail: index entries that find no room are written with later ones.
        """
        self.file.sync()
        self.flush.run()
