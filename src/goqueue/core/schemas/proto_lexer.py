"""The words of a ``.proto`` file.

Shape: codec. One pass, one pattern, no backtracking over more than a word.
"""

import re
from typing import Final, NamedTuple

from goqueue.base.errors import InvalidSchemaError
from goqueue.base.limits import SCHEMA_NODES_MAX

_WORD: Final = re.compile(
    r"""
      (?P<space>   [\s\ufeff]+ | //[^\n]* | /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<name>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number>  (?:0[xX][0-9A-Fa-f]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]? )
    | (?P<text>    "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<symbol>  [{}\[\]()<>;,=.:+\-/] )
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}

END: Final = "end of file"


class Token(NamedTuple):
    """One word and the line it stands on."""

    kind: str
    text: str
    line: int


def tokens_of(text: str) -> list[Token]:
    """Take a text apart, or raise."""
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise InvalidSchemaError(f"invalid schema: line {line}: unexpected {text[at]!a}")
        word = match.group()
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, word, line))
        line += word.count("\n")
        at = match.end()
        if len(found) > SCHEMA_NODES_MAX:
            raise InvalidSchemaError(f"invalid schema: more than {SCHEMA_NODES_MAX} words")
    found.append(Token(END, END, line))
    return found


def unquote(text: str) -> str:
    """Return what a quoted text says."""
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0].isdigit() and code.isdecimal():
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)
