"""The life of a broker that ``goqueue serve`` started: listen, wait for a signal, stop cleanly."""

import asyncio
import contextlib
import errno
import gc
import os
import resource
import shutil
import signal
import socket
import sys
from typing import Final, NoReturn

import uvloop
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.units import SECOND_MS
from goqueue.cli.contexts import DEFAULT_SERVER
from goqueue.cli.failure import FAILED, Failure
from goqueue.cli.heap import Heap, heap_of_process
from goqueue.cli.without_pandas import leave_out_pandas
from goqueue.config.address import parse_address
from goqueue.config.load import Loaded
from goqueue.config.model import BrokerConfig
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import configure_logging, get_logger
from goqueue.server import Server, make_server

STOP_GRACE_MS: Final = 10 * SECOND_MS
"""Time for the last sync beyond what is waited for requests under way."""

log = get_logger("goqueue.serve")


def run_broker(loaded: Loaded, *, is_terminal: bool) -> None:
    """Serve until a signal comes; raise Failure if the broker cannot start or stop."""
    leave_out_pandas()
    config = loaded.config
    configure_logging(level=config.log_level, style=config.log_format)
    _raise_file_limit()
    heap = heap_of_process()
    heap.limit_arenas(os.environ)
    if not is_terminal:
        for warning in loaded.warnings:
            log.warning(LogEvent.CONFIGURATION_WARNING, warning=warning)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, heap, is_terminal=is_terminal))
    finally:
        gc.enable()


async def _serve(config: BrokerConfig, heap: Heap, *, is_terminal: bool) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stopping.set)
    # Not one of the loop's handlers: a loop that closes takes those away, and a supervisor that
    # repeats itself just then would kill a broker that has stopped cleanly.
    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(stopping.set))
    server = make_server(config)
    server.on_failure = stopping.set
    try:
        await server.bind()
    except OSError as error:
        raise _cannot_listen(config, error) from error
    if not await _started(server, stopping):
        return
    log.info(
        LogEvent.LISTENING,
        native=server.native_address,
        http=server.http_address,
        **({"cluster": server.cluster_address} if server.cluster_address else {}),
        data_dir=config.data_dir,
        node_id=config.node_id,
        pid=os.getpid(),
    )
    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.enable()
    if is_terminal:
        _welcome(config, native=server.native_address, http=server.http_address)
    trimming = loop.create_task(heap.trim_regularly())
    failing = loop.create_task(server.failed())
    failing.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    trimming.cancel()
    if failing.done():
        await _give_up(server, failing.result())
    failing.cancel()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Somebody who presses Ctrl-C again means it; what was acknowledged is on disk already.
    loop.remove_signal_handler(signal.SIGINT)
    log.info(LogEvent.BROKER_STOPPING, again="a second Ctrl-C stops at once")
    try:
        async with asyncio.timeout((config.shutdown_timeout_ms + STOP_GRACE_MS) / SECOND_MS):
            await server.stop()
    except TimeoutError as error:
        raise Failure(
            "the broker did not stop in time and was left as it was; nothing acknowledged is lost",
            code="stop_timeout",
            exit_code=FAILED,
        ) from error
    if server.failure is not None:
        raise server.failure


async def _give_up(server: Server, error: GoQueueError) -> NoReturn:
    """End at once, so that others take over at once; a new process may find the disk mended."""
    log.error(LogEvent.NODE_FAILED, error=error.message)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_GRACE_MS / SECOND_MS):
            await server.abandon()
    raise Failure(f"the node cannot go on: {error.message}", code=error.code, exit_code=FAILED)


async def _started(server: Server, stopping: asyncio.Event) -> bool:
    """Start the broker; return False if a signal came while it waited for its cluster."""
    loop = asyncio.get_running_loop()
    wish = loop.create_task(stopping.wait())
    wish.add_done_callback(lambda done: None if done.cancelled() else server.interrupt())
    try:
        await server.start()
    except ShuttingDownError:
        log.info(LogEvent.BROKER_STOPPING, again="it was still waiting for its cluster")
        return False
    finally:
        wish.cancel()
    return True


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: every partition and client needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _cannot_listen(config: BrokerConfig, error: OSError) -> Failure:
    for key, flag, text in (
        ("listeners.native", "--native", config.native_listener),
        ("listeners.http", "--http", config.http_listener),
        *(
            [("listeners.internal", "--set listeners.internal", config.cluster_listener)]
            if config.cluster_enabled
            else []
        ),
    ):
        reason = _why_not(text)
        if reason:
            return Failure(
                f"cannot listen on {text} ({key}): {reason}",
                code="cannot_listen",
                hint=f"is another broker running? {flag} 127.0.0.1:0 takes a free port",
            )
    return Failure(f"cannot listen: {(error.strerror or str(error)).lower()}", code="cannot_listen")


def _why_not(text: str) -> str:
    """Return why an address cannot be listened on, or nothing if it can."""
    address = parse_address(text)
    try:
        family = socket.getaddrinfo(address.host or None, address.port, flags=socket.AI_PASSIVE)[0][
            0
        ]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
            probe.listen(1)
    except socket.gaierror:
        return f"no machine is called {address.host}"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "the port is in use"
        return (error.strerror or str(error)).lower()
    return ""


def _welcome(config: BrokerConfig, *, native: str, http: str) -> None:
    """Tell a person what runs where, and what to try next."""
    url = f"http://{http}"
    where = Table.grid(padding=(0, 2))
    for name, place, purpose in (
        ("native", native, "SDK and command line"),
        ("http", url, f"API; documented at {url}/docs"),
        ("data", config.data_dir, "everything that is stored"),
    ):
        where.add_row(name, Text(place, "bold"), purpose)
    program = "goqueue" if shutil.which("goqueue") else sys.argv[0]
    server = "" if native == DEFAULT_SERVER else f" -s {native}"
    body = Table.grid()
    body.add_row(where)
    body.add_row("\nTry in another terminal:")
    for line in (
        f"  {program} topic create orders{server}",
        f"  echo hello | {program} produce orders{server}",
        f"  {program} consume orders --follow{server}",
    ):
        body.add_row(Text(line, "cyan"))
    body.add_row("\nCtrl-C stops the broker.")
    title = Text(f"GoQueue broker {config.node_id}")
    Console(file=sys.stderr).print(Panel(body, title=title, expand=False, padding=(1, 2)))
