"""A request that one node passes on to the node it belongs to, with the identity of its caller.

Shape: codec. What is asked travels as it came: the header of a native request byte for byte, its
payload behind it. A verb that no native operation has is named instead; its arguments are the
payload then, as one msgpack array. The node that is asked answers for itself or refuses: a request
is passed on once, never a second time.
"""

from typing import Annotated, Final

import msgspec

from goqueue.base.caller import Caller, Transport
from goqueue.base.limits import REQUEST_HEADER_BYTES_MAX
from goqueue.base.units import KiB
from goqueue.wire.calls import Call, Name, Number, Text

FORWARDED_HEADER_BYTES_MAX: Final = REQUEST_HEADER_BYTES_MAX - 8 * KiB
"""Largest header that is passed on: with its caller it must fit the header of a packet."""

NO_OPERATION: Final = 0
"""Where a verb is named."""


CALLER_ROLES_MAX: Final = 100
"""Roles and groups that a token may vouch for."""

NAMES_MAX: Final = 100
"""Resources that one request is about; most are about one."""


class ForwardedCaller(Call, frozen=True):
    """Who asked, as the node knows that was asked first."""

    transport: Name
    peer: Text
    principal: Text
    tenant: Text | None = None
    credential: Text = ""
    roles: Annotated[tuple[Name, ...], msgspec.Meta(max_length=CALLER_ROLES_MAX)] = ()
    expires_ms: int = 0

    @classmethod
    def of(cls, caller: Caller) -> "ForwardedCaller":
        """Return a caller as it travels."""
        return cls(
            caller.transport.value,
            caller.peer,
            caller.principal,
            caller.tenant,
            caller.credential,
            caller.roles,
            caller.expires_ms,
        )

    def caller(self) -> Caller:
        """Return who asked, or raise ValueError if the transport is not known here."""
        return Caller(
            transport=Transport(self.transport),
            peer=self.peer,
            principal=self.principal,
            tenant=self.tenant,
            credential=self.credential,
            roles=self.roles,
            expires_ms=self.expires_ms,
        )


class Forward(Call, frozen=True):
    """A request of somebody, passed on."""

    caller: ForwardedCaller
    operation: Number = NO_OPERATION
    """The number of a native operation."""
    header: Annotated[bytes, msgspec.Meta(max_length=FORWARDED_HEADER_BYTES_MAX)] = b""
    """Its header, as it came."""
    verb: Name = ""
    """A verb by noun and name, such as ``groups.outline``, where there is no operation."""
    deed: Name = ""
    """What was asked for, as a verb may serve several deeds."""
    names: Annotated[list[Text], msgspec.Meta(max_length=NAMES_MAX)] = msgspec.field(
        default_factory=list
    )
    """The resources it is about, as the gate was told where it was asked first."""


class Forwarded(Call, frozen=True):
    """The answer: the header of a native reply; the result of a verb is in the payload."""

    header: bytes = b""
