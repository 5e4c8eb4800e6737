"""Text on a terminal: safe to show, coloured only where somebody looks."""

import os
import re
import shutil
import sys
from typing import Final, TextIO

# Control characters, and those that reorder or break lines: what a message may do to a terminal.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape(text: str, *, keep: str = "") -> str:
    """Return text that can only be read, never obeyed, by a terminal."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _spell(match[0]), text)


def _spell(character: str) -> str:
    return character.encode("unicode_escape").decode()


def text_of(content: bytes) -> str:
    """Return bytes as text, with what is not UTF-8 spelled out."""
    return content.decode("utf-8", "backslashreplace")


def is_coloured(stream: TextIO) -> bool:
    """Return True if colours are welcome on a stream."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def looked_at_width() -> int | None:
    """Return how many characters of stdout fit a line; None where a program reads it."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def style(text: str, code: str, stream: TextIO) -> str:
    """Return text in an ANSI style where the stream shows one."""
    return f"\x1b[{code}m{text}\x1b[0m" if is_coloured(stream) else text
