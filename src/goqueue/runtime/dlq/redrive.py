"""Dead letters in the hands of people: listing, peeking, sending back and throwing away.

A job (a redrive or a purge) is kept in the state log and goes on after a restart; what it moved is
known to the shelves, so nothing goes back twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from goqueue.base.errors import (
    InvalidRequestError,
    NotCoordinatorError,
    RedriveNotFoundError,
    ShuttingDownError,
    TopicNotFoundError,
)
from goqueue.base.ids import TopicName
from goqueue.base.names import is_internal
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.names import dlq_of, is_dlq, source_of
from goqueue.core.dlq.redrive import Event, Job, Order, RedriveBook, nothing_to_do
from goqueue.observability.dlq_metrics import DlqMeter
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.dlq.dead_letter_index import DeadLetterIndex, DeadLetterIndexes
from goqueue.runtime.dlq.dead_letters import Sleep, Topics, sleep_ms
from goqueue.runtime.dlq.letters import DeadLetterRow, Search
from goqueue.runtime.dlq.moves import Mover
from goqueue.runtime.dlq.orders import checked_order
from goqueue.runtime.dlq.redrive_run import HostedBook, Run
from goqueue.runtime.dlq.reports import DeadLetterPage, RedriveProgress, Summary, Trial, oldest_us
from goqueue.runtime.dlq.shelf_steps import ShelfSteps
from goqueue.runtime.dlq.shelving import LedShelving, OwnShelving, Shelving
from goqueue.runtime.forwarding import Forwarding
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import MachineHost, StateJournal, StatePart, forget, homes_in

KEY_PREFIX: Final = "redrive/"

log = get_logger("goqueue.dlq")


class Redrives:
    """Everything people do with dead letters. Runs in the broker's event loop."""

    def __init__(
        self,
        topics: Topics,
        names: Mapping[TopicName, Topic],
        *,
        state: StateJournal,
        mover: Mover,
        clock: Clock,
        meter: DlqMeter,
        sleep: Sleep = sleep_ms,
    ) -> None:
        self._topics = topics
        self._names = names
        self._state = state
        self._clock = clock
        self._meter = meter
        self.sleep = sleep
        self.shelves = DeadLetterIndexes(names, state=state)
        self.steps = ShelfSteps(
            self.shelves, names, topics=topics, mover=mover, clock=clock, meter=meter
        )
        self.led: LedShelving | None = None
        """The leaders of a cluster; None where every partition is this broker's."""
        self.shelving: Shelving = OwnShelving(self.steps)
        self._books: dict[TopicName, tuple[Topic, HostedBook]] = {}
        self._runs: dict[TopicName, tuple[Run, asyncio.Task[None]]] = {}
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Redrives: {len(self._runs)} under way>"

    # Life.

    def lead(self, forwarding: Forwarding | None, state_topic: str) -> None:
        """Work with the leaders of a cluster, if the broker is a node of one."""
        if forwarding is not None:
            self.shelving = self.led = LedShelving(
                forwarding, self._names, self.steps, self._state, state_topic=state_topic
            )

    def load(self, part: StatePart) -> None:
        """Bring back the jobs of a part; ``resume`` goes on with them."""
        self.shelves.load(part)
        for key in self._state.keys(KEY_PREFIX, part):
            name, _, life = key.removeprefix(KEY_PREFIX).partition("/")
            topic = self._names.get(TopicName(name))
            if topic is None or str(topic.record.created_ms) != life:
                forget(self._state, key, home=name)
            else:
                self._book(topic)

    def resume(self, part: StatePart) -> None:
        """Go on with the jobs of a part that were under way."""
        for name in list(homes_in(self._state, part, self._books)):
            topic, hosted = self._books[name]
            job = hosted.book.active
            if job is not None:
                log.info(LogEvent.REDRIVE_RESUMED, dlq=name, redrive=job.id)
                self._begin(topic, job)

    def unload(self, part: StatePart) -> list[asyncio.Task[None]]:
        """Let go of the jobs of a part; return what is to be waited for."""
        for name in list(homes_in(self._state, part, self._books)):
            self._books.pop(name)[1].host.close()
        self.shelves.unload(part)
        gone = [self._runs.pop(one)[1] for one in [*homes_in(self._state, part, self._runs)]]
        for task in gone:
            task.cancel()
        return gone

    def ends(self, topic: Topic) -> list[int]:
        """Return up to which offsets of a topic of dead letters the latest job looks."""
        jobs = self._book(topic).book.jobs
        return max(jobs, key=lambda job: job.id).ends if jobs else []

    async def stop(self) -> None:
        """Leave everything where it is; the next start goes on."""
        self._is_stopped = True
        tasks = [task for _, task in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, topic: Topic) -> None:
        """Take notice that a topic is gone."""
        name = topic.record.name
        self._meter.forget(name)
        if not is_dlq(name):
            return
        run = self._runs.pop(name, None)
        if run is not None:
            run[1].cancel()
        self.shelves.forget(topic)
        self.steps.forget(topic)
        self.shelving.forget(topic)
        known = self._books.pop(name, None)
        if known is not None:
            known[1].host.forget_soon()

    def _book(self, topic: Topic) -> HostedBook:
        name = topic.record.name
        known = self._books.get(name)
        if known is None or known[0] is not topic:
            book = RedriveBook()
            key = f"{KEY_PREFIX}{name}/{topic.record.created_ms}"
            host = MachineHost[Event](self._state, key, home=name, machine=book)
            host.load(Event)
            known = (topic, HostedBook(topic, host, book, self.shelving))
            self._books[name] = known
        return known[1]

    # Looking.

    def find(self, name: str) -> Topic | None:
        """Return the dead letters of a topic, by its name or theirs.

        None where nothing of the topic has died yet; a topic that does not exist is an error.
        """
        if is_internal(name):
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        if is_dlq(name):
            return self._topics.topic(name)
        try:
            return self._topics.topic(dlq_of(name))
        except TopicNotFoundError:
            self._topics.topic(name)
            return None

    def _find_with_jobs(self, name: str, job_id: int) -> Topic:
        """Return the dead letters of a topic; without any there is no such job either."""
        topic = self.find(name)
        if topic is None:
            raise RedriveNotFoundError(f"there is no redrive {job_id}")
        return topic

    async def summaries(self) -> list[Summary]:
        """Return every topic of dead letters."""
        found: list[Summary] = []
        for name in [one for one in sorted(filter(is_dlq, self._names)) if not is_internal(one)]:
            topic = self._names.get(name)
            if topic is None:
                continue
            try:
                active = self._book(topic).book.active
            except NotCoordinatorError:
                active = None  # the node that has the jobs names it
            oldest = [await oldest_us(shelf) for shelf in self.shelves.led(topic)]
            found.append(
                Summary(
                    name,
                    source_of(name, self._names),
                    self.shelves.depth(topic),
                    min((one for one in oldest if one is not None), default=None),
                    active,
                )
            )
        return found

    async def peek(
        self,
        name: str,
        wanted: Filter,
        *,
        limit: int,
        skip: int = 0,
        partition: int | None = None,
        from_offset: int = 0,
        bytes_max: int,
    ) -> DeadLetterPage:
        """Return dead letters without taking them, in the order of partitions and offsets."""
        topic = self.find(name)
        if partition is not None:
            (topic or self._topics.topic(name)).partition(partition)
        elif from_offset:
            raise InvalidRequestError("offset: needs a partition")
        if topic is None:
            return DeadLetterPage([], 0, is_cut=False)
        if partition is None:
            shelves: Sequence[DeadLetterIndex] = self.shelves.led(topic)
        else:
            shelves = [self.shelves.at(topic, topic.partition(partition))]
        search = Search(shelves, wanted, from_offset=from_offset)
        letters: list[DeadLetterRow] = []
        size = skipped = 0
        async with aclosing(search.letters()) as found:
            async for letter in found:
                if skipped < skip:
                    skipped += 1
                    continue
                size += len(letter.message.value or b"")
                if len(letters) == limit or (letters and size > bytes_max):
                    return DeadLetterPage(
                        letters, self.shelves.depth(topic), is_cut=True, skipped=skipped
                    )
                letters.append(letter)
        return DeadLetterPage(letters, self.shelves.depth(topic), search.is_cut, skipped)

    async def try_out(self, name: str, order: Order) -> Trial:
        """Return what a job would do, and do nothing."""
        topic = self.find(name)
        order = checked_order(name, order, self._topics, self._names)
        if topic is None:
            return Trial(0, 0, 0, [], is_cut=False)
        return await self.shelving.trial(topic, order)

    # Doing.

    async def start(self, name: str, order: Order) -> RedriveProgress:
        """Begin a job on what is there now; answer when it will survive a crash.

        Where nothing has died there is nothing to do and to keep: the job is over and has no id.
        """
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        topic = self.find(name)
        order = checked_order(name, order, self._topics, self._names)
        if topic is None:
            return RedriveProgress(nothing_to_do(order, now_ms=self._clock.now_ms()), 0, "")
        counts = await self._book(topic).count()
        # From here on nothing awaits: two jobs may have been asked for at once.
        hosted = self._book(topic)
        decision = hosted.book.start(
            order,
            ends=[one.end_offset for one in counts],
            left_before=[one.left[order.kind] for one in counts],
            total=sum(one.depth for one in counts),
            now_ms=self._clock.now_ms(),
        )
        hosted.host.commit(decision.events)
        job = hosted.book.get(decision.reply)
        self._begin(topic, job)
        log.info(
            LogEvent.REDRIVE_STARTED,
            kind=order.kind,
            dlq=topic.record.name,
            redrive=job.id,
            target=order.target,
            by=order.by,
            filter=msgspec.structs.replace(order.filter, places=None),
            named=order.filter.named,
            dead_letters=job.total,
        )
        await hosted.host.durable()
        return self._progress(topic, job.id)

    def _begin(self, topic: Topic, job: Job) -> None:
        name = topic.record.name
        run = Run(
            self._book(topic),
            job,
            clock=self._clock,
            sleep=self._rest,
        )
        task = asyncio.get_running_loop().create_task(self._run(topic, run, job.id))
        self._runs[name] = (run, task)

    async def _rest(self, duration_ms: int) -> None:
        await self.sleep(duration_ms)

    async def _run(self, topic: Topic, run: Run, job_id: int) -> None:
        name = topic.record.name
        try:
            await run.run()
        except Exception as error:
            # A bug must not leave a job that neither runs nor ends.
            log.exception(LogEvent.REDRIVE_CRASHED, dlq=name, redrive=job_id)
            await run.fail(f"it broke off: {error!r}")
        progress = self._progress(topic, job_id)
        log.info(
            LogEvent.REDRIVE_ENDED,
            kind=progress.job.order.kind,
            dlq=name,
            redrive=job_id,
            state=progress.job.state,
            moved=progress.moved,
            unmatched=progress.job.unmatched,
            skipped=progress.job.skipped,
            by=progress.job.order.by,
        )
        if self._runs.get(name, (None,))[0] is run:
            del self._runs[name]

    async def cancel(self, name: str, job_id: int) -> RedriveProgress:
        """End a job after the batch under way; one that is over stays as it ended."""
        topic = self._find_with_jobs(name, job_id)
        self._book(topic).book.get(job_id)
        active = self._runs.get(topic.record.name)
        if active is not None and self._book(topic).book.get(job_id).is_running:
            run, task = active
            run.cancel()
            await asyncio.wait([task])
        return self._progress(topic, job_id)

    async def refresh(self, name: str) -> None:
        """Hear from all partitions how far the job of a topic is, as far as they answer."""
        topic = self.find(name)
        active = None if topic is None else self._book(topic).book.active
        if topic is not None and active is not None:
            await self.shelving.hear(topic, len(active.left_before))

    def progress(self, name: str, job_id: int) -> RedriveProgress:
        """Return how far a job is."""
        return self._progress(self._find_with_jobs(name, job_id), job_id)

    def history(self, name: str) -> list[RedriveProgress]:
        """Return the jobs of a topic, the latest first."""
        topic = self.find(name)
        if topic is None:
            return []
        return [self._progress(topic, job.id) for job in self._book(topic).book.jobs]

    async def wait(self, name: str) -> None:
        """Return when no job of a topic is under way."""
        topic = self.find(name)
        active = None if topic is None else self._runs.get(topic.record.name)
        if active is not None:
            await asyncio.wait([active[1]])

    def _progress(self, topic: Topic, job_id: int) -> RedriveProgress:
        hosted = self._book(topic)
        job = hosted.book.get(job_id)
        active = self._runs.get(topic.record.name)
        error = active[0].error if active is not None and job.is_running else job.error
        return RedriveProgress(job, hosted.moved(job), error)
