"""``goqueue doctor``: the health of this machine, of the data directory and of the broker."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from goqueue.cli.checkup import Checkup, Finding, State
from goqueue.cli.failure import FAILED
from goqueue.cli.output import print_data, remark, say
from goqueue.cli.serve import Config
from goqueue.cli.session import Session, command
from goqueue.cli.terminal import escape, style
from goqueue.config.load import load_config

_COLOURS: Final = {State.OK: "32", State.WARN: "33", State.FAIL: "31;1"}

DataOption = Annotated[
    str | None,
    typer.Option("--data", "-d", help="Data directory to look at.", show_default="as configured"),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "doctor")(doctor)


def doctor(session: Session, data: DataOption = None, config: Config = None) -> None:
    """Look at this machine, the data directory and the broker, and give advice.

    Exit code 0 if nothing is broken (warnings may remain), 1 if something is.
    """
    loaded = load_config(flags={"data_dir": data}, environment=os.environ, file=config)
    checkup = Checkup(
        config=loaded.config,
        data_dir=Path(loaded.config.data_dir),
        address=session.address,
        open_client=session.open_client,
    )
    findings = [*checkup.run(), *(_warning(text) for text in loaded.warnings)]
    plain = [
        {"check": one.check, "state": one.state.value, "found": one.found, "advice": one.advice}
        for one in findings
    ]
    if session.is_table:
        for one in findings:
            say(_line(one))
    else:
        print_data(session.output, plain)
    broken = sum(one.state is State.FAIL for one in findings)
    warned = sum(one.state is State.WARN for one in findings)
    if session.is_table:
        remark(f"{broken} broken, {warned} worth a look, {len(findings) - broken - warned} fine")
    if broken:
        raise typer.Exit(FAILED)


def _line(finding: Finding) -> str:
    state = style(f"{finding.state.value:<5}", _COLOURS[finding.state], sys.stdout)
    advice = f"\n{'':21}{style(finding.advice, '36', sys.stdout)}" if finding.advice else ""
    return f"{state} {finding.check:<14} {escape(finding.found)}{advice}"


def _warning(text: str) -> Finding:
    return Finding(check="configuration", state=State.WARN, found=text)
