"""One thing the API can do: the single source of its route and of its page in the documentation."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from goqueue.base.deeds import Deed
from goqueue.service.resources import name_field
from goqueue.transport.http.call import Call
from goqueue.transport.http.reply import JSON, Response
from goqueue.wire.http.errors import ErrorReply

Answer = Callable[[Call], Awaitable[Response]]
Done = Callable[[Response], None]
Begin = Callable[[Call, Done], Response | bool]
"""Returns the reply, True if ``Done`` gets it, or False if nothing was done: ``Answer`` does it."""

VERSION_PREFIX = "/v1"
PATH_NAME: Final = re.compile(r"{(\w+)}")
"""A parameter in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query string."""

    name: str
    text: str
    kind: str = "string"
    is_required: bool = False
    default: int | str | None = None
    least: int | None = None
    most: int | None = None
    """Larger numbers count as this one."""
    choices: tuple[str, ...] = ()
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method on a path. The docstring of ``answer`` describes it, its name identifies it."""

    method: str
    path: str
    answer: Answer
    deed: Deed
    """What it asks for; the gate decides about it before ``answer`` is called."""
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
    media_type: str = JSON
    """What the JSON of body and replies is declared to be."""
    absent: str | None = None
    """The contract's words for a topic that does not exist, where they are not the broker's."""
    begin: Begin | None = None
    """The way without a task or a coroutine, where there is one."""
    is_started: bool = False
    """Whether ``answer`` is begun in the step in which a request is there: mostly it waits for
    nothing but a sync, and never asks for the current task."""
    is_versioned: bool = True
    changes_state: bool = False
    """Whether it changes something although its method says that it only reads."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path it is found at."""
        return (self.path, VERSION_PREFIX + self.path) if self.is_versioned else (self.path,)

    @property
    def name_parameter(self) -> str | None:
        """The parameter of the path that names what the deed is about, if one does."""
        return name_field(self.deed, PATH_NAME.findall(self.path))

    @property
    def name_query(self) -> str | None:
        """The parameter of the query that names it, where the path does not."""
        fields = [] if self.name_parameter else [one.name for one in self.parameters]
        return name_field(self.deed, fields)

    @property
    def name_in_body(self) -> str | None:
        """The field of the body that names it, where the path does not."""
        fields = () if self.name_parameter else getattr(self.body, "__struct_fields__", ())
        return name_field(self.deed, fields)

    @property
    def name(self) -> str:
        """Its name among all operations."""
        return str(getattr(self.answer, "__name__", "operation"))

    @property
    def text(self) -> str:
        """What it does, in a sentence or more."""
        return self.answer.__doc__ or self.name
