"""The program ``goqueue``: all commands, and how it ends."""

import os
import sys
from pathlib import Path
from typing import Final

import typer

from goqueue.cli import (
    bench,
    cluster,
    completion,
    configuration,
    consume,
    delayed,
    dlq,
    doctor,
    group,
    pipeline,
    produce,
    schedule,
    schema,
    security,
    serve,
    tls,
    top,
    topic,
    trace,
    tx,
    verify,
    version,
)
from goqueue.cli.failure import EXIT_CODES, INTERRUPTED, OK, asks_for_json, tell, translate
from goqueue.cli.session import OutputClosedError, add_common_options

PROGRAM: Final = "goqueue"
SHORTHANDS: Final = {"--version": "version", "-V": "version", "help": "--help"}
"""What people try first with any program, and what it is called here."""
ALIASES: Final = ("goqueue-cli", "goqueue-admin")

ABOUT: Final = f"""GoQueue: a durable message broker, read as a stream or as a queue.

Start a broker with `goqueue serve`, then try `goqueue topic create orders`.

{EXIT_CODES}
"""

app = typer.Typer(
    name=PROGRAM,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_common_options(app, ABOUT)
for noun in (
    serve,
    topic,
    group,
    dlq,
    produce,
    consume,
    delayed,
    schedule,
    tx,
    trace,
    schema,
    security,
    pipeline,
    top,
    cluster,
    bench,
    verify,
    tls,
    configuration,
    doctor,
    completion,
    version,
):
    noun.register(app)


def main() -> None:
    """Run the command line and leave with its exit code."""
    name = Path(sys.argv[0]).name
    sys.exit(run(sys.argv[1:], program=name if name in ALIASES else PROGRAM))


def run(arguments: list[str], *, program: str = PROGRAM) -> int:
    """Run one command; return the exit code. Whatever goes wrong is told in a line."""
    if len(arguments) == 1:
        arguments = [SHORTHANDS.get(arguments[0], arguments[0])]
    try:
        code = app(args=arguments, prog_name=program, standalone_mode=False)
    except OutputClosedError:
        # What is still buffered goes nowhere, instead of failing when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame
        if os.environ.get("GOQUEUE_TRACEBACK"):
            sys.excepthook(type(error), error, error.__traceback__)
        failure = translate(error)
        tell(failure, as_json=asks_for_json(arguments))
        return failure.exit_code
    return code if isinstance(code, int) else OK
