"""The folder of one pipeline: its checkpoints, who runs it, how it stands, and the wish to stop.

ROOT/NAME/state.json        how it stands, written anew every second
ROOT/NAME/lock              held by the process that runs it, and says which one that is
ROOT/NAME/stop              somebody wishes it to stop
ROOT/NAME/sinks/SINK/       the checkpoint of a query with one output
ROOT/NAME/shared/PART-1/    the checkpoint of a query with several, and which these are
"""

import fcntl
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.base.units import MiB
from goqueue.spark.pipelines.atomic import write_atomically
from goqueue.spark.pipelines.shared_state import SharedReadings

DEFAULT_ROOT: Final = "pipelines-state"
STATE_BYTES_MAX: Final = 4 * MiB
LOCK_ATTEMPTS: Final = 5
LOCK_PAUSE_S: Final = 0.05
LOCK_CHARACTERS_MAX: Final = 500


class PipelineRunningError(GoQueueError):
    """Another process runs this pipeline."""

    code = "pipeline_running"


class PipelineUnknownError(GoQueueError):
    """No pipeline of this name has run here."""

    code = "pipeline_unknown"


class QueryState(msgspec.Struct, kw_only=True, omit_defaults=False):
    """How one query stands."""

    state: str = "starting"
    rows: int = 0
    rows_per_second: float = 0.0
    batches: int = 0
    batch_ms: int = 0
    lag_rows: int | None = None
    late_rows: int = 0
    error: str = ""


class RunState(msgspec.Struct, kw_only=True):
    """How a pipeline stands, as it is kept in ``state.json``."""

    name: str
    file: str = ""
    mode: str = ""
    state: str = "running"
    pid: int = 0
    host: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    error: str = ""
    queries: dict[str, QueryState] = {}
    violations: dict[str, int] = {}


class StateFolder:
    """Everything a pipeline leaves on the disk but its results."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.path = root / name

    def __repr__(self) -> str:
        return f"<StateFolder {self.path}>"

    def sink(self, name: str) -> Path:
        """Return the folder of a sink's query."""
        return self.path / "sinks" / name

    def checkpoint(self, name: str) -> Path:
        """Return where Spark keeps how far a query is."""
        return self.sink(name) / "checkpoint"

    def exists(self) -> bool:
        """Return True if the pipeline has ever run here."""
        return self.path.is_dir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one who runs it. The system lets go of the lock when the process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a") as file:
            for _ in range(LOCK_ATTEMPTS):
                # Whoever looks at the state holds the lock for a moment, too.
                if _try_lock(file):
                    break
                threading.Event().wait(LOCK_PAUSE_S)
            else:
                raise PipelineRunningError(self._who_runs())
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {_now()}\n")
            file.flush()
            self.clear_stop()
            yield

    def _who_runs(self) -> str:
        with (self.path / "lock").open(errors="replace") as file:
            who = file.read(LOCK_CHARACTERS_MAX).strip()
        told = f": {who}" if who else ""
        return f"{self.name} runs already{told}"

    def is_running(self) -> bool:
        """Return True if some process holds the lock."""
        try:
            with (self.path / "lock").open("r") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def write(self, state: RunState) -> None:
        """Put how it stands in the place of what was said before, at once or not at all."""
        write_atomically(self.path / "state.json", msgspec.json.format(msgspec.json.encode(state)))

    def read(self) -> RunState:
        """Return how it stands; one whose process is gone without a word was killed."""
        try:
            with (self.path / "state.json").open("rb") as file:
                content = file.read(STATE_BYTES_MAX)
            state = msgspec.json.decode(content, type=RunState)
        except FileNotFoundError as error:
            raise PipelineUnknownError(f"no pipeline {self.name} has run in {self.root}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GoQueueError(f"{self.path / 'state.json'} cannot be read: {error}") from error
        if state.state == "running" and not self.is_running():
            state.state = "killed"
        return state

    def ask_to_stop(self) -> None:
        """Tell whoever runs it to stop after the batch under way."""
        (self.path / "stop").touch()

    def is_asked_to_stop(self) -> bool:
        """Return True if somebody wishes it to stop."""
        return (self.path / "stop").exists()

    def clear_stop(self) -> None:
        """Forget the wish."""
        (self.path / "stop").unlink(missing_ok=True)

    def reset(self, sink: str | None = None) -> None:
        """Forget how far it is, so that the next run begins anew."""
        with self.lock():
            folder = self.path / "sinks" if sink is None else self.sink(sink)
            if folder.is_dir():
                shutil.rmtree(folder)
            if sink is None:
                self.shared.clear()
            else:
                self.shared.forget(sink)

    def sinks(self) -> list[str]:
        """Return the outputs that have a checkpoint, of their own or with others."""
        shared = [one for members in self.shared.all().values() for one in members]
        return sorted({*self.alone(), *shared})

    def alone(self) -> list[str]:
        """Return the outputs that have a checkpoint of their own."""
        folder = self.path / "sinks"
        return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []

    @property
    def shared(self) -> SharedReadings:
        """The readings that several outputs share."""
        return SharedReadings(self.path)


def _now() -> str:
    return f"{datetime.now(UTC):%F %T} UTC"


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def pipelines_in(root: Path) -> list[StateFolder]:
    """Return the pipelines that have run below a folder."""
    if not root.is_dir():
        return []
    return [
        StateFolder(root, one.name) for one in sorted(root.iterdir()) if (one / "lock").is_file()
    ]


def plain(state: RunState) -> dict[str, Any]:
    """Return a state as plain values."""
    values: dict[str, Any] = msgspec.to_builtins(state)
    return values
