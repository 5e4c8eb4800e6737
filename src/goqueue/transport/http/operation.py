"""One thing the API can do: the single source of its route and of its page in the documentation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from goqueue.transport.http.call import Call
from goqueue.transport.http.reply import Response
from goqueue.wire.http.errors import ErrorReply

Answer = Callable[[Call], Awaitable[Response]]

VERSION_PREFIX = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query string."""

    name: str
    text: str
    kind: str = "string"
    is_required: bool = False
    default: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method on a path. The docstring of ``answer`` describes it, its name identifies it."""

    method: str
    path: str
    answer: Answer
    tag: str
    reply: Any
    """Type of the JSON reply; text names the media type of another one."""
    status: HTTPStatus = HTTPStatus.OK
    body: Any = None
    is_body_optional: bool = False
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[HTTPStatus, ...] = ()
    failure: Any = ErrorReply
    """Type of the JSON reply with one of the errors."""
    is_versioned: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it is found at."""
        return (self.path, VERSION_PREFIX + self.path) if self.is_versioned else (self.path,)

    @property
    def name(self) -> str:
        """Its name among all operations."""
        return str(getattr(self.answer, "__name__", "operation"))

    @property
    def text(self) -> str:
        """What it does, in a sentence or more."""
        return self.answer.__doc__ or self.name
