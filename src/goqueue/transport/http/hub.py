"""What the connections of an HTTP listener share."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from goqueue.transport.http.app import App

if TYPE_CHECKING:
    from goqueue.transport.http.connection import HttpConnection


class Hub:
    """What the connections of a listener share."""

    def __init__(
        self,
        app: App,
        *,
        connections_max: int,
        lost: Callable[[], None],
        native: Callable[[], str] = str,
    ) -> None:
        self.app = app
        self.native = native
        """Returns where the native protocol is spoken, if it is."""
        self.connections_max = connections_max
        self.lost = lost
        """Called when a connection is gone."""
        self.connections: set[HttpConnection] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        """Requests that are being answered and may be cancelled."""
        self.date = b""
        """The header with the time of now."""

    def __repr__(self) -> str:
        return f"<Hub of {len(self.connections)} connections>"
