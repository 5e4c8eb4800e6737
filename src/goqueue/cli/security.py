"""``goqueue key``, ``goqueue acl``, ``goqueue whoami``: who may do what."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.security_limits import OVERLAP_MS
from goqueue.base.units import US_PER_MS, parse_duration_ms
from goqueue.cli.failure import usage
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, print_data, print_pairs, remark, say
from goqueue.cli.preview import preview
from goqueue.cli.session import Session, add_common_options, command, confirm

if TYPE_CHECKING:
    from goqueue.wire.security_calls import AclState, KeySecret, KeyState

NEVER: Final = "never"

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="What people call the key.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, key_ and 16 digits.")]
Roles = Annotated[
    list[str] | None, typer.Option("-r", "--role", help="A role; may be given several times.")
]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="Narrow it, e.g. topic:orders.*; may be given several times."),
]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="A network it counts for, e.g. 10.0.0.0/8.")
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="The tenant it belongs to.")]
Expires = Annotated[str | None, typer.Option("--expires", help="How long it is valid, e.g. 720h.")]
Overlap = Annotated[
    str | None, typer.Option("--overlap", help="How long the old secret stays valid; 1h if not.")
]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]
Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="A key's id, role:NAME, or * for everybody.")
]
OperationName = Annotated[
    str, typer.Argument(metavar="OPERATION", help="read, write, create, delete, describe … or all.")
]
KindName = Annotated[
    str, typer.Argument(metavar="KIND", help="topic, group, schema, transaction, cluster … or *.")
]
ResourceName = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="A name, or a pattern with * and ?.")
]
AclId = Annotated[int, typer.Argument(metavar="ID", help="The number of the rule.", min=0)]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow; denying wins.")]
Host = Annotated[str, typer.Option("--host", help="The address the request comes from.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    key = typer.Typer()
    add_common_options(key, "API keys: made, listed, rotated, revoked.")
    command(key, "make")(make)
    command(key, "list")(list_keys)
    command(key, "rotate")(rotate)
    command(key, "revoke")(revoke)
    app.add_typer(key, name="key")
    acl = typer.Typer()
    add_common_options(acl, "Access rules: who may do what.")
    command(acl, "add")(add)
    command(acl, "list")(list_acls)
    command(acl, "remove")(remove)
    command(acl, "test")(explain)
    app.add_typer(acl, name="acl")
    command(app, "whoami")(whoami)


def whoami(session: Session) -> None:
    """Show who the broker takes you for."""
    with session.connect() as client:
        known = client.whoami()
    expires = moment(known.expires_ms * US_PER_MS) if known.expires_ms else NEVER
    told = {
        "principal": known.principal,
        "name": preview(known.name) or "-",
        "tenant": known.tenant or "-",
        "roles": ", ".join(known.roles) or "-",
        "scopes": ", ".join(known.scopes) or "-",
        "expires": expires,
        "authenticated": str(known.is_authenticated).lower(),
    }
    if session.is_table:
        print_pairs(told)
    else:
        print_data(session.output, told)


def make(
    session: Session,
    name: KeyName,
    *,
    role: Roles = None,
    scope: Scopes = None,
    host: Hosts = None,
    tenant: Tenant = None,
    expires: Expires = None,
) -> None:
    """Make an API key; its secret is printed this once."""
    life_ms = _duration_ms(expires, "--expires") if expires else 0
    with session.connect() as client:
        made = client.make_key(
            name, roles=role or (), scopes=scope or (), hosts=host or (), tenant=tenant,
            life_ms=life_ms,
        )  # fmt: skip
    _tell_secret(session, made)


def list_keys(session: Session) -> None:
    """List the keys, the latest first."""
    with session.connect() as client:
        found = client.list_keys()
    rows = [
        (
            one.id,
            preview(one.name),
            one.prefix,
            ", ".join(one.roles) or "-",
            one.tenant or "-",
            moment(one.used_ms * US_PER_MS) if one.used_ms else "-",
            moment(one.expires_ms * US_PER_MS) if one.expires_ms else NEVER,
            "revoked" if one.is_revoked else "active",
        )
        for one in found
    ]
    columns = ("ID", "NAME", "PREFIX", "ROLES", "TENANT", "LAST USED", "EXPIRES", "STATE")
    grid = Grid(columns=columns, rows=rows, empty="there are no keys")
    session.show([_plain_key(one) for one in found], grid)


def rotate(session: Session, key_id: KeyId, *, overlap: Overlap = None) -> None:
    """Give a key another secret; the one before stays valid for a while."""
    overlap_ms = OVERLAP_MS if overlap is None else _duration_ms(overlap, "--overlap")
    with session.connect() as client:
        rotated = client.rotate_key(key_id, overlap_ms=overlap_ms)
    _tell_secret(session, rotated)


def revoke(session: Session, key_id: KeyId, *, force: Force = False) -> None:
    """End a key: its next request is refused."""
    confirm(f"Everything that uses {key_id} will be refused.", is_forced=force)
    with session.connect() as client:
        revoked = client.revoke_key(key_id)
    if session.is_table:
        say(f"{revoked.id} is revoked")
    else:
        print_data(session.output, _plain_key(revoked))


def add(
    session: Session,
    principal: Principal,
    operation: OperationName,
    kind: KindName,
    resource: ResourceName,
    *,
    deny: Deny = False,
    host: Hosts = None,
) -> None:
    """Add an access rule."""
    with session.connect() as client:
        added = client.add_acl(
            principal, operation, kind, resource, effect="deny" if deny else "allow",
            hosts=host or (),
        )  # fmt: skip
    if session.is_table:
        say(f"rule {added.id}: {_words(added)}")
    else:
        print_data(session.output, _plain_acl(added))


def list_acls(session: Session) -> None:
    """List the access rules."""
    with session.connect() as client:
        found = client.list_acls()
    rows = [
        (
            one.id,
            one.effect,
            one.principal,
            one.operation,
            one.resource_type,
            one.resource_name,
            ", ".join(one.hosts) or "-",
        )
        for one in found
    ]
    columns = (">ID", "EFFECT", "PRINCIPAL", "OPERATION", "KIND", "RESOURCE", "HOSTS")
    grid = Grid(columns=columns, rows=rows, empty="there are no rules: roles decide")
    session.show([_plain_acl(one) for one in found], grid)


def remove(session: Session, acl_id: AclId) -> None:
    """Remove an access rule by its number."""
    with session.connect() as client:
        removed = client.remove_acl(acl_id)
    if session.is_table:
        say(f"rule {removed.id} is removed: {_words(removed)}")
    else:
        print_data(session.output, _plain_acl(removed))


def explain(
    session: Session,
    principal: Principal,
    operation: OperationName,
    kind: KindName,
    resource: ResourceName = "",
    *,
    host: Host = "",
) -> None:
    """Explain what would be decided about a request; nothing is done."""
    with session.connect() as client:
        verdict = client.explain_access(principal, operation, kind, resource, host=host)
    if not session.is_table:
        rules = [_plain_acl(one) for one in verdict.acls]
        told = {"allowed": verdict.is_allowed, "reason": verdict.reason, "rules": rules}
        print_data(session.output, told)
        return
    say(f"{'allowed' if verdict.is_allowed else 'refused'}: {verdict.reason}")
    for one in verdict.acls:
        say(f"  rule {one.id}: {_words(one)}")


def _duration_ms(text: str, option: str) -> int:
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError as error:
        raise usage(f"{option}: {error}") from error
    if duration_ms < 0:
        raise usage(f"{option}: {text} is negative")
    return duration_ms


def _tell_secret(session: Session, made: "KeySecret") -> None:
    if not session.is_table:
        print_data(session.output, {"key": made.secret, **_plain_key(made.key)})
        return
    remark(f"{made.key.id} ({preview(made.key.name)}); the key is not shown again:")
    say(made.secret)


def _words(acl: "AclState") -> str:
    words = f"{acl.effect} {acl.principal} {acl.operation} {acl.resource_type} {acl.resource_name}"
    return f"{words} from {', '.join(acl.hosts)}" if acl.hosts else words


def _plain_key(key: "KeyState") -> dict[str, object]:
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "roles": key.roles,
        "scopes": key.scopes,
        "hosts": key.hosts,
        "tenant": key.tenant,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "last_used_ms": key.used_ms,
        "revoked": key.is_revoked,
    }


def _plain_acl(acl: "AclState") -> dict[str, object]:
    return {
        "id": acl.id,
        "effect": acl.effect,
        "principal": acl.principal,
        "operation": acl.operation,
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "hosts": acl.hosts,
    }
