"""HTTP on one connection that is kept alive."""

import json
from http.client import HTTPConnection
from typing import Any, Self

TIMEOUT_SECONDS = 60


class HttpRefusedError(OSError):
    """The broker answered with a status that is not 2xx."""


class Http:
    """Asks and parses; opens the connection when it is needed."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Any:  # noqa: ANN401 - whatever JSON says
        """Return what a path shows."""
        return json.loads(self.text("GET", path))

    def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - whatever JSON says
        """Return the answer to a request."""
        return json.loads(self.text("POST", path, json.dumps(body)))

    def text(self, method: str, path: str, body: str | None = None) -> bytes:
        """Return the body of a reply as it is."""
        self._connection.request(method, path, body)
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= 300:
            raise HttpRefusedError(f"{method} {path}: HTTP {response.status}: {text[:200]!r}")
        return text
