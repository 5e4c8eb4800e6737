"""Reading everything back when the work is done: topics from the broker, the lake from files."""

from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq

from examples.demo import topics
from examples.demo.billing import GROUP, Invoice
from examples.demo.books import Aside, Books, Window
from examples.demo.times import SECOND_US, read_time_us, write_time_us
from examples.demo.trace import Trace
from goqueue import Client
from goqueue.base.errors import TopicNotFoundError
from goqueue.spark.pipelines.lake import Lake

STORY: Final = "goqueue-dlq"
WINDOW_US: Final = 10 * SECOND_US


class CleanOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the clean topic."""

    id: int
    category: str
    amount_cents: int
    ordered_at: str
    published_at: str


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the topic of totals."""

    since: str
    category: str
    orders: int
    amount_cents: int

    @property
    def window(self) -> Window:
        """Which window it is about."""
        return self.since, self.category


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Which message was put aside, from the header that tells its story."""

    original_partition: int = 0
    original_offset: int = 0


_clean: Final = msgspec.json.Decoder(CleanOrder).decode
_origin: Final = msgspec.json.Decoder(Origin).decode
_invoice: Final = msgspec.json.Decoder(Invoice).decode
read_total: Final = msgspec.json.Decoder(Total).decode


class Traces(msgspec.Struct, kw_only=True):
    """When orders were published, invoiced and clean."""

    orders: Trace
    invoices: Trace
    clean: Trace


def read_back(
    client: Client, *, acknowledged: int, lake: Path, has_pipeline: bool, live_us: int
) -> tuple[Books, Traces]:
    """Return the books, and how fast it all went."""
    books = Books(acknowledged=acknowledged, has_pipeline=has_pipeline)
    traces = Traces(
        orders=Trace(live_us=live_us), invoices=Trace(live_us=live_us), clean=Trace(live_us=live_us)
    )
    for message in client.read(topics.ORDERS):
        time_us = message.timestamp_us
        books.intake.add(
            message.partition, message.offset, timestamp_us=time_us, value=message.value
        )
        traces.orders.add(published_us=time_us, arrived_us=time_us)
    _read_group(client, books, traces)
    if has_pipeline:
        _read_pipeline(client, books, traces)
        _read_lake(lake, books)
    return books, traces


def _read_group(client: Client, books: Books, traces: Traces) -> None:
    for message in client.read(topics.INVOICES):
        invoice = _invoice(message.value or b"")
        books.invoices.add(invoice.order)
        traces.invoices.add(published_us=invoice.published_us, arrived_us=message.timestamp_us)
    _read_aside(client, topics.DEAD, books.dead)
    books.unsettled = sum(part.lag for part in client.group_progress(GROUP))


def _read_aside(client: Client, topic: str, aside: Aside) -> None:
    try:
        for message in client.read(topic):
            origin = _origin((message.headers or {})[STORY])
            aside.add(origin.original_partition, origin.original_offset)
    except TopicNotFoundError:
        return


def _read_pipeline(client: Client, books: Books, traces: Traces) -> None:
    for message in client.read(topics.CLEAN):
        order = _clean(message.value or b"")
        books.clean.add(
            order.id,
            amount_cents=order.amount_cents,
            window=(window_of(read_time_us(order.ordered_at)), order.category),
        )
        traces.clean.add(
            published_us=read_time_us(order.published_at), arrived_us=message.timestamp_us
        )
    _read_aside(client, topics.QUARANTINE, books.quarantine)
    for message in client.read(topics.TOTALS):
        total = read_total(message.value or b"")
        books.totals.add(total.window, orders=total.orders, amount_cents=total.amount_cents)


def _read_lake(path: Path, books: Books) -> None:
    for file in Lake(path).files():
        table = pq.read_table(file, columns=["id", "amount_cents"], partitioning=None)
        for number, cents in zip(*(column.to_pylist() for column in table.columns), strict=True):
            books.lake.add(number, amount_cents=cents)


def window_of(time_us: int) -> str:
    """Return when the window of a time begins, as the topic of totals has it."""
    whole = write_time_us(time_us // WINDOW_US * WINDOW_US)
    return f"{whole.partition('.')[0]}Z"
