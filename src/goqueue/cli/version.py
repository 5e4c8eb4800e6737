"""``goqueue version``."""

import platform
from importlib import metadata

import typer

from goqueue.cli.output import print_data, say
from goqueue.cli.session import Session, command


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "version", is_local=True)(version)


def goqueue_version() -> str:
    """Return the version of this package."""
    try:
        return metadata.version("goqueue")
    except metadata.PackageNotFoundError:
        return "unknown"


def version(session: Session) -> None:
    """Print the version."""
    versions = {
        "version": goqueue_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if session.is_table:
        say(f"goqueue {versions['version']} (Python {versions['python']}, {versions['platform']})")
    else:
        print_data(session.output, versions)
