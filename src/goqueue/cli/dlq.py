"""``goqueue dlq``: look at dead letters, send them back, throw them away."""

import getpass
import os
import socket
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from goqueue.base.limits import REDRIVES_DEFAULT
from goqueue.base.units import US_PER_MS
from goqueue.cli.failure import Failure
from goqueue.cli.message_format import moment, plain_message
from goqueue.cli.output import Grid, count, print_data, print_grid, remark, say
from goqueue.cli.position import read_time
from goqueue.cli.progress import messages_bar
from goqueue.cli.session import Common, Session, add_common_options, command, confirm
from goqueue.cli.terminal import text_of
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.client.admin.dlq import Chosen, DeadLetter, RedriveTrial
    from goqueue.wire.dlq_calls import RedriveState

COMPLETION_SECONDS: Final = 1.0
SHOWN_CHARACTERS: Final = 60


def complete_sources(incomplete: str) -> list[str]:
    """Return the topics with dead letters a shell may offer."""
    session = Session(Common(timeout=str(COMPLETION_SECONDS)), os.environ, "")
    try:
        with session.connect() as client:
            names = [one.source for one in client.dlq_list()]
    except Exception:  # noqa: BLE001 - nothing may spoil the line somebody is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


TopicArgument = Annotated[
    str,
    typer.Argument(help="The source topic, or its .dlq topic.", autocompletion=complete_sources),
]
_CHOOSE: Final = "Which dead letters (all that is given must hold)"
Reason = Annotated[
    str | None, typer.Option(help="Why it died, e.g. REJECTED.", rich_help_panel=_CHOOSE)
]
Group = Annotated[str | None, typer.Option(help="Group it died in.", rich_help_panel=_CHOOSE)]
Key = Annotated[str | None, typer.Option(help="Its key.", rich_help_panel=_CHOOSE)]
KeyPrefix = Annotated[str | None, typer.Option(help="How its key begins.", rich_help_panel=_CHOOSE)]
Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="A header it has.", rich_help_panel=_CHOOSE),
]
Since = Annotated[
    str | None,
    typer.Option(
        help="It died at or after, e.g. -1h or 2026-01-31T12:00:00Z.", rich_help_panel=_CHOOSE
    ),
]
Until = Annotated[str | None, typer.Option(help="It died before.", rich_help_panel=_CHOOSE)]
Text = Annotated[str | None, typer.Option(help="Text in its errors.", rich_help_panel=_CHOOSE)]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=1_000, help="How many to show.")]
Skip = Annotated[int, typer.Option(min=0, help="How many to leave out before.")]
Target = Annotated[str | None, typer.Option("--to", help="Another topic than the source.")]
Rate = Annotated[int, typer.Option(min=0, help="Most messages a second; 0 as fast as it goes.")]
MaxRedrives = Annotated[int, typer.Option(min=0, help="Leave out what went back so often already.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would happen.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait until it is over.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", "-f", "--force", help="Do not ask.")]
Cancel = Annotated[int | None, typer.Option(metavar="ID", help="End a job that runs.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    dlq = typer.Typer()
    add_common_options(dlq, "Dead letters: messages that failed for good.")
    command(dlq, "list")(list_dlqs)
    command(dlq, "peek")(peek)
    command(dlq, "redrive")(redrive)
    command(dlq, "purge")(purge)
    command(dlq, "history")(history)
    app.add_typer(dlq, name="dlq")


def list_dlqs(session: Session) -> None:
    """List the topics of dead letters."""
    with session.connect() as client:
        topics = client.dlq_list()
    data = [
        {
            "topic": one.topic,
            "source": one.source,
            "depth": one.depth,
            "oldest": None if one.oldest_us < 0 else format_time_us(one.oldest_us),
            "redrive": one.redrive or None,
        }
        for one in topics
    ]
    rows = [
        (
            one.topic,
            one.source,
            one.depth,
            "-" if one.oldest_us < 0 else moment(one.oldest_us),
            one.redrive or "-",
        )
        for one in topics
    ]
    columns = ("TOPIC", "SOURCE", ">DEPTH", "OLDEST", ">REDRIVE")
    session.show(data, Grid(columns=columns, rows=rows, empty="no dead letters"))


def peek(
    session: Session,
    topic: TopicArgument,
    *,
    limit: Limit = 20,
    skip: Skip = 0,
    reason: Reason = None,
    group: Group = None,
    key: Key = None,
    key_prefix: KeyPrefix = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
) -> None:
    """Show dead letters without taking them."""
    chosen = _chosen(
        reason=reason, group=group, key=key, key_prefix=key_prefix, header=header,
        since=since, until=until, text=text,
    )  # fmt: skip
    with session.connect() as client:
        page = client.dlq_peek(topic, limit=limit, skip=skip, **chosen)
    if not session.is_table:
        print_data(
            session.output,
            {
                "depth": page.depth,
                "more": page.is_cut,
                "messages": [_plain_letter(letter) for letter in page.letters],
            },
        )
        return
    _print_letters(page.letters)
    if page.is_cut:
        remark(f"there are {count(page.depth, 'dead letter')}; --skip {skip + limit} shows more")


def redrive(
    session: Session,
    topic: TopicArgument,
    *,
    to: Target = None,
    rate: Rate = 0,
    max_redrives: MaxRedrives = REDRIVES_DEFAULT,
    dry_run: DryRun = False,
    detach: Detach = False,
    reason: Reason = None,
    group: Group = None,
    key: Key = None,
    key_prefix: KeyPrefix = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
) -> None:
    """Send dead letters back to their source, or to another topic.

    The broker does it: it goes on when this command is interrupted or the broker restarts.
    """
    chosen = _chosen(
        reason=reason, group=group, key=key, key_prefix=key_prefix, header=header,
        since=since, until=until, text=text,
    )  # fmt: skip
    with session.connect() as client:
        if dry_run:
            trial = client.dlq_preview(topic, target=to, max_redrives=max_redrives, **chosen)
            _tell_trial(session, trial, verb="go back")
            return
        with messages_bar("redriving") as watch:
            state = client.dlq_redrive(
                topic,
                target=to,
                rate=rate,
                max_redrives=max_redrives,
                by=_me(),
                wait=not detach,
                on_progress=lambda job: watch(job.looked_at, job.total),
                **chosen,
            )
    _tell_job(session, topic, state)


def purge(
    session: Session,
    topic: TopicArgument,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    group: Group = None,
    key: Key = None,
    key_prefix: KeyPrefix = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
) -> None:
    """Throw dead letters away."""
    chosen = _chosen(
        reason=reason, group=group, key=key, key_prefix=key_prefix, header=header,
        since=since, until=until, text=text,
    )  # fmt: skip
    with session.connect() as client:
        if dry_run or not yes:
            trial = client.dlq_preview(topic, kind="purge", **chosen)
            if dry_run:
                _tell_trial(session, trial, verb="be gone")
                return
            if not trial.matched and not trial.is_cut:
                _tell_nothing(session, topic, trial)
                return
            at_least = "at least " if trial.is_cut else ""
            letters = count(trial.matched, "dead letter")
            confirm(f"{at_least}{letters} of {topic} will be gone.", is_forced=False)
        with messages_bar("purging") as watch:
            state = client.dlq_purge(
                topic,
                by=_me(),
                on_progress=lambda job: watch(job.looked_at, job.total),
                **chosen,
            )
    _tell_job(session, topic, state)


def history(session: Session, topic: TopicArgument, cancel: Cancel = None) -> None:
    """List the redrives and purges of a topic, or end one."""
    with session.connect() as client:
        if cancel is not None:
            _tell_job(session, topic, client.dlq_cancel(topic, cancel))
            return
        jobs = client.dlq_history(topic)
    rows = [
        (
            job.id,
            job.kind,
            job.state,
            job.moved,
            job.unmatched,
            job.skipped,
            moment(job.started_ms * US_PER_MS),
            job.target or "-",
            job.by or "-",
        )
        for job in jobs
    ]
    columns = (
        ">ID", "KIND", "STATE", ">MOVED", ">UNMATCHED", ">SKIPPED", "STARTED", "TARGET", "BY",
    )  # fmt: skip
    session.show(
        [_plain_job(job) for job in jobs],
        Grid(columns=columns, rows=rows, empty="nothing was redriven or purged yet"),
    )


def _chosen(
    *, key: str | None, since: str | None, until: str | None, **texts: str | None
) -> "Chosen":
    """Return the options that choose letters, those that were given."""
    given: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    if key is not None:
        given["key"] = key
    for name, text in (("since", since), ("until", until)):
        if text is not None:
            given[name] = _time(name, text)
    chosen: Chosen = given  # type: ignore[assignment]
    return chosen


def _time(name: str, text: str) -> object:
    return read_time(text, name=f"--{name}")


def _me() -> str:
    """Return who gives the command, for the history."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    except (OSError, KeyError):
        return ""


def _print_letters(letters: "list[DeadLetter]") -> None:
    rows = [
        (
            f"{letter.message.partition}:{letter.message.offset}",
            moment(letter.message.timestamp_us),
            letter.story.reason or "-",
            letter.story.last_group or "-",
            letter.story.delivery_attempts,
            letter.redrives,
            _cut("-" if letter.message.key is None else text_of(letter.message.key)),
            _cut("-" if letter.message.value is None else text_of(letter.message.value)),
            _cut(letter.story.last_error or "-"),
        )
        for letter in letters
    ]
    columns = (
        "AT", "DIED", "REASON", "GROUP", ">ATTEMPTS", ">REDRIVES", "KEY", "VALUE", "ERROR",
    )  # fmt: skip
    print_grid(Grid(columns=columns, rows=rows, empty="no dead letters"))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _tell_trial(session: Session, trial: "RedriveTrial", *, verb: str) -> None:
    if not session.is_table:
        print_data(
            session.output,
            {
                "dry_run": True,
                "matched": trial.matched,
                "unmatched": trial.unmatched,
                "skipped": trial.skipped,
                "complete": not trial.is_cut,
                "sample": [_plain_letter(letter) for letter in trial.sample],
            },
        )
        return
    more = " or more" if trial.is_cut else ""
    say(f"{count(trial.matched, 'dead letter')}{more} would {verb}")
    if trial.skipped:
        say(f"{trial.skipped:,} went back too often and would stay")
    if trial.sample:
        say()
        _print_letters(trial.sample)


def _tell_nothing(session: Session, topic: str, trial: "RedriveTrial") -> None:
    """Say that nothing is meant, where nobody needs to be asked."""
    if session.is_table:
        is_empty = not trial.unmatched
        say(f"{topic} has no dead letters" + ("" if is_empty else " that fit; nothing was done"))
    else:
        _tell_trial(session, trial, verb="be gone")


def _tell_job(session: Session, topic: str, state: "RedriveState") -> None:
    if session.is_table and not state.id:
        say(f"{topic} has no dead letters")
    elif session.is_table:
        done = {"redrive": "went back", "purge": "thrown away"}[state.kind]
        letters = count(state.moved, "dead letter")
        say(f"{state.kind} {state.id} {state.state}: {letters} of {topic} {done}")
        if state.skipped:
            say(f"{state.skipped:,} went back too often and stay")
    else:
        print_data(session.output, _plain_job(state))
    if state.state == "failed":
        raise Failure(state.error or "the redrive failed", code="redrive_failed")


def _plain_job(state: "RedriveState") -> dict[str, object]:
    return {
        "id": state.id or None,
        "kind": state.kind,
        "state": state.state,
        "target": state.target or None,
        "by": state.by or None,
        "started_at": format_time_us(state.started_ms * US_PER_MS),
        "ended_at": format_time_us(state.ended_ms * US_PER_MS) if state.ended_ms else None,
        "total": state.total,
        "moved": state.moved,
        "unmatched": state.unmatched,
        "skipped": state.skipped,
        "error": state.error or None,
    }


def _plain_letter(letter: "DeadLetter") -> dict[str, object]:
    story = letter.story
    return {
        **plain_message(letter.message),
        "original_topic": story.original_topic,
        "original_partition": story.original_partition,
        "original_offset": story.original_offset,
        "original_timestamp": format_time_us(story.original_timestamp_us),
        "delivery_attempts": story.delivery_attempts,
        "reason": story.reason,
        "last_error": story.last_error,
        "last_group": story.last_group,
        "last_consumer": story.last_consumer,
        "redrives": letter.redrives,
        "receipt_log": [
            {
                "time": format_time_us(attempt.at_ms * US_PER_MS),
                "consumer": attempt.consumer,
                "error": attempt.error,
            }
            for attempt in story.receipt_log
        ],
    }
