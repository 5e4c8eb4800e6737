"""``goqueue serve --processes N``: several nodes of one cluster on this machine, kept running.

A Python process uses one core. With several of them the partitions of topics are led by different
processes, and clients talk to the leader of each. A topic has one replica unless it asks for more:
all of them would be on the same disk. A process that ends is started again.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from goqueue.base.units import SECOND_MS
from goqueue.cli.failure import FAILED, Failure
from goqueue.cli.output import remark
from goqueue.config.address import Address, parse_address
from goqueue.config.model import BrokerConfig

RESTART_SECONDS: Final = 0.2
RESTART_SECONDS_MAX: Final = 5.0
SETTLED_SECONDS: Final = 10.0
"""A process that ran for so long is started again at once when it ends."""

STOP_GRACE_MS: Final = 15 * SECOND_MS
"""Time beyond ``shutdown_timeout`` for a node to stop before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCommand:
    """One process: its name, where clients reach it, and how it is started."""

    node: str
    native: str
    http: str
    arguments: Sequence[str]


def node_commands(
    config: BrokerConfig, processes: int, assignments: Sequence[str] = ()
) -> list[NodeCommand]:
    """Return how to start each process: ports count up from those of the settings."""
    names = [f"{config.node_id}-{number + 1}" for number in range(processes)]
    internal = [_port_of(config.cluster_listener, number) for number in range(processes)]
    peers = ",".join(f"{name}@{address}" for name, address in zip(names, internal, strict=True))
    commands: list[NodeCommand] = []
    for number, name in enumerate(names):
        native = _port_of(config.native_listener, number)
        http = _port_of(config.http_listener, number)
        own = {
            "cluster.enabled": "true",
            "cluster.peers": peers,
            "listeners.internal": internal[number],
            "cluster.replication_factor": str(config.cluster_replication_factor or 1),
        }
        arguments = ["--data", str(Path(config.data_dir) / name), "--node-id", name]
        arguments += ["--native", native, "--http", http]
        for assignment in (*assignments, *(f"{key}={value}" for key, value in own.items())):
            arguments += ["--set", assignment]
        commands.append(NodeCommand(node=name, native=native, http=http, arguments=arguments))
    return commands


def _port_of(listener: str, number: int) -> str:
    address = parse_address(listener)
    if not address.port:
        raise Failure(
            f"{listener}: with several processes ports count up from one that is given",
            code="usage",
            hint="--native 127.0.0.1:7070 --http 127.0.0.1:8080",
        )
    return str(Address(address.host, address.port + number))


class Supervisor:
    """Starts processes and starts them again when they end, until it is told to stop."""

    def __init__(
        self, commands: Sequence[NodeCommand], shared: Sequence[str], *, stop_ms: int
    ) -> None:
        self._commands = commands
        self._shared = shared
        self._stop_seconds = stop_ms / SECOND_MS
        self._stopping = asyncio.Event()
        self._is_late = False

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self._commands)} processes>"

    async def run(self) -> None:
        """Keep all processes running until SIGINT or SIGTERM; then stop them, and return."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        await asyncio.gather(*(self._keep(command) for command in self._commands))
        if self._is_late:
            raise Failure(
                "a process did not stop in time and was killed; nothing acknowledged is lost",
                code="stop_timeout",
                exit_code=FAILED,
            )

    async def _keep(self, command: NodeCommand) -> None:
        pause_s = RESTART_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            process = await self._start(command)
            ended = loop.create_task(process.wait())
            wish = loop.create_task(self._stopping.wait())
            await asyncio.wait((ended, wish), return_when=asyncio.FIRST_COMPLETED)
            wish.cancel()
            if self._stopping.is_set():
                await self._end(process, ended)
                return
            pause_s = RESTART_SECONDS if loop.time() - began > SETTLED_SECONDS else pause_s
            remark(f"{command.node} ended with status {process.returncode}; starting it again")
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, RESTART_SECONDS_MAX)

    async def _start(self, command: NodeCommand) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C reaches the supervisor alone, which stops all in order.
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "goqueue",
            "serve",
            *command.arguments,
            *self._shared,
            env={**os.environ},
            start_new_session=True,
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _end(self, process: asyncio.subprocess.Process, ended: "asyncio.Task[int]") -> None:
        if process.returncode is None:
            process.terminate()
        done, _ = await asyncio.wait((ended,), timeout=self._stop_seconds)
        if not done:
            self._is_late = True
            process.kill()
            await ended


def supervise(
    config: BrokerConfig,
    processes: int,
    *,
    assignments: Sequence[str],
    shared: Sequence[str],
) -> None:
    """Run a broker as several processes until Ctrl-C; ``shared`` are options all of them get."""
    commands = node_commands(config, processes, assignments)
    remark(f"{processes} processes; connect to {','.join(one.native for one in commands)}")
    stop_ms = config.shutdown_timeout_ms + config.cluster_leave_ms + STOP_GRACE_MS
    asyncio.run(Supervisor(commands, shared, stop_ms=stop_ms).run())
