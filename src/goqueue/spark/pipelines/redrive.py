"""Sending dead letters back that a query picked: just those, by the broker's own redrive.

The query runs over the view ``letters`` and returns the columns dlq, partition and offset of what
is meant. What went back before, or was thrown away, does not go again: the broker knows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import GoQueueError
from goqueue.base.limits import REDRIVE_RUNS_MAX
from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.failure import brief
from goqueue.spark.pipelines.letters import VIEW, letters
from goqueue.spark.pipelines.problems import PipelineError, Problem

if TYPE_CHECKING:
    import goqueue
    from goqueue.wire.dlq_calls import RedriveState

NEEDED: Final = ("dlq", "partition", "offset")
PICKED_MAX: Final = 1_000_000
"""Dead letters one query may pick: they are gathered on the driver."""

Places = dict[int, list[int]]


class RedriveFailedError(GoQueueError):
    """The broker gave a redrive up."""

    code = "redrive_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What became of the letters of one topic that were picked."""

    dlq: str
    picked: int
    moved: int
    skipped: int
    """Went back too often already."""
    gone: int
    """Went back or were purged before."""


def pick(around: Surroundings, dlqs: Sequence[str], sql: str) -> dict[str, Places]:
    """Return the places of the dead letters a query picks, by topic of dead letters."""
    letters(around, dlqs).createOrReplaceTempView(VIEW)
    try:
        picked = around.spark.sql(sql)
        there = {name.lower() for name in picked.columns}
    except Exception as error:
        raise PipelineError(
            [Problem(path="sql", message=brief(error))], name="the query"
        ) from error
    missing = [name for name in NEEDED if name not in there]
    if missing:
        raise _wrong(f"does not return {', '.join(missing)}", "SELECT * FROM letters WHERE … does")
    rows = picked.select(*NEEDED).distinct().limit(PICKED_MAX + 1).collect()
    if len(rows) > PICKED_MAX:
        raise _wrong(f"picks more than {PICKED_MAX:,} dead letters")
    found: dict[str, Places] = {}
    for dlq, partition, offset in rows:
        found.setdefault(str(dlq), {}).setdefault(int(partition), []).append(int(offset))
    return {dlq: found[dlq] for dlq in sorted(found)}


def _wrong(message: str, hint: str = "") -> PipelineError:
    return PipelineError([Problem(path="sql", message=message, hint=hint)], name="the query")


def portions(places: Mapping[int, Sequence[int]], *, runs_max: int) -> Iterator[Places]:
    """Yield places in portions of at most so many runs each."""
    portion: Places = {}
    room = runs_max
    for partition, offsets in sorted(places.items()):
        # Neighbours are as far from their place in the row as one another.
        numbered = enumerate(sorted(set(offsets)))
        for _, run in groupby(numbered, lambda one: one[1] - one[0]):
            if not room:
                yield portion
                portion, room = {}, runs_max
            portion.setdefault(partition, []).extend(offset for _, offset in run)
            room -= 1
    if portion:
        yield portion


def preview(
    client: "goqueue.Client", picked: Mapping[str, Places], *, max_redrives: int
) -> list[Redriven]:
    """Return what a redrive of the picked letters would do."""
    found: list[Redriven] = []
    for dlq, places in picked.items():
        moved = skipped = 0
        for portion in portions(places, runs_max=REDRIVE_RUNS_MAX):
            trial = client.dlq_preview(dlq, max_redrives=max_redrives, places=portion)
            moved += trial.matched
            skipped += trial.skipped
        found.append(_told(dlq, places, moved=moved, skipped=skipped))
    return found


def redrive(
    client: "goqueue.Client",
    picked: Mapping[str, Places],
    *,
    target: str | None = None,
    rate: int = 0,
    max_redrives: int,
    by: str = "",
    watch: "Callable[[RedriveState], None] | None" = None,
) -> list[Redriven]:
    """Send the picked letters back; the broker goes on with a portion it began in any case."""
    found: list[Redriven] = []
    for dlq, places in picked.items():
        moved = skipped = 0
        for portion in portions(places, runs_max=REDRIVE_RUNS_MAX):
            state = client.dlq_redrive(
                dlq,
                target=target,
                rate=rate,
                max_redrives=max_redrives,
                by=by,
                on_progress=watch,
                places=portion,
            )
            if state.state == "failed":
                raise RedriveFailedError(f"{dlq}: {state.error}")
            moved += state.moved
            skipped += state.skipped
        found.append(_told(dlq, places, moved=moved, skipped=skipped))
    return found


def _told(dlq: str, places: Mapping[int, Sequence[int]], *, moved: int, skipped: int) -> Redriven:
    picked = sum(map(len, places.values()))
    gone = picked - moved - skipped
    return Redriven(dlq=dlq, picked=picked, moved=moved, skipped=skipped, gone=gone)
