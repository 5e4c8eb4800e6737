"""What every command shares: how to print, which broker to ask, how long to wait."""

import inspect
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from goqueue.base.errors import ConnectionLostError
from goqueue.base.units import SECOND_MS, parse_duration_ms
from goqueue.cli.contexts import DEFAULT_SERVER, Contexts, Target, load_contexts
from goqueue.cli.failure import Failure, usage
from goqueue.cli.help_text import keep_brackets, literal
from goqueue.cli.output import Grid, Output, print_data, print_grid
from goqueue.cli.tls_target import SECURE_SCHEME, TlsTarget, is_secure, tls_of_environment
from goqueue.config.address import parse_address

if TYPE_CHECKING:
    import goqueue

DEFAULT_TIMEOUT_MS: Final = 30 * SECOND_MS
SCHEMES: Final = (SECURE_SCHEME, "goqueue://", "tcp://")
ADMIN_PROGRAM: Final = "goqueue-admin"
"""Under this name the variables of the administrator's tool come before the usual ones."""

_PANEL: Final = "Common options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The common options as given, None where they were not."""

    output: Output | None = None
    server: str | None = None
    context: str | None = None
    timeout: str | None = None

    def over(self, other: "Common | None") -> "Common":
        """Return these options, completed by others."""
        if other is None:
            return self
        given = {name: getattr(self, name) for name in _COMMON if getattr(self, name) is not None}
        return replace(other, **given)


class OutputClosedError(Exception):
    """Whoever read our output, such as ``head``, has seen enough."""


class Session:
    """One run of one command."""

    def __init__(self, common: Common, environment: Mapping[str, str], program: str) -> None:
        self._common = common
        self._environment = environment
        self._program = program

    @property
    def output(self) -> Output:
        """How to print the answer."""
        return self._common.output or Output.TABLE

    @property
    def is_table(self) -> bool:
        """Return True if a person reads the answer."""
        return self.output is Output.TABLE

    @property
    def asked_output(self) -> Output | None:
        """How to print the answer, None where nobody said."""
        return self._common.output

    @cached_property
    def contexts(self) -> Contexts:
        """The named brokers of this user."""
        return load_contexts()

    @property
    def address(self) -> str:
        """``host:port`` of the broker to ask, or of nodes of a cluster, with commas between."""
        return native_addresses(self._server())

    @property
    def asked_address(self) -> str | None:
        """``host:port`` of the broker if it was named for this run, None where nobody did."""
        variables = (*self._server_variables(), "GOQUEUE_CONTEXT")
        named = [self._common.server, self._common.context, *map(self._environment.get, variables)]
        return self.address if any(named) else None

    @property
    def api_key(self) -> str | None:
        """What the broker is shown to be let in."""
        return self._api_key()

    @property
    def tls(self) -> TlsTarget | None:
        """How to speak TLS to the broker; None where connections are in the clear."""
        target = self._target()
        known = target.tls if target is not None else TlsTarget()
        asked = tls_of_environment(self._environment).over(known)
        return asked if asked or is_secure(self._server()) else None

    @property
    def timeout_ms(self) -> int:
        """How long to wait for an answer."""
        if self._common.timeout is not None:
            return read_timeout_ms(self._common.timeout, "--timeout")
        target = self._target()
        if target is None or target.timeout is None:
            return DEFAULT_TIMEOUT_MS
        return read_timeout_ms(target.timeout, "timeout of the context")

    def connect(self) -> "goqueue.Client":
        """Return a client of the broker."""
        seconds = self.timeout_ms / SECOND_MS
        knock(self.address, seconds)
        return self.open_client(seconds)

    def open_client(self, seconds: float) -> "goqueue.Client":
        """Return a client of the broker, whose calls take no longer than this."""
        # Arrow takes a quarter of a second to load: only those who talk to a broker wait for it.
        import goqueue  # noqa: PLC0415

        tls = self.tls
        return goqueue.connect(
            self.address,
            timeout=seconds,
            api_key=self._api_key(),
            tls=None if tls is None else tls.options(),
        )

    def show(self, data: object, grid: Grid) -> None:
        """Print an answer: plain values for programs, a table for people."""
        if self.is_table:
            print_grid(grid)
        else:
            print_data(self.output, data)

    def _api_key(self) -> str | None:
        prefixes = ("GOQUEUE_ADMIN_", "GOQUEUE_") if self._is_admin else ("GOQUEUE_",)
        for prefix in prefixes:
            if key := self._environment.get(f"{prefix}API_KEY"):
                return key
        target = self._target()
        return target.api_key if target is not None else None

    def _target(self) -> Target | None:
        """Return the context in force; one that was asked for must exist."""
        name = self._context_name()
        return self.contexts.get(name) if name else self.contexts.targets.get(self.contexts.current)

    def _context_name(self) -> str | None:
        return self._common.context or self._environment.get("GOQUEUE_CONTEXT") or None

    def _server(self) -> str:
        if self._common.server:
            return self._common.server
        if self._common.context:
            # Naming a context on the command line is stronger than a variable set long ago.
            return self.contexts.get(self._common.context).server or DEFAULT_SERVER
        for name in self._server_variables():
            if self._environment.get(name):
                return self._environment[name]
        target = self._target()
        return target.server or DEFAULT_SERVER if target is not None else DEFAULT_SERVER

    def _server_variables(self) -> tuple[str, ...]:
        return ("GOQUEUE_ADMIN_SERVER", "GOQUEUE_SERVER") if self._is_admin else ("GOQUEUE_SERVER",)

    @property
    def _is_admin(self) -> bool:
        return self._program == ADMIN_PROGRAM


def knock(addresses: str, seconds: float) -> None:
    """Find out at once whether anybody listens: a client would keep trying until its timeout."""
    failures: list[ConnectionLostError] = []
    for address in addresses.split(","):
        try:
            _knock(address, seconds)
        except ConnectionLostError as error:
            failures.append(error)
        else:
            return
    if len(failures) == 1:
        raise failures[0]
    raise ConnectionLostError("; ".join(error.message for error in failures))


def _knock(address: str, seconds: float) -> None:
    target = parse_address(address)
    try:
        socket.create_connection(target, timeout=seconds).close()
    except TimeoutError as error:
        raise ConnectionLostError(f"nobody answers at {address} within {seconds:g} s") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConnectionLostError(f"cannot reach a broker at {address}: {reason}") from error


def native_addresses(servers: str) -> str:
    """Return ``host:port``, or several with commas between, of servers as people write them."""
    return ",".join(native_address(server.strip()) for server in servers.split(","))


def native_address(server: str) -> str:
    """Return ``host:port`` of a server as people write it."""
    if server.startswith(("http://", "https://")):
        host = server.partition("://")[2].split("/")[0].rpartition(":")[0] or "127.0.0.1"
        raise usage(
            f"{server} is an HTTP address, and commands speak the native protocol",
            f"try --server {host}:7070, or whatever `goqueue serve` prints as native",
        )
    for scheme in SCHEMES:
        server = server.removeprefix(scheme)
    server = server.rstrip("/")
    if ":" not in server:
        server = f"{server}:7070"
    try:
        address = parse_address(server)
    except ValueError as error:
        raise usage(f"server: {error}") from error
    return str(address if address.host else address._replace(host="127.0.0.1"))


def read_timeout_ms(text: str, name: str) -> int:
    """Read seconds ("30") or a duration ("500ms")."""
    try:
        timeout_ms = int(float(text) * SECOND_MS)
    except ValueError:
        try:
            timeout_ms = parse_duration_ms(text)
        except ValueError as error:
            raise usage(f"{name}: {error}") from error
    except OverflowError as error:
        raise usage(f"{name}: {text} is too long") from error
    if timeout_ms <= 0:
        raise usage(f"{name}: {text} is not longer than nothing")
    return timeout_ms


# The common options of a command, before and behind its name.

_OUTPUT: Final = Annotated[
    Output | None,
    typer.Option("-o", "--output", help="How to print the answer.", rich_help_panel=_PANEL),
]
_SERVER: Final = Annotated[
    str | None,
    typer.Option(
        "-s",
        "--server",
        help="Broker to ask, host:port, or nodes of a cluster a:7070,b:7070; also GOQUEUE_SERVER.",
        rich_help_panel=_PANEL,
    ),
]
_CONTEXT: Final = Annotated[
    str | None,
    typer.Option(
        "-c",
        "--context",
        help="Named broker of ~/.goqueue/config.yaml; also GOQUEUE_CONTEXT.",
        rich_help_panel=_PANEL,
    ),
]
_TIMEOUT: Final = Annotated[
    str | None,
    typer.Option(
        "--timeout", help="Longest wait for an answer, e.g. 30 or 500ms.", rich_help_panel=_PANEL
    ),
]
_COMMON: Final[Mapping[str, Any]] = {
    "output": _OUTPUT,
    "server": _SERVER,
    "context": _CONTEXT,
    "timeout": _TIMEOUT,
}
_LOCAL: Final[Mapping[str, Any]] = {"output": _OUTPUT}


def _parameters(common: Mapping[str, Any]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in common.items()
    ]


_CONTEXT_PARAMETER: Final = inspect.Parameter(
    "typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
)


def command(
    app: typer.Typer, name: str, *, is_local: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function that takes a Session first; it gets the common options too."""
    common = _LOCAL if is_local else _COMMON

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]

        def run(*, typer_context: typer.Context, **arguments: object) -> None:
            given = {key: arguments.pop(key) for key in common}
            merged = Common(**cast("Any", given)).over(typer_context.obj)
            program = typer_context.find_root().info_name or ""
            try:
                function(Session(merged, os.environ, program), **arguments)
                sys.stdout.flush()
            except BrokenPipeError as error:
                raise OutputClosedError from error

        _dress(run, function, [_CONTEXT_PARAMETER, *own, *_parameters(common)])
        app.command(name)(run)
        return function

    return register


def add_common_options(app: typer.Typer, text: str) -> None:
    """Let a group of commands take the common options before the name of the command."""

    def callback(*, typer_context: typer.Context, **given: object) -> None:
        typer_context.obj = Common(**cast("Any", given)).over(typer_context.obj)

    _dress(callback, callback, [_CONTEXT_PARAMETER, *_parameters(_COMMON)])
    app.callback(help=literal(text), no_args_is_help=True)(callback)


def _dress(
    wrapper: Callable[..., None],
    function: Callable[..., None],
    parameters: list[inspect.Parameter],
) -> None:
    wrapper.__doc__ = literal(function.__doc__ or "")
    for parameter in parameters:
        keep_brackets(parameter.annotation)
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    cast("Any", wrapper).__signature__ = inspect.Signature(parameters)


def confirm(question: str, *, is_forced: bool) -> None:
    """Ask a person to type "yes" before something is gone."""
    if is_forced:
        return
    sys.stderr.write(f'{question} Type "yes" to go on: ')
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if answer.strip() != "yes":
        raise Failure("nothing was done", code="not_confirmed", hint="--force does not ask")
