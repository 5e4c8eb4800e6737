"""``goqueue config``: the broker's settings explained, and the brokers this user knows."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from goqueue.cli.contexts import DEFAULT_CONTEXT, Target, config_path, save_contexts
from goqueue.cli.failure import usage
from goqueue.cli.output import Grid, Output, dump, print_data, remark, say
from goqueue.cli.serve import Assignments, Config, read_assignments
from goqueue.cli.session import (
    Session,
    add_common_options,
    command,
    native_addresses,
    read_timeout_ms,
)
from goqueue.cli.tls_target import SECURE_SCHEME, TlsTarget, is_secure
from goqueue.config.explain import explain
from goqueue.config.load import load_config

KEY_CHARACTERS_MAX: Final = 4_096
"""A longer text is not a key; it may be a file that was meant for something else."""
STANDARD_INPUT: Final = "-"

Name = Annotated[str, typer.Argument(help="Name of the context.")]
Server = Annotated[
    str | None,
    typer.Option("--server", "-s", help="Address, host:port; goqueues://host:port for TLS."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        help="Key to present to the broker; - reads it from standard input. Others may see what"
        " is on the command line.",
    ),
]
ApiKeyFile = Annotated[
    str | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="File with the key to present to the broker; - for standard input.",
    ),
]
Timeout = Annotated[str | None, typer.Option("--timeout", help="Longest wait, e.g. 30 or 500ms.")]
TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="FILE", help="Authorities that may vouch for the broker."),
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="This client's own certificate.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")]
TlsPin = Annotated[
    str | None,
    typer.Option(
        "--tls-pin", help="sha256/… of the broker's certificate, from `goqueue tls show`."
    ),
]
TlsServerName = Annotated[
    str | None,
    typer.Option("--tls-server-name", help="Name in the broker's certificate, if not its host."),
]
Meaning = Annotated[bool, typer.Option("--meaning", help="Also say what each setting means.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer()
    add_common_options(config, "Settings of the broker, and the brokers you know.")
    for name, function in (
        ("show", show),
        ("view", view),
        ("get-contexts", get_contexts),
        ("use-context", use_context),
        ("set-context", set_context),
        ("delete-context", delete_context),
    ):
        command(config, name, is_local=True)(function)
    app.add_typer(config, name="config")


def show(
    session: Session,
    config: Config = None,
    assignments: Assignments = None,
    meaning: Meaning = False,
) -> None:
    """Show each setting a broker started here would have, and where it came from."""
    loaded = load_config(
        flags={},
        environment=os.environ,
        file=config,
        assignments=read_assignments(assignments or []),
    )
    explained = explain(loaded)
    data = {
        "file": loaded.file,
        "settings": [
            {
                "key": one.key,
                "value": one.value,
                "source": one.source,
                "environment": one.environment,
                "flag": one.flag,
                "meaning": one.meaning,
            }
            for one in explained
        ],
        "warnings": list(loaded.warnings),
    }
    columns = ["SETTING", "VALUE", "SOURCE", "ENVIRONMENT"] + ["MEANING"] * meaning
    rows = [
        [one.key, one.shown, one.source, one.environment] + [one.meaning] * meaning
        for one in explained
    ]
    session.show(data, Grid(columns=columns, rows=rows))
    if session.is_table:
        for warning in loaded.warnings:
            remark(f"warning: {warning}")


def view(session: Session) -> None:
    """Show the file of contexts, with keys hidden."""
    data = session.contexts.plain(hide_keys=True)
    if session.is_table:
        say(f"# {config_path()}")
        say(dump(Output.YAML, data).rstrip())
    else:
        print_data(session.output, data)


def get_contexts(session: Session) -> None:
    """List the brokers you know; * marks the one used by default."""
    contexts = session.contexts
    data = [
        {"name": name, "current": name == contexts.current, **target.plain(hide_key=True)}
        for name, target in contexts.targets.items()
    ]
    rows = [
        (
            "*" if name == contexts.current else "",
            name,
            target.server or "",
            target.timeout or "",
            "yes" if target.api_key else "no",
        )
        for name, target in contexts.targets.items()
    ]
    columns = ("CURRENT", "NAME", "SERVER", "TIMEOUT", "API KEY")
    session.show(data, Grid(columns=columns, rows=rows, empty="no contexts"))


def use_context(session: Session, name: Name) -> None:
    """Choose the broker that commands ask by default."""
    contexts = session.contexts
    target = contexts.get(name)
    contexts.current = name
    save_contexts(contexts)
    _done(session, f"commands now ask {name} ({target.server})", {"current-context": name})


def set_context(
    session: Session,
    name: Name,
    *,
    server: Server = None,
    api_key: ApiKey = None,
    api_key_file: ApiKeyFile = None,
    timeout: Timeout = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_pin: TlsPin = None,
    tls_server_name: TlsServerName = None,
) -> None:
    """Remember a broker under a name, or change what is remembered."""
    tls = TlsTarget(
        ca=_file(tls_ca, "--tls-ca"),
        cert=_file(tls_cert, "--tls-cert"),
        key=_file(tls_key, "--tls-key"),
        pin=tls_pin or "",
        server_name=tls_server_name or "",
    )
    if not tls and all(one is None for one in (server, api_key, api_key_file, timeout)):
        raise usage("nothing to set", "give --server, --api-key-file, --tls-ca or --timeout")
    if timeout is not None:
        read_timeout_ms(timeout, "--timeout")
    contexts = session.contexts
    key = _read_key(api_key, api_key_file)
    old = contexts.targets.get(name, Target())
    new = Target(
        server=_read_server(server) if server is not None else old.server,
        api_key=key if key is not None else old.api_key,
        timeout=timeout if timeout is not None else old.timeout,
        tls=tls.over(old.tls),
    )
    contexts.targets[name] = new
    save_contexts(contexts)
    _done(session, f"context {name} saved", {"name": name, **new.plain(hide_key=True)})


def _file(text: str | None, option: str) -> str:
    """Return the whole path of a file: commands are run in any directory."""
    if text is None:
        return ""
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise usage(f"{option}: there is no file {path}")
    return str(path)


def _read_server(server: str) -> str:
    return (SECURE_SCHEME if is_secure(server) else "") + native_addresses(server)


def _read_key(api_key: str | None, file: str | None) -> str | None:
    """Return the key from where it was said to be, or None where nothing was said."""
    if api_key is not None and file is not None:
        raise usage("give --api-key-file or --api-key, not both")
    if api_key not in (None, STANDARD_INPUT):
        remark(
            "warning: a key on the command line is in the history of the shell and shown"
            " to others by ps; use --api-key-file FILE, or - for standard input"
        )
        return api_key
    where = file or api_key
    if where is None:
        return None
    try:
        if where == STANDARD_INPUT:
            text = sys.stdin.read(KEY_CHARACTERS_MAX + 1)
        else:
            with Path(where).open(encoding="utf-8") as source:
                text = source.read(KEY_CHARACTERS_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"the key cannot be read from {where}: {error}") from error
    key = text.strip()
    if not key or len(text) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise usage(f"{where} does not hold a key: one line of text is expected")
    return key


def delete_context(session: Session, name: Name) -> None:
    """Forget a broker."""
    contexts = session.contexts
    contexts.get(name)
    del contexts.targets[name]
    if contexts.current == name:
        contexts.current = next(iter(contexts.targets), DEFAULT_CONTEXT)
    save_contexts(contexts)
    _done(session, f"context {name} deleted", {"deleted": True, "name": name})


def _done(session: Session, text: str, data: object) -> None:
    if session.is_table:
        say(text)
    else:
        print_data(session.output, data)
