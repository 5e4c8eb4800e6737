"""Lines on a terminal: safe to show, coloured only where somebody looks."""

import os
import sys
from typing import TextIO


def say(text: str = "") -> None:
    """Print a line of the answer."""
    sys.stdout.write(f"{text}\n")


def remark(text: str) -> None:
    """Print a line beside the answer, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def escape(text: str) -> str:
    """Spell out what a terminal might obey instead of showing it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def style(text: str, code: str, stream: TextIO) -> str:
    """Return text in an ANSI style where the stream shows one."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return text if is_plain or not stream.isatty() else f"\x1b[{code}m{text}\x1b[0m"
