"""What a cluster relies on etcd for; the simulated one and a real one are held to it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import pytest

from goqueue.runtime.cluster.etcd.api import (
    DeleteKeys,
    Etcd,
    EtcdCompactedError,
    EtcdLeaseLostError,
    EtcdUnavailableError,
    KeyEvent,
    KeyValue,
    ModifiedAt,
    PutKey,
    ReadKeys,
)

Compact = Callable[[int], Awaitable[None]]
ALL = (b"t/", b"t0")


async def put(etcd: Etcd, key: bytes, value: bytes) -> int:
    """Store a value; return the revision."""
    return (await etcd.txn((), [PutKey(key, value)])).revision


async def read(etcd: Etcd, key: bytes) -> KeyValue | None:
    """Return a key."""
    items = (await etcd.range(ReadKeys(key))).items
    return items[0] if items else None


class EtcdContract(ABC):
    """Scenarios on an etcd that has no key below ``t/``."""

    @abstractmethod
    def run(self, scenario: Callable[[Etcd, Compact], Awaitable[None]]) -> None:
        """Run a scenario."""

    def test_a_key_is_found_as_it_was_stored(self) -> None:
        """With the revision of its last change, which grows with every change."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            first = await put(etcd, b"t/a", b"\x00\xff")
            second = await put(etcd, b"t/b", b"")

            assert await read(etcd, b"t/a") == KeyValue(b"t/a", b"\x00\xff", first)
            assert await read(etcd, b"t/b") == KeyValue(b"t/b", b"", second)
            assert second > first
            assert await read(etcd, b"t/c") is None

        self.run(scenario)

    def test_keys_are_read_in_order_page_by_page(self) -> None:
        """As they were at one revision, however they change."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            for at in (3, 1, 2):
                await put(etcd, b"t/%d" % at, b"old")
            page = await etcd.range(ReadKeys(*ALL, limit=2))
            await etcd.txn((), [PutKey(b"t/3", b"new"), DeleteKeys(b"t/1")])
            rest = await etcd.range(ReadKeys(b"t/2\0", ALL[1], 2), revision=page.revision)

            assert [item.key for item in page.items] == [b"t/1", b"t/2"]
            assert page.has_more
            assert [(item.key, item.value) for item in rest.items] == [(b"t/3", b"old")]
            assert not rest.has_more

        self.run(scenario)

    def test_a_transaction_does_all_or_the_other(self) -> None:
        """By the revisions of keys; a key that is not there has 0."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            made = await etcd.txn(
                [ModifiedAt(b"t/a", 0)], [PutKey(b"t/a", b"1"), PutKey(b"t/b", b"1")]
            )
            again = await etcd.txn(
                [ModifiedAt(b"t/b", made.revision), ModifiedAt(b"t/a", 0)],
                [PutKey(b"t/a", b"2")],
                [ReadKeys(b"t/a"), ReadKeys(b"t/none"), ReadKeys(*ALL)],
            )

            assert made.is_success
            assert not again.is_success
            assert again.revision == made.revision
            one, other = (KeyValue(b"t/%b" % key, b"1", made.revision) for key in (b"a", b"b"))
            assert [list(items) for items in again.found] == [[one], [], [one, other]]

        self.run(scenario)

    def test_keys_go_with_their_lease(self) -> None:
        """And nothing can be bound to a lease that is over."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            lease = await etcd.grant(30)
            assert await etcd.keep_alive(lease.id) == lease.seconds
            await etcd.txn((), [PutKey(b"t/a", b"bound", lease.id), PutKey(b"t/b", b"free")])
            found = await read(etcd, b"t/a")
            assert found is not None
            assert found.lease == lease.id
            await etcd.revoke(lease.id)
            assert await read(etcd, b"t/a") is None
            assert await read(etcd, b"t/b") is not None
            with pytest.raises(EtcdLeaseLostError):
                await etcd.keep_alive(lease.id)
            with pytest.raises(EtcdLeaseLostError):
                await etcd.revoke(lease.id)
            with pytest.raises(EtcdLeaseLostError):
                await etcd.txn((), [PutKey(b"t/c", b"c"), PutKey(b"t/a", b"a", lease.id)])

            assert await read(etcd, b"t/c") is None

        self.run(scenario)

    def test_a_key_that_is_put_again_goes_with_its_new_lease_only(self) -> None:
        """As a leader's key does that is handed over."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            old, new = await etcd.grant(30), await etcd.grant(30)
            first = await etcd.txn((), [PutKey(b"t/a", b"old", old.id)])
            condition = ModifiedAt(b"t/a", first.revision)
            second = await etcd.txn([condition], [PutKey(b"t/a", b"new", new.id)])
            await etcd.revoke(old.id)

            assert await read(etcd, b"t/a") == KeyValue(b"t/a", b"new", second.revision, new.id)

        self.run(scenario)

    def test_a_watch_shows_every_change_from_a_revision_on(self) -> None:
        """In order, those from before it began among them."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            lease = await etcd.grant(30)
            first = await put(etcd, b"t/a", b"1")
            second = (await etcd.txn((), [PutKey(b"t/b", b"2", lease.id)])).revision
            watch = await etcd.watch(*ALL, start_revision=first)
            third = (await etcd.txn((), [DeleteKeys(b"t/a"), PutKey(b"u", b"")])).revision
            await etcd.revoke(lease.id)
            seen: list[KeyEvent] = []
            while len(seen) < 4:
                seen += await watch.next()
            watch.close()

            assert seen[0] == KeyEvent(b"t/a", b"1", first)
            assert seen[1] == KeyEvent(b"t/b", b"2", second, lease.id)
            assert seen[2] == KeyEvent(b"t/a", None, third)
            assert seen[3][:2] == (b"t/b", None)
            assert seen[3].modified_at > third

        self.run(scenario)

    def test_a_watch_that_is_closed_ends(self) -> None:
        """Also while it is waited for."""

        async def scenario(etcd: Etcd, _: Compact) -> None:
            revision = await put(etcd, b"t/a", b"1")
            watch = await etcd.watch(*ALL, start_revision=revision + 1)
            waiting = asyncio.ensure_future(watch.next())
            await asyncio.sleep(0.01)
            watch.close()
            with pytest.raises(EtcdUnavailableError):
                await waiting

        self.run(scenario)

    def test_what_was_compacted_is_not_shown(self) -> None:
        """Neither to reads nor to watches, and both say so; a watch that is up to date goes on."""

        async def scenario(etcd: Etcd, compact: Compact) -> None:
            first = await put(etcd, b"t/a", b"1")
            second = await put(etcd, b"t/a", b"2")
            going = await etcd.watch(*ALL, start_revision=second)
            assert [event.modified_at for event in await going.next()] == [second]
            waiting = asyncio.ensure_future(going.next())
            await asyncio.sleep(0.01)
            last = await put(etcd, b"v", b"")
            await compact(last)
            with pytest.raises(EtcdCompactedError):
                await etcd.range(ReadKeys(b"t/a"), revision=first)
            late = await etcd.watch(*ALL, start_revision=first)
            with pytest.raises(EtcdCompactedError):
                await late.next()
            third = await put(etcd, b"t/a", b"3")

            assert list(await waiting) == [KeyEvent(b"t/a", b"3", third)]
            assert (await etcd.range(ReadKeys(b"t/a"), revision=last)).items[0].value == b"2"
            late.close()
            going.close()

        self.run(scenario)
