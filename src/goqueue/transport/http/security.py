"""Keys, access rules and callers over HTTP."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, decode, parse_int64
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire import calls
from goqueue.wire import security_calls as said
from goqueue.wire.http.security import (
    AclAnswer,
    AclCreate,
    AclMade,
    AclQuestion,
    AclRemoved,
    AclsShown,
    KeyCreate,
    KeyMade,
    KeyRevoked,
    KeyRotation,
    KeysShown,
    Whoami,
    read_acl,
    read_key,
    read_overlap_ms,
    show_acl,
    show_added,
    show_identity,
    show_key,
    show_secret,
)

TAG: Final = "security"
_KEY: Final = msgspec.json.Decoder(KeyCreate)
_ROTATION: Final = msgspec.json.Decoder(KeyRotation)
_ACL: Final = msgspec.json.Decoder(AclCreate)
_QUESTION: Final = msgspec.json.Decoder(AclQuestion)


class SecurityRoutes:
    """Answers about who may do what."""

    def __init__(self, service: Service) -> None:
        self._bytes_max = service.config.http_body_bytes_max
        self._credentials = service.credentials

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with keys and access rules."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        keys, acls, key = "/admin/keys", "/admin/acls", "/admin/keys/{key_id}"
        return (
            Operation(
                method="GET", path="/admin/whoami", answer=self.whoami, tag=TAG,
                deed=Deed.WHOAMI, reply=Whoami, errors=(HTTPStatus.UNAUTHORIZED,),
            ),
            Operation(
                method="POST", path=keys, answer=self.make_key, tag=TAG, deed=Deed.MAKE_KEY,
                body=KeyCreate, reply=KeyMade, status=HTTPStatus.CREATED, errors=(bad,),
            ),
            Operation(
                method="GET", path=keys, answer=self.list_keys, tag=TAG, deed=Deed.LIST_KEYS,
                reply=KeysShown,
            ),
            Operation(
                method="DELETE", path=key, answer=self.revoke_key, tag=TAG,
                deed=Deed.REVOKE_KEY, reply=KeyRevoked, errors=(absent,),
            ),
            Operation(
                method="POST", path=key + "/rotate", answer=self.rotate_key, tag=TAG,
                deed=Deed.ROTATE_KEY, body=KeyRotation, is_body_optional=True, reply=KeyMade,
                errors=(bad, absent),
            ),
            Operation(
                method="POST", path=acls, answer=self.add_acl, tag=TAG, deed=Deed.ADD_ACL,
                body=AclCreate, reply=AclMade, status=HTTPStatus.CREATED, errors=(bad,),
            ),
            Operation(
                method="GET", path=acls, answer=self.list_acls, tag=TAG, deed=Deed.LIST_ACLS,
                reply=AclsShown,
            ),
            Operation(
                method="POST", path=acls + "/test", answer=self.explain_acls, tag=TAG,
                deed=Deed.TEST_ACL, body=AclQuestion, reply=AclAnswer, errors=(bad, absent),
            ),
            Operation(
                method="DELETE", path=acls + "/{acl_id}", answer=self.remove_acl, tag=TAG,
                deed=Deed.REMOVE_ACL, reply=AclRemoved, errors=(bad, absent),
            ),
        )  # fmt: skip

    async def whoami(self, call: Call) -> Response:
        """Return who sends this, and what its credential is good for."""
        known = await self._credentials.whoami(call.grant, calls.Nothing())
        return json_reply(show_identity(known))

    async def make_key(self, call: Call) -> Response:
        """Make an API key. Its secret is in this answer and nowhere else."""
        wanted = await call.body(_KEY, bytes_max=self._bytes_max)
        made = await self._credentials.make_key(call.grant, read_key(wanted))
        return json_reply(show_secret(made), HTTPStatus.CREATED)

    async def list_keys(self, call: Call) -> Response:
        """Return every key, the latest first; those that are valid no more are marked."""
        found = await self._credentials.list_keys(call.grant, calls.Nothing())
        shown = [show_key(one) for one in found.keys]
        return json_reply(KeysShown(keys=shown, count=len(shown)))

    async def revoke_key(self, call: Call) -> Response:
        """End a key: its next request is refused, and what waits is ended within a second."""
        key_id = call.path["key_id"]
        await self._credentials.revoke_key(call.grant, said.KeyCall(key_id))
        return json_reply(KeyRevoked(key_id=key_id))

    async def rotate_key(self, call: Call) -> Response:
        """Give a key another secret; the one before stays valid for ``overlap``, an hour if not."""
        raw = await call.raw_body(self._bytes_max)
        wanted = decode(_ROTATION, raw) if raw else KeyRotation()
        asked = said.RotateKey(call.path["key_id"], read_overlap_ms(wanted))
        return json_reply(show_secret(await self._credentials.rotate_key(call.grant, asked)))

    async def add_acl(self, call: Call) -> Response:
        """Add an access rule; denying wins over everything but the root key."""
        wanted = await call.body(_ACL, bytes_max=self._bytes_max)
        added = await self._credentials.add_acl(call.grant, read_acl(wanted))
        return json_reply(show_added(added), HTTPStatus.CREATED)

    async def list_acls(self, call: Call) -> Response:
        """Return every access rule."""
        found = await self._credentials.list_acls(call.grant, calls.Nothing())
        shown = [show_acl(one) for one in found.acls]
        return json_reply(AclsShown(acls=shown, count=len(shown)))

    async def explain_acls(self, call: Call) -> Response:
        """Return what would be decided about a request, and why; nothing is done."""
        asked = await call.body(_QUESTION, bytes_max=self._bytes_max)
        verdict = await self._credentials.test_acl(
            call.grant,
            said.AclTest(
                asked.principal,
                asked.operation,
                asked.resource_type,
                asked.resource_name,
                asked.host,
            ),
        )
        answer = AclAnswer(
            allowed=verdict.is_allowed,
            reason=verdict.reason,
            acls=[show_acl(one) for one in verdict.acls],
        )
        return json_reply(answer)

    async def remove_acl(self, call: Call) -> Response:
        """Remove an access rule by its id."""
        number = parse_int64(call.path["acl_id"])
        if number is None or number < 0:
            raise InvalidRequestError("invalid acl id")
        await self._credentials.remove_acl(call.grant, said.AclCall(number))
        return json_reply(AclRemoved(acl_id=number))
