"""The demonstration from its start to its report: what begins when, and what waits for what."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import goqueue
from examples.demo import topics
from examples.demo.billing import GROUP, Billing
from examples.demo.books import Totals
from examples.demo.broker import BrokerProcess
from examples.demo.errors import errors_of_children
from examples.demo.folder import DEFAULT, fresh_folder
from examples.demo.orders import Shop
from examples.demo.picture import draw
from examples.demo.publisher import Publisher
from examples.demo.readback import read_back, read_total
from examples.demo.report import Report, report_of
from examples.demo.sight import Pace, Phase, VisibleFrames, by_category, group_sight, pace
from examples.demo.spark_run import SparkRun, is_behind
from goqueue import Client, Overview
from goqueue.base.errors import GoQueueError, GroupNotFoundError

TICK_S: Final = 0.5
DRAIN_S_MAX: Final = 300.0
ANSWER_S_MAX: Final = 120.0
"""Spark takes all of a small machine while it starts: then the broker has to wait, too."""
RATES_KEPT: Final = 60
ORDERS_MAX: Final = 100_000_000
ORDERS_QUERIES: Final = ("orders.clean_orders", "orders.quarantine_orders")
CLEAN_QUERIES: Final = ("orders.lake", "totals")

Watch = Callable[[VisibleFrames], None]


class DrainError(GoQueueError):
    """What was under way was not finished in time."""

    code = "not_drained"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How to demonstrate."""

    folder: Path = DEFAULT
    seconds: float | None = None
    """How long everything runs together; None until ``stop``."""
    rate: int = 300
    orders_max: int = ORDERS_MAX
    seed: int = 1
    native: str = ""
    http: str = ""
    wants_spark: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    watch: Watch = field(default=lambda _: None)
    tell: Callable[[str], None] = field(default=lambda _: None)
    """Called with each thing worth a line."""


def run_demo(options: DemoOptions) -> Report:
    """Run the demonstration; return its report, or raise what broke it."""
    with fresh_folder(options.folder) as root, errors_of_children(root / "spark.log"):
        broker = BrokerProcess(
            root / "broker", root / "broker.log", native=options.native, http=options.http
        )
        try:
            options.tell(f"broker    {broker.native}, http://{broker.http}/docs")
            options.tell(f"folder    {root}, made anew for each run")
            with goqueue.connect(broker.native, timeout=ANSWER_S_MAX) as client:
                return _Demo(options, root, broker, client).run()
        finally:
            broker.stop()


class _Demo:
    """One run."""

    def __init__(
        self, options: DemoOptions, root: Path, broker: BrokerProcess, client: Client
    ) -> None:
        self._options = options
        self._root = root
        self._broker = broker
        self._client = client
        self._shop = Shop(options.seed)
        self._publisher = Publisher(
            client, topics.ORDERS, self._shop, rate=options.rate, most=options.orders_max
        )
        self._billing = Billing(client, orders=topics.ORDERS, invoices=topics.INVOICES)
        self._spark = (
            SparkRun(root, broker.native, tell=options.tell) if options.wants_spark else None
        )
        self._no_spark = "" if options.wants_spark else "not asked for"
        self._phase = Phase.STARTING
        self._began_s = time.monotonic()
        self._ends_s: float | None = None
        self._live_us = 0
        self._overview: Overview | None = None
        self._pace = Pace()
        self._rates: deque[float] = deque(maxlen=RATES_KEPT)
        self._totals = Totals()
        self._totals_read: dict[int, int] = {}

    def run(self) -> Report:
        """Start everything, let it run, drain it, and look where the rows are."""
        topics.make_topics(self._client)
        with self._at_work():
            self._start_up()
            self._phase = Phase.RUNNING
            began_s = time.monotonic()
            if self._options.seconds is not None:
                self._ends_s = began_s + self._options.seconds
            self._until(self._is_time_over)
            seconds = time.monotonic() - began_s
            self._ends_s = None
            self._phase = Phase.DRAINING
            self._drain()
        self._phase = Phase.CHECKING
        self._look()
        return self._report(seconds)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Start everybody, and see to it that all have ended afterwards."""
        with ExitStack() as ending:
            for one in (self._spark, self._billing, self._publisher):
                if one is not None:
                    ending.callback(one.stop)
                    one.start()
            yield

    def _start_up(self) -> None:
        """Wait until the first rows are through the pipeline, or it is clear that there is none."""
        if self._spark is not None:
            spark = self._spark
            self._options.tell("spark     starting; the first results take a while")
            self._until(lambda: spark.is_up or spark.is_over or self._options.stop.is_set())
            self._no_spark = spark.absent
        if self._no_spark:
            self._options.tell(f"spark     {self._no_spark}: going on without the pipeline")
        self._live_us = time.time_ns() // 1_000

    def _is_time_over(self) -> bool:
        is_late = self._ends_s is not None and time.monotonic() >= self._ends_s
        is_sold_out = self._publisher.sent >= self._options.orders_max
        return is_late or is_sold_out or self._options.stop.is_set()

    # Draining.

    def _drain(self) -> None:
        """Publish no more, and wait until the group and the queries have done everything."""
        self._publisher.stop()
        self._check()
        deadline_s = time.monotonic() + DRAIN_S_MAX
        self._wait_for("the group", self._is_group_done, deadline_s)
        if self._spark is None or self._no_spark:
            return
        # In this order: when the first ones are done, nobody writes to the clean topic any more.
        self._wait_for_queries(self._spark, topics.ORDERS, ORDERS_QUERIES, deadline_s)
        self._wait_for_queries(self._spark, topics.CLEAN, CLEAN_QUERIES, deadline_s)
        self._spark.stop()
        self._check()
        self._no_spark = self._spark.absent

    def _wait_for_queries(
        self, spark: SparkRun, topic: str, queries: Sequence[str], deadline_s: float
    ) -> None:
        ends = self._client.offsets(topic)

        def is_done() -> bool:
            reached = spark.reached()
            is_behind_any = any(is_behind(reached, query, topic, ends) for query in queries)
            return spark.is_over or not is_behind_any

        self._wait_for(", ".join(queries), is_done, deadline_s)

    def _is_group_done(self) -> bool:
        try:
            parts = self._client.group_progress(GROUP)
        except GroupNotFoundError:
            # Asked to end before its first member has joined.
            return False
        return bool(parts) and all(part.lag == 0 for part in parts)

    def _wait_for(self, who: str, is_done: Callable[[], bool], deadline_s: float) -> None:
        self._until(lambda: is_done() or time.monotonic() > deadline_s)
        if not is_done():
            raise DrainError(f"{who}: not done after {DRAIN_S_MAX:.0f} s")

    # Watching.

    def _until(self, is_over: Callable[[], bool]) -> None:
        """Look and let look, until something is so."""
        while not is_over():
            self._check()
            self._look()
            # Not a wait for the event: who sets it is a signal's handler, in this very thread,
            # which would wait for the lock that the wait holds.
            time.sleep(TICK_S)

    def _check(self) -> None:
        """Raise what has broken, if anything has."""
        self._broker.check()
        for one in (self._publisher, self._billing, self._spark):
            if one is not None and one.failure is not None:
                raise one.failure

    def _look(self) -> None:
        now = self._client.overview()
        if self._overview is not None:
            self._pace = pace(self._overview, now)
            self._rates.append(self._pace.published)
        self._overview = now
        self._read_totals()
        self._options.watch(self._sight(now))

    def _read_totals(self) -> None:
        """Take what is new in the topic of totals into account."""
        ends = self._client.offsets(topics.TOTALS)
        start = {partition: self._totals_read.get(partition, 0) for partition in ends}
        if start == ends:
            return
        for message in self._client.read(topics.TOTALS, start=start, end=ends):
            total = read_total(message.value or b"")
            self._totals.add(total.window, orders=total.orders, amount_cents=total.amount_cents)
        self._totals_read = dict(ends)

    def _sight(self, overview: Overview) -> VisibleFrames:
        spark = self._spark
        now_s = time.monotonic()
        return VisibleFrames(
            phase=self._phase,
            seconds=now_s - self._began_s,
            seconds_left=None if self._ends_s is None else max(self._ends_s - now_s, 0.0),
            published=self._publisher.sent,
            published_per_second=self._pace.published,
            kinds={kind.value: count for kind, count in self._shop.tally.items()},
            group=group_sight(overview, self._pace),
            spark=self._no_spark if spark is None or self._no_spark else spark.phase,
            queries={} if spark is None else spark.queries,
            quarantined={} if spark is None else spark.violations,
            totals=by_category(self._totals),
            windows=len({since for since, _ in self._totals.windows}),
            rates=tuple(self._rates),
        )

    # The end.

    def _report(self, seconds: float) -> Report:
        books, traces = read_back(
            self._client,
            acknowledged=self._publisher.acknowledged,
            lake=self._root / "lake",
            has_pipeline=not self._no_spark,
            live_us=self._live_us,
        )
        picture = draw(books, traces, self._root / "report.png", live_us=self._live_us)
        return report_of(
            books,
            traces,
            seconds=seconds,
            seed=self._options.seed,
            folder=self._root,
            kinds={kind.value: count for kind, count in sorted(self._shop.tally.items())},
            no_spark=self._no_spark,
            picture=picture,
        )
