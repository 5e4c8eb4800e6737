"""Proposals: a closed union, bounded, whatever bytes come; repeats get the first answer."""

import contextlib
import random
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.base.cluster_limits import ANSWERS_MAX, ANSWERS_MS_MAX
from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    TooLargeError,
    TopicExistsError,
)
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.verbs import VERBS, decide
from tests.core.cluster.world import founded, rebuilt, state_of

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=50),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=20,
)
TAGS = [one.__struct_config__.tag for one in typing.get_args(commands.Command)]


def test_every_command_has_one_verb() -> None:
    """And every verb a command."""
    assert set(VERBS) == set(typing.get_args(commands.Command))
    assert len(set(TAGS)) == len(TAGS)


@given(st.sampled_from(TAGS), st.lists(JUNK, max_size=8), st.text(max_size=80))
@settings(max_examples=400, deadline=None)
def test_hostile_proposals_are_decided_or_refused(tag: str, fields: list[object], key: str) -> None:
    """Whatever is in the fields: an error of ours or a decision, and an image that holds."""
    world = founded("a", "b", "c")
    world.create("orders", 3)
    before = state_of(world.image)
    try:
        proposal = commands.decode_proposal(msgspec.msgpack.encode([[tag, *fields], key]))
        decision = decide(world.image, proposal, now_ms=5_000)
    except GoQueueError:
        assert state_of(world.image) == before
        return
    assert state_of(world.image) == before, "deciding changes nothing"
    for entry in events.entries(decision.events):
        world.apply(entry)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_no_proposal(data: bytes) -> None:
    """Or one that is well formed by chance."""
    with contextlib.suppress(InvalidRequestError):
        commands.decode_proposal(data)


def test_cut_and_flipped_proposals_are_refused_or_read() -> None:
    """Every prefix, and bits flipped at random."""
    chance = random.Random(7)
    good = commands.encode_proposal(
        commands.Proposal(
            command=commands.StartReassignment(
                parts=[commands.PartMove(topic="orders", partition=0, new=["a", "b"])]
            ),
            request_id="r1",
        )
    )
    for size in range(len(good)):
        with pytest.raises(InvalidRequestError):
            commands.decode_proposal(good[:size])
    for _ in range(2_000):
        damaged = bytearray(good)
        damaged[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        with contextlib.suppress(InvalidRequestError):
            commands.decode_proposal(bytes(damaged))


@pytest.mark.parametrize(
    "fields",
    [
        ["create", "x" * 250, 1],
        ["create", "x", 2**31],
        ["create", "x", -1],
        ["create", "x", 1, {str(number): 1 for number in range(101)}],
        ["create", "x", 1, {}, {0: ["n"] * 16}],
        ["register", "blue", "a", "d", 1, "h" * 301],
        ["isr", "a", 1, [[1, 0, 1, 1, [["a", 1]] * 31]]],
        ["move", []],
        ["ids", "producer", 64],
        ["balance", 101],
        ["elect", [], "any", 3],
        ["elect", [], "unclean"],
        ["state", {}],
        ["metadata", {}],
        ["vote", "a", 7],
    ],
)
def test_bounds_are_checked_before_anything_is_looked_up(fields: list[object]) -> None:
    """Names, counts and lengths; and there is no command that sets state."""
    with pytest.raises(InvalidRequestError):
        commands.decode_proposal(msgspec.msgpack.encode([fields]))


def test_a_giant_proposal_is_not_even_read() -> None:
    """Its size is compared first."""
    with pytest.raises(TooLargeError):
        commands.decode_proposal(b"\x00" * (2 * 1024 * 1024))


def test_hostile_names_go_nowhere() -> None:
    """Neither a topic nor a node can be called so."""
    world = founded("a")
    for name in ("..", ".", "", "a/b", "a\0b", "a\nb", "ä", "%2e%2e", "\x1b[2J"):
        with pytest.raises(InvalidRequestError):
            world.create(name)
        with pytest.raises(InvalidRequestError):
            world.register(name, directory="disk")
        with pytest.raises(InvalidRequestError):
            world.ids(name)


def test_a_repeated_proposal_gets_the_first_answer() -> None:
    """Also from another controller, and although the topic is there by now."""
    world = founded("a")
    create = commands.CreateTopic(name="orders", partitions=2)
    first = world.propose(create, "request-1")
    world.image = rebuilt(state_of(world.image))
    before = len(world.log)

    assert world.propose(create, "request-1") == first
    assert len(world.log) == before
    with pytest.raises(TopicExistsError):
        world.propose(create, "request-2")
    with pytest.raises(InvalidRequestError, match="CreateTopic"):
        world.propose(commands.DeleteTopic(name="orders"), "request-1")


def test_a_refused_proposal_is_decided_again() -> None:
    """It changed nothing, so there is nothing to remember."""
    world = founded("a")
    world.fence("a")
    create = commands.CreateTopic(name="orders", partitions=2)
    with pytest.raises(GoQueueError):
        world.propose(create, "request-1")
    world.start("a")
    world.propose(create, "request-1")

    assert world.image.partition_count == 2


def test_answers_are_kept_for_a_while_and_bounded() -> None:
    """Five minutes, and so many; times that go back change nothing of that."""
    world = founded("a")
    image = world.image
    answer = events.ProposalAnswered(
        request_id="first", kind="x", at_ms=10_000, reply=world.register("b")
    )
    image.apply(answer)
    image.apply(msgspec.structs.replace(answer, request_id="second", at_ms=0))
    later = 10_000 + ANSWERS_MS_MAX
    image.apply(msgspec.structs.replace(answer, request_id="third", at_ms=later - 1))
    assert set(image.answers) == {"first", "second", "third"}
    assert state_of(rebuilt(state_of(image))) == state_of(image)
    image.apply(msgspec.structs.replace(answer, request_id="fourth", at_ms=later))
    assert set(image.answers) == {"third", "fourth"}
    for number in range(ANSWERS_MAX + 10):
        image.apply(msgspec.structs.replace(answer, request_id=f"n{number}", at_ms=later))

    assert len(image.answers) == ANSWERS_MAX
