"""Arguments and results of verbs as bytes, for verbs that one node asks of another.

Both are msgpack, typed by the signature of the verb: what does not fit it is refused before the
verb is called. What belongs to the node that is asked (its turns) does not travel.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_type_hints

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.errors import InvalidRequestError
from goqueue.base.grant import Grant
from goqueue.runtime.turns import Turns
from goqueue.wire.complaint import HEADER_FAULTS
from goqueue.wire.packet import Buffer

OWN: Final = (Caller, Grant, Turns)
"""Types of what a verb is given where it is called."""


class VerbCodec:
    """Reads and writes what travels of the calls of one verb."""

    def __init__(self, verb: Callable[..., Any]) -> None:
        hints = get_type_hints(verb)
        self.signature = inspect.signature(inspect.unwrap(verb))
        self._names = [
            name
            for name in self.signature.parameters
            if name != "self" and hints.get(name) not in OWN
        ]
        self.turns = next((name for name, kind in hints.items() if kind is Turns), None)
        """The parameter for the turns of the node, if the verb takes them."""
        kinds = tuple(hints[name] for name in self._names)
        given: Any = tuple[kinds] if kinds else tuple[()]  # type: ignore[valid-type]
        self._encoder = msgspec.msgpack.Encoder()
        self._arguments = msgspec.msgpack.Decoder(given)
        self._result = msgspec.msgpack.Decoder(hints["return"])

    def write_arguments(self, *args: object, **kwargs: object) -> bytes:
        """Return the arguments of a call as they travel; the grant is none of them."""
        bound = self.bind(args, kwargs)
        return self._encoder.encode([bound[name] for name in self._names])

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments of a call by name, with those that have a default."""
        known = [one for one in self.signature.parameters if one in {*self._names, self.turns}]
        bound = dict(zip(known, args, strict=False)) | dict(kwargs)
        for name in self._names:
            if name not in bound:
                bound[name] = self.signature.parameters[name].default
        return bound

    def read_arguments(self, raw: Buffer) -> dict[str, Any]:
        """Return the arguments of a call by name, or raise."""
        try:
            values = self._arguments.decode(raw)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"arguments that do not fit: {error}") from error
        return dict(zip(self._names, values, strict=True))

    def write_result(self, result: object) -> bytes:
        """Return what a verb returned, as it travels."""
        return self._encoder.encode(result)

    def read_result(self, raw: Buffer) -> Any:  # noqa: ANN401 - as the verb says
        """Return what a verb of another node returned, or raise."""
        try:
            return self._result.decode(raw)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"a result that does not fit: {error}") from error
