"""What a person or a script is told when a command fails."""

import json
import sys
from collections.abc import Sequence
from typing import Final

import typer

from goqueue.base.errors import GoQueueError
from goqueue.cli.terminal import escape, style

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 the operation failed, 2 the command was not understood,"
    " 3 the broker cannot be reached or does not answer in time."
)

_HINTS: Final = {
    "topic_not_found": "`goqueue topic list` shows the topics, `goqueue topic create` makes one",
    "partition_not_found": "`goqueue topic describe` shows the partitions there are",
    "group_not_found": "`goqueue group list` shows the groups there are",
    "subject_not_found": "`goqueue schema list` shows the subjects there are",
    "version_not_found": "`goqueue schema list SUBJECT` shows the versions there are",
    "unknown_producer": "`goqueue tx list` shows the transactional ids there are",
    "trace_not_found": "`goqueue trace list` shows what is kept, `trace stats` how much is traced",
    "delayed_not_found": "`goqueue delayed list` shows what waits for its time",
    "redrive_not_found": "`goqueue dlq history` shows the redrives and purges there were",
    "topic_exists": "`goqueue topic describe` shows it, `goqueue topic config` changes it",
    "connection_lost": "is it running? `goqueue serve` starts a broker, --server names another one",
    "deadline_exceeded": "--timeout 60s waits longer; `goqueue doctor` looks for the cause",
    "offset_out_of_range": "`goqueue topic describe` shows which offsets there are",
    "disk_full": "make room in the broker's data directory, or lower the retention of a topic",
    "data_dir_locked": "stop that process, or give this broker a directory of its own with --data",
    "data_loss": "`goqueue verify DATA_DIR` shows what is damaged, once the broker is stopped",
    "pipeline_running": "`goqueue pipeline status` tells how it stands, `stop` ends it",
    "pipeline_unknown": "`goqueue pipeline list` shows those there are, --state names the folder",
    "spark_missing": "pip install 'goqueue[spark]' brings PySpark and a Java",
    "wrong_port": "--server names the native port; goqueues://host:port speaks TLS to it",
    "untrusted_broker": "--tls-ca or --tls-pin of `goqueue config set-context` say whom to trust",
    "unauthenticated": "give a key by GOQUEUE_API_KEY, or `config set-context --api-key-file FILE`",
    "protocol_error": "something that is not GoQueue seems to listen at this address",
}
_REWORDED: Final = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "not a number"),
    ("Input should be a valid number, unable to parse string as a number", "not a number"),
    ("Input should be", "must be"),
)
"""What the library that reads arguments says, in the words of the other errors."""
_UNREACHABLE_CODES: Final = frozenset({"connection_lost", "deadline_exceeded"})


class Failure(Exception):  # noqa: N818 - what a person meets is a failure
    """A command cannot do its work; the message says why, the hint what to do about it."""

    def __init__(
        self, message: str, *, code: str = "failed", hint: str = "", exit_code: int = FAILED
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.exit_code = exit_code


def usage(message: str, hint: str = "") -> Failure:
    """Return the failure of a command that was not understood."""
    return Failure(message, code="usage", hint=hint, exit_code=USAGE)


def translate(error: Exception) -> Failure:
    """Turn anything a command may raise into what is told."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, GoQueueError):
        exit_code = UNREACHABLE if error.code in _UNREACHABLE_CODES else FAILED
        hint = _HINTS.get(error.code, "")
        return Failure(error.message, code=error.code, hint=hint, exit_code=exit_code)
    if isinstance(error, typer.TyperException):
        return usage(_first_lower(error.format_message()), "--help shows what there is")
    if isinstance(error, OSError):
        return Failure(_system_text(error), code="system")
    return Failure(
        f"this should not happen: {type(error).__name__}: {error}",
        code="internal",
        hint="GOQUEUE_TRACEBACK=1 shows where; please report it",
    )


def _first_lower(text: str) -> str:
    joined = " ".join(text.split()).rstrip(".")
    for said, meant in _REWORDED:
        joined = joined.replace(said, meant)
    return joined[:1].lower() + joined[1:]


def _system_text(error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def tell(failure: Failure, *, as_json: bool) -> None:
    """Write a failure to stderr; one without a message has already been explained by a help."""
    if not failure.message:
        return
    if as_json:
        told = {"code": failure.code, "message": failure.message, "hint": failure.hint or None}
        sys.stderr.write(json.dumps({"error": told}) + "\n")
        return
    text = escape(failure.message, keep="\n")
    lines = [f"{style('error:', '31;1', sys.stderr)} {text} ({failure.code})"]
    if failure.hint:
        lines.append(f"{style('hint:', '36', sys.stderr)} {failure.hint}")
    sys.stderr.write("\n".join(lines) + "\n")


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return True if errors are wanted as JSON, even where the arguments themselves are wrong."""
    for place, argument in enumerate(arguments):
        if argument in {"-o", "--output"}:
            return arguments[place + 1 : place + 2] == ["json"]
        if argument in {"-ojson", "--output=json"}:
            return True
    return False
