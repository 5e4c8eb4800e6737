"""Whether somebody may do something, and why.

Shape: calculator. Allowed is what no rule denies, what a role or a rule allows, and what lies
within the scopes of the credential and the names of its tenant. Denying wins over everything; only
the root key is above it, so that a rule cannot lock everybody out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from goqueue.base.deeds import Permission, ResourceKind
from goqueue.base.names import is_internal
from goqueue.core.security.need import ANY, Need
from goqueue.core.security.roles import ROLES
from goqueue.core.security.rule import (
    ROLE_PREFIX,
    Matcher,
    Rule,
    Scope,
    covers,
    is_within,
)

EVERYBODY: Final = frozenset({ANY})
_SCHEMA_SUFFIXES: Final = ("", "-key", "-value")
_READS: Final = frozenset({Permission.READ, Permission.DESCRIBE})
_OWNED: Final = frozenset(
    {
        ResourceKind.TOPIC,
        ResourceKind.GROUP,
        ResourceKind.SUBJECT,
        ResourceKind.TRANSACTION,
        ResourceKind.SCHEDULE,
    }
)
"""Kinds whose names belong to tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who was authenticated, as far as decisions go."""

    name: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Principals ``group:NAME`` that an identity provider vouches for."""
    scopes: tuple[Scope, ...] = ()
    tenant: str | None = None
    host: str = ""
    is_root: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Every principal of rules that means this one."""
        roles = (ROLE_PREFIX + role for role in self.roles)
        return EVERYBODY | {self.name, *self.groups, *roles}


class Verdict(NamedTuple):
    """A decision, and what it rests on."""

    is_allowed: bool
    reason: str
    rules: tuple[Rule, ...] = ()
    """The rules that are about the need; those that deny come first."""


@dataclass(slots=True)
class _Side:
    """The rules of one effect: those for one name by that name, and those with patterns."""

    literals: dict[tuple[str, str], list[Rule]] = field(default_factory=dict)
    patterns: list[tuple[Callable[[str], object], Rule]] = field(default_factory=list)

    def add(self, rule: Rule) -> None:
        known = Matcher(rule.name)
        if known.is_literal:
            self.literals.setdefault((rule.kind, rule.name), []).append(rule)
        else:
            self.patterns.append((known.matches, rule))

    def about(self, need: Need, *, is_allowed: bool) -> Iterator[Rule]:
        kind, name = need.kind.value, need.name
        named = (self.literals.get((one, name), ()) for one in (kind, ANY))
        fitting = (
            rule
            for matches, rule in self.patterns
            if rule.kind in (kind, ANY) and (rule.name == ANY or matches(name))
        )
        for rule in chain(*named, fitting):
            if covers(rule.operation, need.permission, is_allowed=is_allowed):
                yield rule

    @property
    def rules(self) -> Iterator[Rule]:
        yield from chain.from_iterable(self.literals.values())
        yield from (rule for _, rule in self.patterns)


class Access:
    """What one subject may do by the rules there are: compiled once, asked often."""

    def __init__(self, subject: Principal, rules: Iterable[Rule]) -> None:
        self.subject = subject
        self._denied, self._allowed = _Side(), _Side()
        names = subject.names
        for rule in rules:
            if rule.principal in names and is_within(subject.host, rule.hosts):
                (self._allowed if rule.is_allowed else self._denied).add(rule)
        self._scopes = [(scope, Matcher(scope.name)) for scope in subject.scopes]

    def __repr__(self) -> str:
        return f"<Access of {self.subject.name}>"

    def allows(self, need: Need) -> bool:
        """Return True if the subject may do it."""
        return self.decide(need).is_allowed

    def decide(self, need: Need) -> Verdict:
        """Return whether the subject may do it, and why."""
        subject = self.subject
        if subject.is_root:
            return Verdict(is_allowed=True, reason="the root key may do everything")
        denied = tuple(self._denied.about(need, is_allowed=False))
        if denied:
            reason = f"denied by rule {denied[0].id}"
            return Verdict(is_allowed=False, reason=reason, rules=denied)
        outside = self._outside(need)
        found = Verdict(is_allowed=False, reason=outside) if outside else self._granted(need)
        return found if found.is_allowed else self._by_topic(need) or found

    def _granted(self, need: Need) -> Verdict:
        """Return a verdict by roles and rules on what nothing forbids."""
        if need.kind is ResourceKind.TOPIC and is_internal(need.name):
            admin = self.decide(Need(Permission.ADMIN, ResourceKind.CLUSTER))
            return Verdict(is_allowed=admin.is_allowed, reason=f"internal topic: {admin.reason}")
        role = next((one for one in self.subject.roles if _role_allows(one, need)), None)
        if role is not None:
            return Verdict(is_allowed=True, reason=f"allowed by the role {role}")
        allowed = tuple(self._allowed.about(need, is_allowed=True))
        if allowed:
            reason = f"allowed by rule {allowed[0].id}"
            return Verdict(is_allowed=True, reason=reason, rules=allowed)
        return Verdict(is_allowed=False, reason="no role and no rule allows it")

    def allows_some(self, permission: Permission, kind: ResourceKind) -> bool:
        """Return True if the subject may do it to some resource, as far as rules tell.

        For requests whose resource is found later, or that are about none in particular.
        """
        subject = self.subject
        if subject.is_root:
            return True
        kinds = (kind.value, ANY)
        is_denied = any(
            rule.name == ANY
            and rule.kind in kinds
            and covers(rule.operation, permission, is_allowed=False)
            for rule in self._denied.rules
        )
        is_within_scopes = not self._scopes or any(
            covers(scope.operation, permission) and scope.kind in kinds for scope, _ in self._scopes
        )
        if is_denied or not is_within_scopes:
            return False
        by_role = (
            covers(operation, permission) and of in kinds
            for role in subject.roles
            for operation, of in ROLES.get(role, ())
        )
        by_rule = (
            covers(rule.operation, permission) and rule.kind in kinds
            for rule in self._allowed.rules
        )
        return any(by_role) or any(by_rule)

    def _outside(self, need: Need) -> str:
        """Return why a need is beyond the tenant or the scopes; nothing if it is within."""
        tenant = self.subject.tenant
        if tenant is not None and not _is_of_tenant(need, tenant):
            return f"it does not belong to the tenant {tenant}"
        if not self._scopes:
            return ""
        for scope, known in self._scopes:
            if (
                covers(scope.operation, need.permission)
                and scope.kind in (need.kind.value, ANY)
                and (scope.name == ANY or known.matches(need.name))
            ):
                return ""
        return "it is outside the scopes of the credential"

    def _by_topic(self, need: Need) -> Verdict | None:
        """Return a verdict by the topic that a subject of the registry is for, if it has one."""
        if need.kind is not ResourceKind.SUBJECT or need.permission not in _READS:
            return None
        for suffix in _SCHEMA_SUFFIXES:
            topic = need.name.removesuffix(suffix)
            if not topic or (suffix and topic == need.name):
                continue
            for permission in (Permission.READ, Permission.WRITE):
                found = self.decide(Need(permission, ResourceKind.TOPIC, topic))
                if found.is_allowed:
                    return found._replace(reason=f"{found.reason}, on the topic {topic}")
        return None


def _role_allows(role: str, need: Need) -> bool:
    return any(
        kind in (need.kind.value, ANY) and covers(operation, need.permission)
        for operation, kind in ROLES.get(role, ())
    )


def _is_of_tenant(need: Need, tenant: str) -> bool:
    if need.kind in _OWNED:
        return need.name.startswith(f"{tenant}.")
    if need.kind is ResourceKind.TENANT:
        return need.name == tenant
    return False
