"""``goqueue cluster``: how a cluster stands, asked at the port between its nodes."""

from typing import Any

import typer

from goqueue.cli import cluster_members, cluster_moves
from goqueue.cli.cluster_port import KeyOption, NodeOption, ask
from goqueue.cli.output import Grid, print_data, print_pairs
from goqueue.cli.session import Session, add_common_options, command


def register(app: typer.Typer) -> None:
    """Add the commands."""
    cluster = typer.Typer()
    add_common_options(cluster, "A cluster: its nodes, its controller, its partitions.")
    command(cluster, "info")(info)
    command(cluster, "health")(health)
    command(cluster, "nodes")(nodes)
    cluster_members.register(cluster)
    cluster_moves.register(cluster)
    app.add_typer(cluster, name="cluster")


def info(session: Session, *, node: NodeOption = None, key_file: KeyOption = None) -> None:
    """Show what the cluster is, and who decides.

    Example: goqueue cluster info --node 127.0.0.1:7001
    """
    found = ask(session, "/cluster/state", node, key_file)
    state, meta = found["cluster_state"], found["cluster_meta"]
    assignments = meta["assignments"].values()
    shown = {
        "cluster_id": state["cluster_id"],
        "controller": found["controller_id"],
        "controller_epoch": found["controller_epoch"],
        "version": state["version"],
        "feature_level": state["feature_level"],
        "nodes": len(state["nodes"]),
        "topics": len(meta["topics"]),
        "partitions": len(assignments),
        "under_replicated": sum(len(one["isr"]) < len(one["replicas"]) for one in assignments),
        "offline": sum(not one["leader"] for one in assignments),
        "updated_at": state["updated_at"],
    }
    if session.is_table:
        print_pairs({name: value if value != "" else "-" for name, value in shown.items()})
    else:
        print_data(session.output, shown)


def health(session: Session, *, node: NodeOption = None, key_file: KeyOption = None) -> None:
    """Show how the cluster looks from a node; exit code 1 unless all nodes are alive.

    Example: goqueue cluster health -o json
    """
    found = ask(session, "/cluster/health", node, key_file)
    if session.is_table:
        stats = found["failure_detector_stats"]
        print_pairs(
            {
                "node": found["node_id"],
                "status": found["status"],
                "role": found["role"],
                "controller": found["controller_id"] or "-",
                "healthy": f"{found['healthy_nodes']} of {found['cluster_size']} nodes",
                "suspect": stats["suspect_count"],
                "dead": stats["dead_count"],
            }
        )
    else:
        print_data(session.output, found)
    if found["healthy_nodes"] != found["cluster_size"] or not found["controller_id"]:
        raise typer.Exit(1)


def nodes(session: Session, *, node: NodeOption = None, key_file: KeyOption = None) -> None:
    """List the nodes, and what each of them leads.

    Example: goqueue cluster nodes
    """
    found = ask(session, "/cluster/state", node, key_file)
    leaders = [one["leader"] for one in found["cluster_meta"]["assignments"].values()]
    listed = [
        {
            "id": one["id"],
            "status": one["status"],
            "role": one["role"],
            "quorum": one.get("quorum", ""),
            "leads": leaders.count(one["id"]),
            "client_address": _address(one["client_address"]),
            "cluster_address": _address(one["cluster_address"]),
            "version": one["version"],
            "epoch": one["epoch"],
            "rack": one.get("rack", ""),
            "last_heartbeat": one["last_heartbeat"],
        }
        for one in found["cluster_state"]["nodes"].values()
    ]
    columns = ("ID", "STATUS", "ROLE", "QUORUM", ">LEADS", "CLIENTS", "NODES", "HEARD")
    names = (
        "id", "status", "role", "quorum", "leads",
        "client_address", "cluster_address", "last_heartbeat",
    )  # fmt: skip
    rows = [[one[name] for name in names] for one in listed]
    session.show(listed, Grid(columns=columns, rows=rows, empty="no node is registered yet"))


def _address(address: dict[str, Any]) -> str:
    return f"{address['host']}:{address['port']}"
