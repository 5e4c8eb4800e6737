"""A real etcd of some members on this machine, to be killed, paused and compacted."""

import asyncio
import json
import shutil
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from goqueue.config.etcd import EtcdConfig, parse_etcd_url
from tests.acceptance.served import free_port

ETCD = shutil.which("etcd")
SECONDS_MAX = 60

needs_etcd = pytest.mark.skipif(
    ETCD is None, reason="there is no etcd on this machine (Debian: apt-get install etcd-server)"
)


class EtcdServers:
    """The members of one etcd, each a process with a directory and two ports."""

    def __init__(
        self, directory: Path, members: int = 3, *options: str, scheme: str = "http"
    ) -> None:
        self._directory = directory
        self._options = options
        self._scheme = scheme
        self._clients = [free_port() for _ in range(members)]
        self._peers = [free_port() for _ in range(members)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for member in range(len(self._clients)):
            self.start(member)
        try:
            if self._scheme == "http":
                self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in list(self._processes):
            self.kill(member)

    @property
    def endpoints(self) -> str:
        """Where the members are, as a setting names them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._clients)

    def config(self, prefix: str = "goqueue", *, only: int | None = None) -> EtcdConfig:
        """Return the setting of a node."""
        endpoints = self.endpoints if only is None else f"127.0.0.1:{self._clients[only]}"
        return parse_etcd_url(f"etcd://{endpoints}/{prefix}")

    def start(self, member: int) -> None:
        """Start a member from its directory."""
        assert ETCD is not None
        client = f"{self._scheme}://127.0.0.1:{self._clients[member]}"
        peer = f"http://127.0.0.1:{self._peers[member]}"
        names = [f"m{at}=http://127.0.0.1:{port}" for at, port in enumerate(self._peers)]
        log = self._directory / f"m{member}.log"
        with log.open("ab") as output:
            self._processes[member] = subprocess.Popen(
                [
                    *(ETCD, "--name", f"m{member}", "--data-dir", self._directory / f"m{member}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", ",".join(names), "--initial-cluster-state", "new"),
                    *("--log-level", "warn", "--logger", "zap"),
                    *self._options,
                ],
                stdout=output,
                stderr=output,
            )

    def kill(self, member: int) -> None:
        """Kill a member."""
        process = self._processes.pop(member)
        process.kill()
        process.wait(SECONDS_MAX)

    def pause(self, member: int) -> None:
        """Stop a member in the middle of whatever it does."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: int) -> None:
        """Let a member go on."""
        self._processes[member].send_signal(signal.SIGCONT)

    def post(self, path: str, request: dict[str, object]) -> dict[str, object]:
        """Ask the first member that runs."""
        member = min(self._processes)
        url = f"http://127.0.0.1:{self._clients[member]}{path}"
        body = json.dumps(request).encode()
        with urllib.request.urlopen(url, body, timeout=5) as reply:
            answer: dict[str, object] = json.load(reply)
            return answer

    async def compact(self, revision: int) -> None:
        """Keep no history before a revision."""
        await asyncio.to_thread(self.post, "/v3/kv/compaction", {"revision": revision})

    @property
    def leader(self) -> int:
        """The member that leads the others."""
        for member, process in self._processes.items():
            assert process.poll() is None, (self._directory / f"m{member}.log").read_text()
            url = f"http://127.0.0.1:{self._clients[member]}/v3/maintenance/status"
            with urllib.request.urlopen(url, b"{}", timeout=5) as reply:
                status = json.load(reply)
            if status["leader"] == status["header"]["member_id"]:
                return member
        raise AssertionError("no member leads")

    def wait(self) -> None:
        """Wait until there is a leader."""
        end = time.monotonic() + SECONDS_MAX
        while True:
            try:
                self.post("/v3/kv/range", {"key": "YQ=="})
            except OSError:
                assert time.monotonic() < end, "etcd does not start"
                # It has ended if it does so within this time.
                with suppress(subprocess.TimeoutExpired):
                    self._processes[min(self._processes)].wait(0.05)
            else:
                return
