"""Keys and rules as they are kept: made, rotated, ended, and the same again after a restart."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.errors import (
    AclNotFoundError,
    GoQueueError,
    InvalidRequestError,
    KeyNotFoundError,
    OverloadedError,
)
from goqueue.core.security import commands, directory
from goqueue.core.security.attempts import Attempts, source_of
from goqueue.core.security.directory import Directory
from goqueue.core.security.events import Event
from goqueue.core.security.keys import KeyTerms
from goqueue.core.security.rule import Rule

RULE = Rule(id=0, principal="*", kind="topic", name="a*", operation="read", is_allowed=True)
_decode = msgspec.msgpack.Decoder(Event).decode


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def a_key(number: int = 1, **terms: Any) -> commands.MakeKey:
    chosen = KeyTerms(**{"name": "a key", "roles": ("producer",), **terms})
    return commands.MakeKey(
        id=f"key_{number:016x}", digest=digest(f"{number}"), prefix="gq_12345678", terms=chosen
    )


def do(known: Directory, command: commands.Command, now_ms: int = 1_000) -> directory.Reply:
    decision = known.decide(command, now_ms=now_ms)
    for event in decision.events:
        known.apply(_decode(msgspec.msgpack.encode(event)))
    return decision.reply


def test_a_key_is_found_by_its_secret_until_it_ends() -> None:
    """Revoking and expiring are for good, and seen at once."""
    known = Directory()
    do(known, a_key(1, life_ms=500))
    do(known, a_key(2))
    one, two = (known.find(digest(text)) for text in "12")

    assert one is not None
    assert one.is_current(digest("1"), 1_499)
    assert not one.is_current(digest("1"), 1_500)
    assert two is not None
    do(known, commands.RevokeKey(id=two.id))
    revoked = known.find(digest("2"))
    assert revoked is not None
    assert not revoked.is_current(digest("2"), 1_000)
    assert known.find(digest("3")) is None


def test_rotation_leaves_the_old_secret_for_a_while() -> None:
    """Both are valid in between; a third rotation ends the first secret at once."""
    known = Directory()
    do(known, a_key())
    key_id = a_key().id
    do(known, commands.RotateKey(id=key_id, digest=digest("b"), prefix="gq_b", overlap_ms=100))
    key = known.key(key_id)

    assert key.is_current(digest("1"), 1_099)
    assert not key.is_current(digest("1"), 1_100)
    assert key.is_current(digest("b"), 10**12)
    assert known.next_end_ms(1_000) == 1_100
    do(known, commands.RotateKey(id=key_id, digest=digest("c"), prefix="gq_c", overlap_ms=100))
    assert known.find(digest("1")) is None
    with pytest.raises(InvalidRequestError):
        do(known, commands.RotateKey(id=key_id, digest=digest("b"), prefix="gq_b"))


def test_a_request_that_is_repeated_gets_the_same_answer() -> None:
    """The answer may have been lost on its way."""
    known = Directory()

    assert do(known, a_key(), 1_000) == do(known, a_key(), 2_000)
    assert do(known, commands.AddRule(rule=RULE)) == do(known, commands.AddRule(rule=RULE))
    assert len(known.keys) == len(known.rules) == 1


def test_a_rule_is_removed_by_an_id_that_is_never_given_again() -> None:
    """Also over a restart from a snapshot in which no rule is left."""
    known = Directory()
    first = do(known, commands.AddRule(rule=RULE))
    assert isinstance(first, Rule)
    do(known, commands.RemoveRule(id=first.id))
    again = Directory()
    for event in known.snapshot():
        again.apply(event)
    second = do(again, commands.AddRule(rule=RULE))

    assert isinstance(second, Rule)
    assert second.id == first.id + 1
    with pytest.raises(AclNotFoundError):
        do(again, commands.RemoveRule(id=first.id))


@pytest.mark.parametrize(
    "terms",
    [{"name": ""}, {"name": "a\nb"}, {"name": "x" * 300}, {"roles": ("king",)},
     {"roles": ("admin",) * 17}, {"scopes": ("x",)}, {"scopes": ("topic:a",) * 101},
     {"hosts": ("nowhere",)}, {"tenant": "ACME"}, {"tenant": "__system"}, {"tenant": "ab"},
     {"tenant": "acme", "roles": ("admin",)}, {"roles": ("tenant-admin",)}, {"life_ms": -1},
     {"life_ms": 2**60}, {"notes": {"a": "\x1b[2J"}}, {"notes": {str(n): "" for n in range(40)}}],
)  # fmt: skip
def test_what_a_key_is_for_is_checked(terms: dict[str, Any]) -> None:
    """Every field has its grammar and its limit."""
    with pytest.raises(InvalidRequestError):
        do(Directory(), a_key(**terms))


def test_old_keys_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are valid no more go first; without any the next key is refused."""
    monkeypatch.setattr(directory, "KEYS_MAX", 3)
    monkeypatch.setattr(directory, "KEYS_FORGOTTEN_AT_ONCE", 1)
    known = Directory()
    for number in (1, 2, 3):
        do(known, a_key(number))
    with pytest.raises(OverloadedError):
        do(known, a_key(4))
    do(known, commands.RevokeKey(id=a_key(2).id), 2_000)
    do(known, commands.RevokeKey(id=a_key(1).id), 3_000)
    do(known, a_key(4))

    assert set(known.keys) == {a_key(number).id for number in (1, 3, 4)}
    with pytest.raises(KeyNotFoundError):
        known.key(a_key(2).id)


def test_uses_are_noted_once_a_minute() -> None:
    """The journal does not grow with requests, and grants stay valid."""
    known = Directory()
    do(known, a_key())
    version = known.version
    do(known, commands.NoteUses(uses=[(a_key().id, 100_000), ("key_gone", 5)]))
    assert known.key(a_key().id).used_ms == 100_000
    assert not known.decide(commands.NoteUses(uses=[(a_key().id, 159_999)]), now_ms=0).events
    assert known.version == version


steps = st.lists(
    st.one_of(
        st.integers(1, 4).map(a_key),
        st.builds(
            lambda key, secret: commands.RotateKey(
                id=a_key(key).id, digest=digest(f"r{secret}"), prefix="gq_r", overlap_ms=50
            ),
            st.integers(1, 4),
            st.integers(1, 6),
        ),
        st.integers(1, 4).map(lambda key: commands.RevokeKey(id=a_key(key).id)),
        st.integers(1, 5).map(lambda rule: commands.RemoveRule(id=rule)),
        st.sampled_from("abc").map(
            lambda name: commands.AddRule(rule=msgspec.structs.replace(RULE, name=name))
        ),
    ),
    max_size=25,
)


@given(steps)
def test_a_snapshot_is_the_same_directory(done: list[commands.Command]) -> None:
    """At any time: what is found by which secret, and which rules there are, in their order."""
    known = Directory()
    for at, command in enumerate(done):
        try:
            do(known, command, 1_000 + at)
        except GoQueueError:
            continue
    again = Directory()
    for event in known.snapshot():
        again.apply(_decode(msgspec.msgpack.encode(event)))

    assert again.keys == known.keys
    assert list(again.rules.items()) == list(known.rules.items())
    for secret in [*"1234", *(f"r{number}" for number in range(1, 7))]:
        assert again.find(digest(secret)) == known.find(digest(secret))
    assert list(again.snapshot()) == list(known.snapshot())


# Guessing.


def test_guessing_costs_time_that_doubles() -> None:
    """Ten a minute, then a second, two, four … a quarter of an hour; a good one ends it."""
    attempts = Attempts(failures_max=10, lockout_ms_max=900_000)
    for _ in range(9):
        attempts.failed("1.2.3.4", now_ms=0)
    assert attempts.wait_ms("1.2.3.4", now_ms=0) == 0
    waits, now_ms = [], 0
    for _ in range(14):
        attempts.failed("1.2.3.4", now_ms=now_ms)
        waits.append(attempts.wait_ms("1.2.3.4", now_ms=now_ms) // 1_000)
        now_ms += waits[-1] * 1_000

    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900]
    attempts.failed("5.6.7.8", now_ms=now_ms)
    assert attempts.wait_ms("5.6.7.8", now_ms=now_ms) == 0
    attempts.succeeded("1.2.3.4")
    assert attempts.wait_ms("1.2.3.4", now_ms=now_ms) == 0


def test_a_million_addresses_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were unheard of for longest are forgotten."""
    monkeypatch.setattr("goqueue.core.security.attempts.ADDRESSES_MAX", 100)
    attempts = Attempts(failures_max=1, lockout_ms_max=1_000)
    for number in range(1_000):
        attempts.failed(f"10.0.{number // 256}.{number % 256}", now_ms=0)

    assert len(attempts) == 100
    assert attempts.wait_ms("10.0.0.0", now_ms=0) == 0
    assert attempts.wait_ms("10.0.3.231", now_ms=0) == 1_000


def test_failures_are_counted_by_site() -> None:
    """Who has one address of IPv6 has 2⁶⁴ of them; a mapped IPv4 address is that address."""
    assert source_of("2001:db8::1") == source_of("2001:db8::ffff:2") == "2001:db8::/64"
    assert source_of("::ffff:10.0.0.1") == source_of("10.0.0.1") == "10.0.0.1"
    assert source_of("fe80::1%eth0") == "fe80::/64"
    assert source_of("") == ""
