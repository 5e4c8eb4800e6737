"""``goqueue cluster rebalance`` and ``goqueue cluster reassign``: replicas move between nodes."""

from typing import Annotated, Any

import typer

from goqueue.base.units import format_size_bytes, parse_size_bytes
from goqueue.cli.cluster_port import KeyOption, NodeOption, ask
from goqueue.cli.failure import usage
from goqueue.cli.output import Grid, count, print_data, print_grid, say
from goqueue.cli.session import Session, add_common_options, command, confirm

PATH = "/cluster/reassignment"

Drain = Annotated[
    list[str] | None,
    typer.Option("--drain", metavar="NODE", help="Move everything away from it; repeatable."),
]
Throttle = Annotated[
    str | None,
    typer.Option(help='Bytes a second that a node sends or receives at most, e.g. "50MiB".'),
]
Apply = Annotated[bool, typer.Option("--apply", help="Begin to move; without it nothing is.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]
Moves = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC/PARTITION=NODE,NODE...", help="New replicas, the leader first."),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="As `goqueue cluster reassign list` says.")]


def register(cluster: typer.Typer) -> None:
    """Add the commands."""
    command(cluster, "rebalance")(rebalance)
    reassign = typer.Typer()
    add_common_options(reassign, "Moves of replicas: begin, look, pause, take back.")
    command(reassign, "start")(start)
    command(reassign, "list")(list_all)
    command(reassign, "status")(status)
    command(reassign, "pause")(pause)
    command(reassign, "resume")(resume)
    command(reassign, "cancel")(cancel)
    cluster.add_typer(reassign, name="reassign")


def rebalance(
    session: Session,
    *,
    drain: Drain = None,
    throttle: Throttle = None,
    apply: Apply = False,
    force: Force = False,
    node: NodeOption = None,
    key_file: KeyOption = None,
) -> None:
    """Show which moves would even out the nodes, or empty some; with --apply begin them.

    Example: goqueue cluster rebalance --drain c --apply
    """
    rate = _bytes(throttle)
    asked = {"drain": drain or [], "throttle_bytes_per_sec": rate}
    plan = ask(session, f"{PATH}/plan", node, key_file, body=asked)
    if session.is_table:
        _show_plan(plan)
    if not apply or not plan["partitions"]:
        if not session.is_table:
            print_data(session.output, plan)
        return
    moves = count(len(plan["partitions"]), "partition")
    confirm(f"{moves} will move.", is_forced=force)
    parts = [{k: v for k, v in one.items() if k != "bytes"} for one in plan["partitions"]]
    body = {"partitions": parts, "throttle_bytes_per_sec": rate}
    _tell(session, ask(session, PATH, node, key_file, body=body))


def start(
    session: Session,
    moves: Moves,
    *,
    throttle: Throttle = None,
    node: NodeOption = None,
    key_file: KeyOption = None,
) -> None:
    """Move the replicas of partitions to other nodes.

    Example: goqueue cluster reassign start orders/0=b,c,d --throttle 50MiB
    """
    parts = [_part(text) for text in moves]
    body = {"partitions": parts, "throttle_bytes_per_sec": _bytes(throttle)}
    _tell(session, ask(session, PATH, node, key_file, body=body))


def list_all(session: Session, *, node: NodeOption = None, key_file: KeyOption = None) -> None:
    """List the reassignments that are remembered."""
    found = ask(session, PATH, node, key_file)["reassignments"]
    rows = [
        (one["id"], one["state"], len(one["request"]["partitions"]), one["started_at"])
        for one in found
    ]
    grid = Grid(columns=("ID", "STATE", ">PARTITIONS", "STARTED"), rows=rows, empty="none")
    session.show(found, grid)


def status(
    session: Session, name: Id, *, node: NodeOption = None, key_file: KeyOption = None
) -> None:
    """Show how far a reassignment is."""
    found = ask(session, f"{PATH}/{name}", node, key_file)
    if not session.is_table:
        print_data(session.output, found)
        return
    say(f"{found['id']}: {found['state']}")
    rows = [
        (
            f"{one['topic']}/{one['partition']}",
            one["state"],
            f"{one['catchup_percent']:.1f} %",
            format_size_bytes(one["bytes_transferred"]),
            one.get("error", ""),
        )
        for one in found["progress"].values()
    ]
    print_grid(Grid(columns=("PARTITION", "STATE", ">THERE", ">COPIED", "ERROR"), rows=rows))


def pause(
    session: Session, name: Id, *, node: NodeOption = None, key_file: KeyOption = None
) -> None:
    """Copy nothing more of a reassignment until it is resumed."""
    _tell(session, ask(session, f"{PATH}/{name}/pause", node, key_file, body={}))


def resume(
    session: Session, name: Id, *, node: NodeOption = None, key_file: KeyOption = None
) -> None:
    """Go on with a reassignment that was paused."""
    _tell(session, ask(session, f"{PATH}/{name}/resume", node, key_file, body={}))


def cancel(
    session: Session, name: Id, *, node: NodeOption = None, key_file: KeyOption = None
) -> None:
    """Give the partitions that are not finished their old replicas back."""
    _tell(session, ask(session, f"{PATH}/{name}/cancel", node, key_file, body={}))


def _tell(session: Session, reply: Any) -> None:  # noqa: ANN401 - JSON
    if not session.is_table:
        print_data(session.output, reply)
        return
    name = reply.get("reassignment_id")
    say(f"{name}: {reply['message']}" if name else reply["message"])


def _show_plan(plan: Any) -> None:  # noqa: ANN401 - JSON
    rows = [
        (
            f"{one['topic']}/{one['partition']}",
            ",".join(one["old_replicas"]),
            ",".join(one["new_replicas"]),
            format_size_bytes(one["bytes"]),
        )
        for one in plan["partitions"]
    ]
    empty = "nothing to move"
    print_grid(Grid(columns=("PARTITION", "FROM", "TO", ">COPIES"), rows=rows, empty=empty))
    if rows:
        say()
        size = format_size_bytes(plan["total_bytes"])
        say(
            f"{count(len(rows), 'partition')}, {size}, {plan['duration_sec']:.0f} s at the throttle"
        )
    before, after = plan["skew_before"], plan["skew_after"]
    say(f"replicas: {before['replicas']} uneven now, {after['replicas']} then")
    say(f"leaders: {before['leaders']} uneven now, {after['leaders']} then")
    if plan["stuck_replicas"]:
        say(f"{count(plan['stuck_replicas'], 'replica')} cannot be moved: too few other nodes")
    if not plan["is_whole"]:
        say("more is to be moved than one reassignment may have; plan again when it is done")


def _bytes(text: str | None) -> int:
    if text is None:
        return 0
    try:
        rate = parse_size_bytes(text)
    except ValueError as error:
        raise usage(f"--throttle: {error}") from error
    if rate < 1:
        raise usage("--throttle: at least one byte a second")
    return rate


def _part(text: str) -> dict[str, object]:
    place, equals, nodes = text.partition("=")
    topic, slash, number = place.rpartition("/")
    if not (equals and slash and topic and number.isdecimal() and nodes):
        raise usage(f"{text}: write a move as TOPIC/PARTITION=NODE,NODE, e.g. orders/0=a,b,c")
    return {"topic": topic, "partition": int(number), "new_replicas": nodes.split(",")}
