"""``goqueue completion``: the shell completes commands, options and topics."""

import contextlib
import io
import os
from enum import StrEnum
from typing import Annotated

import typer

from goqueue.cli.output import print_data, say
from goqueue.cli.session import Session, command


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


ShellName = Annotated[Shell, typer.Argument(help="The shell to complete in.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    def completion(session: Session, shell: ShellName) -> None:
        """Print the completion script of a shell.

        In bash: eval "$(goqueue completion bash)". `goqueue --install-completion` keeps it.
        """
        script = _script(app, shell)
        if session.is_table:
            say(script)
        else:
            print_data(session.output, {"shell": shell.value, "script": script})

    command(app, "completion", is_local=True)(completion)


def _script(app: typer.Typer, shell: Shell) -> str:
    """Ask Typer for its script the way a shell does, through the environment."""
    variable = "_GOQUEUE_COMPLETE"
    os.environ[variable] = f"source_{shell.value}"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app(args=[], prog_name="goqueue", complete_var=variable)
    del os.environ[variable]
    return printed.getvalue().strip()
