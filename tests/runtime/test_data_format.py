"""A data directory says its format, and nothing in it is left out of service in silence."""

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.runtime.meta_journal import JOURNAL_PATH
from goqueue.storage.data_format import FORMAT, FORMAT_PATH, format_line
from goqueue.storage.disk import write_atomically
from goqueue.storage.journal import Journal
from goqueue.storage.verify import Verification
from goqueue.testing.disk import MemoryDisk
from tests.runtime.rig import Rig, run


def content_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(Position(0), file.size())


async def stopped() -> Rig:
    rig = Rig()
    await rig.start()
    rig.broker.create_topic("orders", partitions=1)
    await rig.publish("orders", 0, [b"acked"])
    rig.broker.create_topic("bills", partitions=1)
    await rig.stop()
    return rig


def test_a_directory_without_a_format_is_taken_and_gets_one() -> None:
    """So does one whose format cannot be read."""

    async def main() -> None:
        rig = await stopped()
        assert content_of(rig.disk, FORMAT_PATH) == format_line(FORMAT)
        rig.disk.remove(FORMAT_PATH)
        await rig.start()
        await rig.stop()
        assert content_of(rig.disk, FORMAT_PATH) == format_line(FORMAT)
        for bit in range(8 * len(format_line(FORMAT))):
            rig.disk.flip_bits(FORMAT_PATH, [bit // 8], mask=1 << bit % 8)
            await rig.start()
            await rig.stop()
            assert content_of(rig.disk, FORMAT_PATH) == format_line(FORMAT)

    run(main())


def test_a_newer_directory_is_refused_with_a_sentence() -> None:
    """Nothing in it is changed."""

    async def main() -> None:
        rig = await stopped()
        write_atomically(rig.disk, FORMAT_PATH, format_line(FORMAT + 1))
        journal = content_of(rig.disk, JOURNAL_PATH)
        with pytest.raises(StorageFailedError, match="newer version of GoQueue"):
            await rig.start()

        assert content_of(rig.disk, JOURNAL_PATH) == journal
        assert content_of(rig.disk, FORMAT_PATH) == format_line(FORMAT + 1)
        check = Verification(rig.disk)
        assert list(check.run()) == []
        assert "newer version" in check.report.findings[0].text

    run(main())


def test_a_record_of_a_newer_version_is_refused_with_a_sentence() -> None:
    """The program says what it is about, not that this should not happen."""

    async def main() -> None:
        rig = await stopped()
        Journal(rig.disk, JOURNAL_PATH).append([b"\x91\xa7unknown"])
        with pytest.raises(StorageFailedError, match="does not understand"):
            await rig.start()

    run(main())


def test_a_flip_in_the_last_record_of_the_journal_costs_no_topic() -> None:
    """The broker refuses to start without it, and starts when the bit is right again."""

    async def main() -> None:
        rig = await stopped()
        size = len(content_of(rig.disk, JOURNAL_PATH))
        for position in (size - 1, size - 20):
            rig.disk.flip_bits(JOURNAL_PATH, [position])
            rig.recover_with(rig.disk.kill())
            with pytest.raises(StorageFailedError, match="damaged"):
                await rig.start()
            rig.recover_with(rig.disk.kill())
            rig.disk.flip_bits(JOURNAL_PATH, [position])
        await rig.start()

        assert set(rig.broker.topics) == {"orders", "bills"}
        await rig.stop()

    run(main())


def test_folders_that_the_catalogue_does_not_know_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They hold messages that nobody is served, so the start says so at level error."""

    async def main() -> None:
        rig = await stopped()
        Journal(rig.disk, JOURNAL_PATH).rewrite(Journal(rig.disk, JOURNAL_PATH).records[:1])
        capsys.readouterr()
        await rig.start()
        printed = capsys.readouterr().err

        assert "logs/bills" in printed
        assert '"level": "error"' in printed
        await rig.stop()

    run(main())
