"""Keys, access rules and callers in the SDK."""

from collections.abc import Mapping, Sequence

from goqueue.base.security_limits import OVERLAP_MS
from goqueue.client.admin.calls import AsyncCalls
from goqueue.wire import calls
from goqueue.wire import security_calls as said
from goqueue.wire.packet import Operation


class AsyncSecurity(AsyncCalls):
    """The calls on who may do what."""

    async def whoami(self) -> said.Identity:
        """Return who the broker takes this client for."""
        return await self._call(Operation.WHOAMI, calls.Nothing(), said.Identity)

    async def make_key(
        self,
        name: str,
        *,
        roles: Sequence[str] = (),
        scopes: Sequence[str] = (),
        hosts: Sequence[str] = (),
        tenant: str | None = None,
        notes: Mapping[str, str] | None = None,
        life_ms: int = 0,
    ) -> said.KeySecret:
        """Make an API key; its secret is in the answer and nowhere else."""
        header = said.MakeKey(
            name, list(roles), list(scopes), tenant, list(hosts), dict(notes or {}), life_ms
        )
        return await self._once(Operation.MAKE_KEY, header, said.KeySecret)

    async def list_keys(self) -> list[said.KeyState]:
        """Return every key without its secret, the latest first."""
        return (await self._call(Operation.LIST_KEYS, calls.Nothing(), said.KeyList)).keys

    async def rotate_key(self, key_id: str, *, overlap_ms: int = OVERLAP_MS) -> said.KeySecret:
        """Give a key another secret; the one before is valid for a while."""
        header = said.RotateKey(key_id, overlap_ms)
        return await self._once(Operation.ROTATE_KEY, header, said.KeySecret)

    async def revoke_key(self, key_id: str) -> said.KeyState:
        """End a key: what waits for it is ended within a second."""
        return await self._call(Operation.REVOKE_KEY, said.KeyCall(key_id), said.KeyState)

    async def add_acl(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str,
        *,
        effect: str = "allow",
        hosts: Sequence[str] = (),
    ) -> said.AclState:
        """Add an access rule; denying wins over everything but the root key."""
        header = said.AddAcl(
            principal, resource_type, resource_name, operation, effect, list(hosts)
        )
        return await self._call(Operation.ADD_ACL, header, said.AclState)

    async def list_acls(self) -> list[said.AclState]:
        """Return every access rule."""
        return (await self._call(Operation.LIST_ACLS, calls.Nothing(), said.AclList)).acls

    async def remove_acl(self, acl_id: int) -> said.AclState:
        """Remove an access rule by its id."""
        return await self._once(Operation.REMOVE_ACL, said.AclCall(acl_id), said.AclState)

    async def explain_access(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str = "",
        *,
        host: str = "",
    ) -> said.AclVerdict:
        """Return what would be decided about a request, and why; nothing is done."""
        header = said.AclTest(principal, operation, resource_type, resource_name, host)
        return await self._call(Operation.TEST_ACL, header, said.AclVerdict)
