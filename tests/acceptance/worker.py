"""A consumer in a process of its own, to be killed: prints what it gets, and acks it or not.

``python -m tests.acceptance.worker ADDRESS GROUP TOPIC ack|hold OPTIONS-AS-JSON``
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import goqueue

ROOT = Path(__file__).parents[2]
JOINED = "joined"


def main(address: str, group: str, topic: str, deed: str, options: str) -> None:
    """Consume until killed."""
    with (
        goqueue.connect(address) as client,
        client.consumer(group, [topic], **json.loads(options)) as consumer,
    ):
        print(JOINED, consumer.member_id, flush=True)  # noqa: T201 - read by a test
        for message in consumer:
            print((message.value or b"").decode(), flush=True)  # noqa: T201 - read by a test
            if deed == "ack":
                message.ack()


class WorkerProcess:
    """Starts a worker and reads what it prints."""

    def __init__(self, address: str, group: str, topic: str, deed: str, **options: object) -> None:
        self._changed = threading.Condition()
        self.seen: dict[str, float] = {}
        """Values, and when each was first printed."""
        self.member_id = ""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.acceptance.worker"),
                *(address, group, topic, deed, json.dumps(options)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                word, _, rest = line.strip().partition(" ")
                if word == JOINED:
                    self.member_id = rest
                else:
                    self.seen.setdefault(word, time.monotonic())
                self._changed.notify_all()

    def wait_until_joined(self, seconds: float) -> None:
        """Return when it is a member."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.member_id, seconds), "it does not join"

    def wait_for_some(self, count: int, seconds: float) -> None:
        """Return when it has got so many messages."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, seconds), "too few"

    def wait_for(self, values: Iterable[str], seconds: float) -> float:
        """Return when the last of some values was printed."""
        wanted = set(values)
        with self._changed:
            arrived = self._changed.wait_for(lambda: wanted <= self.seen.keys(), seconds)
            assert arrived, f"missing: {sorted(wanted - self.seen.keys())[:5]}"
            return max((self.seen[value] for value in wanted), default=0.0)

    def kill(self) -> float:
        """End it as SIGKILL does; return when."""
        killed_at = time.monotonic()
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return killed_at


if __name__ == "__main__":
    main(*sys.argv[1:])
