"""``goqueue tx``: transactions that are open, and since when; end one that hangs."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.units import NS_PER_MS, US_PER_MS, format_duration_ms
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, print_data, print_pairs, say
from goqueue.cli.session import Common, Session, add_common_options, command, confirm
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.wire.tx_calls import TxState

COMPLETION_SECONDS: Final = 1.0
OPEN: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


def complete_ids(incomplete: str) -> list[str]:
    """Return the transactional ids a shell may offer."""
    session = Session(Common(timeout=str(COMPLETION_SECONDS)), os.environ, "")
    try:
        with session.connect() as client:
            names = [one.transactional_id for one in client.list_transactions()]
    except Exception:  # noqa: BLE001 - nothing may spoil the line somebody is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The transactional id.", autocompletion=complete_ids)
]
OpenOnly = Annotated[bool, typer.Option("--open", help="Only transactions that are not over.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, help="Most to show.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    tx = typer.Typer()
    add_common_options(tx, "Transactions: which are open, and since when.")
    command(tx, "list")(list_transactions)
    command(tx, "describe")(describe)
    command(tx, "abort")(abort)
    app.add_typer(tx, name="tx")


def list_transactions(session: Session, *, open: OpenOnly = False, limit: Limit = 1_000) -> None:  # noqa: A002
    """List transactional ids with their latest transaction."""
    with session.connect() as client:
        found = client.list_transactions(open_only=open, limit=limit)
    rows = [
        (
            one.transactional_id,
            _state_of(one),
            format_duration_ms(one.open_ms) if one.state in OPEN else "-",
            one.epoch,
            len(one.partitions),
            ",".join(one.groups) or "-",
        )
        for one in found
    ]
    columns = ("ID", "STATE", ">OPEN FOR", ">EPOCH", ">PARTITIONS", "GROUPS")
    empty = "no transaction is open" if open else "no producer has a transactional id yet"
    session.show([_plain(one) for one in found], Grid(columns=columns, rows=rows, empty=empty))


def describe(session: Session, id: IdArgument) -> None:  # noqa: A002
    """Show the latest transaction of an id: since when, where it writes, what it settles."""
    with session.connect() as client:
        _show(session, client.describe_transaction(id))


def abort(session: Session, id: IdArgument, force: Force = False) -> None:  # noqa: A002
    """Abort what an id has open; its producer is told when it wants to go on."""
    with session.connect() as client:
        state = client.describe_transaction(id)
        if state.state in OPEN:
            age = format_duration_ms(state.open_ms)
            confirm(f"The transaction of {id}, open for {age}, will be undone.", is_forced=force)
        after = client.abort_transaction(id)
    if not session.is_table:
        print_data(session.output, _plain(after))
    elif state.state in OPEN:
        say(f"{id}: {after.state}")
    else:
        say(f"{id}: nothing is open, its last transaction is {after.state}")


def _show(session: Session, state: "TxState") -> None:
    if not session.is_table:
        print_data(session.output, _plain(state))
        return
    print_pairs(
        {
            "id": state.transactional_id,
            "state": _state_of(state),
            "transaction": _id_of(state) or "-",
            "begun": moment(state.begun_at_ms * US_PER_MS) if state.number else "-",
            "open for": format_duration_ms(state.open_ms) if state.state in OPEN else "-",
            "timeout": format_duration_ms(state.timeout_ms),
            "producer": f"{state.producer_id} epoch {state.epoch}",
            "partitions": _words(state) or "-",
            "groups": ", ".join(state.groups) or "-",
            "adopted": ", ".join(state.adopted) or "-",
            "last token": state.token or "-",
        }
    )


def _state_of(state: "TxState") -> str:
    """Return the state, and who else decides about an open transaction."""
    if state.state not in OPEN:
        return state.state
    if state.adopter:
        return f"{state.state}, adopted by {state.adopter}"
    if state.adopted:
        return f"{state.state}, adopted {len(state.adopted)}"
    return f"{state.state}, detached" if state.is_detached else state.state


def _words(state: "TxState") -> str:
    """Return partitions in few words: ``orders:0,1 events:2``."""
    topics: dict[str, list[int]] = {}
    for topic, partition in state.partitions:
        topics.setdefault(topic, []).append(partition)
    parts = (f"{topic}:{','.join(map(str, sorted(of)))}" for topic, of in sorted(topics.items()))
    return " ".join(parts)


def _id_of(state: "TxState") -> str | None:
    """Return the transaction's id as it is over HTTP."""
    if not state.number:
        return None
    return f"txn-{state.begun_at_ms * NS_PER_MS}-{state.number:016x}"


def _plain(state: "TxState") -> dict[str, object]:
    return {
        "transactional_id": state.transactional_id,
        "state": state.state,
        "transaction_id": _id_of(state),
        "start_time": format_time_us(state.begun_at_ms * US_PER_MS) if state.number else None,
        "open_ms": state.open_ms,
        "timeout_ms": state.timeout_ms,
        "producer_id": state.producer_id,
        "epoch": state.epoch,
        "partitions": [{"topic": topic, "partition": p} for topic, p in state.partitions],
        "groups": list(state.groups),
        "token": state.token,
        "detached": state.is_detached,
        "adopted_by": state.adopter or None,
        "adopted": list(state.adopted),
    }
