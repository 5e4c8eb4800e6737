"""``goqueue cluster remove``: a node leaves its cluster for good."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from goqueue.cli.cluster_port import KeyOption, NodeOption, ask
from goqueue.cli.output import print_data, remark
from goqueue.cli.session import Session, command, confirm

LOOK_SECONDS: Final = 0.5

Name = Annotated[str, typer.Argument(metavar="NODE", help="The node to remove.")]
Move = Annotated[
    bool, typer.Option("--move-replicas", help="Move what it holds to other nodes first.")
]
Cancel = Annotated[bool, typer.Option("--cancel", help="Let it stay after all.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is removed.")]


def register(cluster: typer.Typer) -> None:
    """Add the command."""
    command(cluster, "remove")(remove)


def remove(
    session: Session,
    *,
    name: Name,
    move_replicas: Move = False,
    cancel: Cancel = False,
    wait: Wait = True,
    force: Force = False,
    node: NodeOption = None,
    key_file: KeyOption = None,
) -> None:
    """Remove a node for good, dead or alive; its data directory cannot come back.

    Example: goqueue cluster remove node-3 --move-replicas
    """
    if not cancel:
        confirm(f"{name} is removed for good, with its data directory.", is_forced=force)
    body = {"node_id": name, "move_replicas": move_replicas, "cancel": cancel}
    begun = ask(session, "/cluster/remove", node, key_file, body=body)
    if cancel:
        _tell(session, f"{name} stays", {"node_id": name, "state": "kept"})
        return
    if wait:
        _wait(session, name, node, key_file)
    state = "removed" if wait else "removing"
    _tell(session, f"{name} {state}", {**begun, "state": state})


def _tell(session: Session, text: str, data: dict[str, Any]) -> None:
    if session.is_table:
        remark(text)
    else:
        print_data(session.output, data)


def _wait(session: Session, name: str, node: str | None, key_file: Path | None) -> None:
    """Say how many replicas are left, until the node is gone."""
    said = None
    while True:
        found = ask(session, "/cluster/state", node, key_file)
        if name not in found["cluster_state"]["nodes"]:
            return
        assignments = found["cluster_meta"]["assignments"].values()
        left = sum(name in one["replicas"] for one in assignments)
        if left != said:
            said = left
            remark(f"{name}: replicas of {left} partitions are left")
        time.sleep(LOOK_SECONDS)
