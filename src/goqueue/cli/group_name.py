"""Naming a consumer group on the command line."""

import os
from typing import Annotated, Final

import typer

from goqueue.cli.session import Common, Session

COMPLETION_SECONDS: Final = 1.0


def complete_groups(incomplete: str) -> list[str]:
    """Return the groups a shell may offer; a broker that is not there offers none."""
    session = Session(Common(timeout=str(COMPLETION_SECONDS)), os.environ, "")
    try:
        with session.connect() as client:
            names = [group.name for group in client.list_groups()]
    except Exception:  # noqa: BLE001 - nothing may spoil the line somebody is typing
        return []
    return [name for name in names if name.startswith(incomplete)]


GroupArgument = Annotated[
    str, typer.Argument(help="Name of the group.", autocompletion=complete_groups)
]
