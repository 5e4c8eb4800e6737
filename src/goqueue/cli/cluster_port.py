"""Asking a node at the port between nodes, as the commands of ``goqueue cluster`` do."""

import http.client
import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from goqueue.base.errors import ConnectionLostError
from goqueue.base.units import SECOND_MS
from goqueue.cli.failure import Failure, usage
from goqueue.cli.session import Session
from goqueue.config.address import Address, parse_address
from goqueue.wire.http.proof import PROOF_HEADER, TIME_HEADER, proof_of

DEFAULT_NODE: Final = "127.0.0.1:7000"
NODE_VARIABLE: Final = "GOQUEUE_LISTENERS_INTERNAL"
KEY_VARIABLE: Final = "GOQUEUE_CLUSTER_KEY_FILE"

NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="HOST:PORT",
        help=f"Port between nodes of any node; also {NODE_VARIABLE}.",
        show_default=DEFAULT_NODE,
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        help=f"File with the key of the cluster; also {KEY_VARIABLE}. On the machine of the node"
        " only needed where clients need keys."
    ),
]


def ask(
    session: Session, path: str, node: str | None, key_file: Path | None, *, body: object = None
) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON that a node answers."""
    text = node or os.environ.get(NODE_VARIABLE) or DEFAULT_NODE
    try:
        address = parse_address(text)
    except ValueError as error:
        raise usage(f"--node: {error}") from error
    connection = _connection(session, address)
    try:
        method = "GET" if body is None else "POST"
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, sent, headers | _proof(method, path, sent, key_file))
        reply = connection.getresponse()
        found = json.loads(reply.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectionLostError(f"no node answers at {text}: {error}") from error
    finally:
        connection.close()
    if reply.status >= http.HTTPStatus.BAD_REQUEST:
        raise Failure(str(found.get("error", found)), code=str(found.get("code", "refused")))
    return found


def _connection(session: Session, address: Address) -> http.client.HTTPConnection:
    """Return a connection to a node; by TLS it shows a certificate, as nodes do."""
    host, seconds = address.host or "127.0.0.1", session.timeout_ms / SECOND_MS
    if session.tls is None:
        return http.client.HTTPConnection(host, address.port, timeout=seconds)
    context = session.tls.options().context()
    return http.client.HTTPSConnection(host, address.port, timeout=seconds, context=context)


def _proof(method: str, path: str, body: bytes, key_file: Path | None) -> dict[str, str]:
    named = key_file or os.environ.get(KEY_VARIABLE)
    if not named:
        return {}
    try:
        key = Path(named).read_bytes().strip()
    except OSError as error:
        raise usage(f"--key-file: {named} cannot be read: {error.strerror}") from error
    now_ms = time.time_ns() // 1_000_000
    return {TIME_HEADER: str(now_ms), PROOF_HEADER: proof_of(key, method, path, now_ms, body)}
