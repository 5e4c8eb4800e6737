"""``goqueue group``: list, describe and delete consumer groups."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.base.units import US_PER_MS, format_duration_ms
from goqueue.cli import group_offsets
from goqueue.cli.group_name import GroupArgument
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, count, print_data, print_grid, print_pairs, say
from goqueue.cli.session import Session, add_common_options, command, confirm
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.wire.group_calls import GroupMember, GroupState, TopicPartitions

Force = Annotated[
    bool, typer.Option("-f", "--force", help="Do not ask, and delete it even with members.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer()
    add_common_options(group, "Consumer groups: who reads which partition.")
    command(group, "list")(list_groups)
    command(group, "describe")(describe)
    command(group, "members")(members)
    command(group, "delete")(delete)
    group_offsets.add_to(group)
    app.add_typer(group, name="group")


def list_groups(session: Session) -> None:
    """List the groups."""
    with session.connect() as client:
        groups = client.list_groups()
    data = [
        {
            "name": one.name,
            "state": one.state,
            "members": one.members,
            "generation": one.generation,
            "topics": list(one.topics),
            "mode": one.mode,
        }
        for one in groups
    ]
    rows = [
        (one.name, one.state, one.members, one.generation, one.mode, ",".join(one.topics) or "-")
        for one in groups
    ]
    session.show(
        data,
        Grid(
            columns=("NAME", "STATE", ">MEMBERS", ">GENERATION", "MODE", "TOPICS"),
            rows=rows,
            empty="no groups yet; the first consumer that joins one makes it",
        ),
    )


def describe(session: Session, name: GroupArgument) -> None:
    """Show a group's state, its options and its members."""
    with session.connect() as client:
        state = client.describe_group(name)
    if not session.is_table:
        print_data(session.output, _plain(state))
        return
    print_pairs(
        {
            "name": state.name,
            "state": state.state,
            "generation": state.generation,
            "protocol": state.protocol,
            "assignor": state.assignor,
            "rebalance": state.rebalance_state,
            "created": moment(state.created_ms * US_PER_MS),
            "topics": ", ".join(state.topics) or "-",
            **_readable(state),
        }
    )
    say()
    print_grid(_grid(state.members))


def members(session: Session, name: GroupArgument) -> None:
    """List the members of a group and what they read."""
    with session.connect() as client:
        state = client.describe_group(name)
    session.show([_plain_member(one) for one in state.members], _grid(state.members))


def delete(session: Session, name: GroupArgument, force: Force = False) -> None:
    """Delete a group with everything known of it; its messages stay in their topics."""
    with session.connect() as client:
        state = client.describe_group(name)
        present = f" It has {count(len(state.members), 'member')}." if state.members else ""
        confirm(f"{name} and its progress will be gone.{present}", is_forced=force)
        client.delete_group(name, force=force)
    if session.is_table:
        say(f"group {name} deleted")
    else:
        print_data(session.output, {"deleted": True, "name": name})


def _grid(present: "Iterable[GroupMember]") -> Grid:
    rows = [
        (
            one.id,
            _words(one.assignments),
            _words(one.to_revoke),
            moment(one.heard_ms * US_PER_MS),
            moment(one.joined_ms * US_PER_MS),
        )
        for one in present
    ]
    return Grid(
        columns=("MEMBER", "READS", "GIVES UP", "LAST HEARD", "JOINED"),
        rows=rows,
        empty="no members",
    )


def _words(assigned: "Iterable[TopicPartitions]") -> str:
    """Return partitions in few words: ``orders:0,1 events:2``."""
    parts = (f"{one.topic}:{','.join(map(str, one.partitions))}" for one in assigned)
    return " ".join(parts) or "-"


def _plain(state: "GroupState") -> dict[str, object]:
    return {
        "name": state.name,
        "state": state.state,
        "generation": state.generation,
        "protocol": state.protocol,
        "assignor": state.assignor,
        "rebalance_state": state.rebalance_state,
        "created_at": format_time_us(state.created_ms * US_PER_MS),
        "topics": list(state.topics),
        "options": dict(state.options),
        "members": [_plain_member(one) for one in state.members],
    }


def _plain_member(member: "GroupMember") -> dict[str, object]:
    return {
        "id": member.id,
        "client_id": member.client_id,
        "topics": list(member.topics),
        "assignments": _plain_parts(member.assignments),
        "to_revoke": _plain_parts(member.to_revoke),
        "joined_at": format_time_us(member.joined_ms * US_PER_MS),
        "last_heartbeat": format_time_us(member.heard_ms * US_PER_MS),
    }


def _plain_parts(assigned: "Iterable[TopicPartitions]") -> list[dict[str, object]]:
    return [
        {"topic": one.topic, "partition": number} for one in assigned for number in one.partitions
    ]


def _readable(state: "GroupState") -> dict[str, object]:
    """Return the options with their units spelled out."""
    readable: dict[str, object] = {}
    for name, value in state.options.items():
        is_duration = name.endswith("_ms") and isinstance(value, int)
        readable[name.removesuffix("_ms")] = (
            format_duration_ms(int(value)) if is_duration else value
        )
    return readable
