"""Decisions: compared with a model that goes through everything, one by one."""

import re
import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.deeds import Deed, Permission, ResourceKind
from goqueue.base.errors import InvalidRequestError
from goqueue.core.security.access import Access, Principal
from goqueue.core.security.need import ALL, ANY, Need
from goqueue.core.security.needs import NAMING, Naming, needs_of
from goqueue.core.security.roles import ROLES
from goqueue.core.security.rule import Rule, check_rule, matcher, read_scope

KINDS = [one for one in ResourceKind if one is not ResourceKind.NOTHING]
PERMISSIONS = [one for one in Permission if one is not Permission.NOTHING]
NAMES = ["a", "a.b", "orders", "orders.eu", "orders.dlq", "acme.orders", "orders-value"]
PATTERNS = [*NAMES, "*", "orders*", "*.eu", "?", "a?b", "o*s", "acme.*"]
PRINCIPALS = ["key_1", "key_2", "role:producer", "role:readonly", "group:ops", "*"]


def a_rule(
    principal: str = "key_1",
    operation: str = "read",
    kind: str = "topic",
    name: str = "orders",
    *,
    allow: bool = True,
    hosts: tuple[str, ...] = (),
    number: int = 1,
) -> Rule:
    return Rule(
        id=number,
        principal=principal,
        kind=kind,
        name=name,
        operation=operation,
        is_allowed=allow,
        hosts=hosts,
    )


def may(subject: Principal, *rules: Rule, need: str) -> bool:
    permission, kind, *name = need.split(" ")
    asked = Need(Permission(permission), ResourceKind(kind), "".join(name))
    return Access(subject, rules).allows(asked)


# The model.


def covers(operation: str, permission: Permission, *, implied: bool) -> bool:
    if operation in (ALL, permission.value):
        return True
    return implied and permission is Permission.DESCRIBE and operation in ("read", "write")


def about(rule: Rule, subject: Principal, need: Need, *, implied: bool) -> bool:
    means = {
        subject.name, "*", *subject.groups, *(f"role:{role}" for role in subject.roles)
    }  # fmt: skip
    fits = rule.name == ANY or fnmatchcase(need.name, rule.name)
    return (
        rule.principal in means
        and rule.kind in (ANY, need.kind.value)
        and fits
        and covers(rule.operation, need.permission, implied=implied)
    )


def model(subject: Principal, rules: list[Rule], need: Need) -> bool:
    """Return the decision by the words of the documentation."""
    if subject.is_root:
        return True
    if any(not one.is_allowed and about(one, subject, need, implied=False) for one in rules):
        return False
    own = need.name.startswith(f"{subject.tenant}.")
    if need.kind is ResourceKind.CLUSTER:
        own = False
    if need.kind is ResourceKind.TENANT:
        own = need.name == subject.tenant
    within = not subject.scopes or any(
        covers(one.operation, need.permission, implied=True)
        and one.kind in (ANY, need.kind.value)
        and (one.name == ANY or fnmatchcase(need.name, one.name))
        for one in subject.scopes
    )
    by_role = any(
        kind in (ANY, need.kind.value) and covers(operation, need.permission, implied=True)
        for role in subject.roles
        for operation, kind in ROLES[role]
    )
    by_rule = any(one.is_allowed and about(one, subject, need, implied=True) for one in rules)
    if (subject.tenant is None or own) and within and (by_role or by_rule):
        return True
    if need.kind is ResourceKind.SUBJECT and need.permission in (
        Permission.READ, Permission.DESCRIBE,
    ):  # fmt: skip
        stems = {re.sub(f"{suffix}$", "", need.name) for suffix in ("", "-key", "-value")}
        return any(
            model(subject, rules, Need(permission, ResourceKind.TOPIC, stem))
            for stem in stems
            for permission in (Permission.READ, Permission.WRITE)
        )
    return False


rules = st.builds(
    a_rule,
    principal=st.sampled_from(PRINCIPALS),
    operation=st.sampled_from([ALL, *(one.value for one in PERMISSIONS)]),
    kind=st.sampled_from([ANY, *(one.value for one in KINDS)]),
    name=st.sampled_from(PATTERNS),
    allow=st.booleans(),
)
scopes = st.sampled_from(
    ["topic:orders*", "read:topic:*", "*:*", "group:a", "write:*:orders", "subject:orders-value"]
).map(read_scope)
subjects = st.builds(
    Principal,
    name=st.sampled_from(["key_1", "key_2"]),
    roles=st.lists(st.sampled_from(list(ROLES)), max_size=2).map(tuple),
    groups=st.sampled_from([(), ("group:ops",)]),
    scopes=st.lists(scopes, max_size=2).map(tuple),
    tenant=st.sampled_from([None, None, "acme"]),
    is_root=st.sampled_from([False, False, False, True]),
)
needs = st.builds(
    Need, st.sampled_from(PERMISSIONS), st.sampled_from(KINDS), st.sampled_from(NAMES)
)


@given(subject=subjects, known=st.lists(rules, max_size=8), need=needs)
def test_decisions_are_those_of_the_words(
    subject: Principal, known: list[Rule], need: Need
) -> None:
    """Compiled or not, the same is allowed."""
    assert Access(subject, known).allows(need) == model(subject, known, need)


@given(subject=subjects, known=st.lists(rules, max_size=8), need=needs)
def test_what_is_allowed_somewhere_is_allowed_in_general(
    subject: Principal, known: list[Rule], need: Need
) -> None:
    """A request without a name yet is never refused where one with a name would pass."""
    access = Access(subject, known)
    by_topic = need.kind is ResourceKind.SUBJECT
    if access.allows(need) and not by_topic:
        assert access.allows_some(need.permission, need.kind)


# Stories.


def test_denying_wins_over_roles_and_rules_but_not_over_the_root_key() -> None:
    """Also where the rule that denies is the broader one, and from another principal's words."""
    admin = Principal(name="key_1", roles=("admin",))
    deny = a_rule("*", ALL, ANY, "*", allow=False)
    allow = a_rule("key_1", "read", "topic", "orders")

    assert may(admin, need="admin cluster")
    assert not may(admin, deny, allow, need="read topic orders")
    assert not may(admin, a_rule("role:admin", "delete", "topic", "o*", allow=False),
                   need="delete topic orders")  # fmt: skip
    root = Principal(name="root", is_root=True)
    assert may(root, deny, need="delete topic orders")


def test_a_rule_for_groups_does_not_undo_a_denial_for_topics() -> None:
    """What is allowed on one kind says nothing of another."""
    someone = Principal(name="key_1")
    known = (
        a_rule(operation=ALL, kind="topic", name="*", allow=False),
        a_rule(operation=ALL, kind="group", name="orders"),
    )

    assert may(someone, *known, need="read group orders")
    assert not may(someone, *known, need="read topic orders")
    assert not may(someone, *known, need="write topic orders")


@pytest.mark.parametrize(
    "name",
    ["ORDERS", "orders%2e", "orders.", "orders\x00", "orders ", " orders", "order", "orders/",
     "\u043erders", "orders.dlq", "./orders", "orders\n", "*", "o?ders", "orders*", "", "..",
     "orders\u200b", "ord\u0435rs", "orders.eu", "__orders"],
)  # fmt: skip
def test_other_ways_to_write_a_name_are_other_names(name: str) -> None:
    """A rule for ``orders`` is about ``orders`` and nothing that looks like it."""
    need = Need(Permission.READ, ResourceKind.TOPIC, name)

    assert not Access(Principal(name="key_1"), [a_rule()]).allows(need)


def test_roles_allow_what_they_say() -> None:
    """Reading is not writing, describing is not reading, and nothing but admin is admin."""
    allowed = {
        role: {
            f"{permission.value} {kind.value}"
            for permission in PERMISSIONS
            for kind in KINDS
            if Access(Principal(name="k", roles=(role,)), ()).allows(Need(permission, kind, "a"))
        }
        for role in ROLES
    }

    assert len(allowed["admin"]) == len(PERMISSIONS) * len(KINDS)
    assert allowed["producer"] == {
        "write topic", "describe topic", "write transaction", "describe transaction",
        "read subject", "describe subject",
    }  # fmt: skip
    assert allowed["consumer"] == {
        "read topic", "describe topic", "read group", "describe group", "read subject",
        "describe subject",
    }  # fmt: skip
    assert allowed["readonly"] == {f"describe {kind.value}" for kind in KINDS}
    assert allowed["metrics"] == {"describe cluster"}


def test_internal_topics_are_for_admins() -> None:
    """A role on all topics is none on those of the broker."""
    reader = Principal(name="key_1", roles=("consumer",))
    assert not may(reader, need="read topic __state")
    assert not may(reader, a_rule(name="__state"), need="read topic __state")
    assert may(Principal(name="k", roles=("admin",)), need="read topic __state")


def test_a_tenant_is_a_fence() -> None:
    """Names outside are refused whatever roles and rules say; a prefix needs its dot."""
    ours = Principal(name="k", roles=("tenant-admin",), tenant="acme")

    assert may(ours, need="delete topic acme.orders")
    assert may(ours, need="admin tenant acme")
    for need in ("read topic orders", "read topic acme", "read topic acmex.orders",
                 "describe cluster", "admin cluster", "admin tenant other"):  # fmt: skip
        assert not may(ours, a_rule("k", ALL, ANY, "*"), need=need), need


@pytest.mark.parametrize("network", ["10.0.0.0/8", "::ffff:10.0.0.0/104"])
def test_rules_count_for_the_networks_they_name(network: str) -> None:
    """Written for IPv4 they count for its addresses in IPv6, too, and the other way round."""
    rule = a_rule(hosts=(network,))
    for host, expected in (("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False),
                           ("", False), ("fe80::1%eth0", False)):  # fmt: skip
        someone = Principal(name="key_1", host=host)
        assert may(someone, rule, need="read topic orders") is expected, host


def test_a_decision_says_why() -> None:
    """An operator sees the rule, the role or the scope that decided."""
    someone = Principal(name="key_1", roles=("consumer",), scopes=(read_scope("topic:o*"),))
    access = Access(someone, [a_rule(name="orders", allow=False, number=7)])
    read = [
        access.decide(Need(Permission.READ, ResourceKind.TOPIC, name)).reason
        for name in ("orders", "others", "payments")
    ]

    assert read[0] == "denied by rule 7"
    assert read[1] == "allowed by the role consumer"
    assert read[2] == "it is outside the scopes of the credential"


def test_patterns_of_many_stars_take_no_time() -> None:
    """A pattern is no way to keep the broker busy."""
    hostile = matcher("*a" * 120 + "b")
    started = time.process_time()
    for _ in range(100):
        assert not hostile("a" * 249)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "broken",
    [a_rule(""), a_rule("key 1"), a_rule("k" * 300), a_rule(operation="fly"), a_rule(kind="moon"),
     a_rule(name=""), a_rule(name="[a]"), a_rule(name="a\x1b"), a_rule(hosts=("10.0.0.0/99",)),
     a_rule(hosts=("example.org",)), a_rule(operation="nothing"), a_rule(kind="nothing")],
)  # fmt: skip
def test_rules_from_outside_are_checked(broken: Rule) -> None:
    """Each field has its grammar and its limit."""
    with pytest.raises(InvalidRequestError):
        check_rule(broken)


@pytest.mark.parametrize("text", ["", "topic", "fly:topic:a", "topic:", "a:b:c:d", "read:moon:a"])
def test_scopes_from_outside_are_checked(text: str) -> None:
    """A scope that says nothing sensible is refused, not ignored."""
    with pytest.raises(InvalidRequestError):
        read_scope(text)


# What deeds need.


def test_every_deed_is_in_the_table_once() -> None:
    """What is not in it is refused."""
    assert NAMING.keys() == set(Deed)
    for deed, naming in NAMING.items():
        free = naming in (Naming.OPEN, Naming.KNOWN)
        assert free == (deed.permission is Permission.NOTHING), deed


def test_dead_letters_are_named_by_their_topic() -> None:
    """Looking at the dead letters of a topic needs the topic of the letters, not the topic."""
    assert [str(one) for one in needs_of(Deed.PEEK_DLQ, ("orders",))] == ["read topic 'orders.dlq'"]
    assert [str(one) for one in needs_of(Deed.START_REDRIVE, ("orders.dlq",))] == [
        "delete topic 'orders.dlq'", "read topic 'orders.dlq'",
    ]  # fmt: skip
    assert [str(one) for one in needs_of(Deed.PUBLISH, ("orders",))] == ["write topic 'orders'"]
    assert [str(one) for one in needs_of(Deed.MAKE_KEY, ("key_1",))] == ["admin cluster"]
