"""Which tables a query names, found without Spark.

Strings and comments are left out; what stands behind FROM, JOIN or a comma of a FROM list is a
table. Spark has the last word: a name that is missed here is missing there, with its own message.
"""

import re
from collections.abc import Iterable
from typing import Final

_NOISE: Final = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_WORD: Final = re.compile(r"`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_.]*)|([(),])", re.ASCII)
_BEGIN: Final = frozenset({"FROM", "JOIN", "TABLE", "STREAM"})
_END: Final = frozenset(
    {
        "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "WINDOW",
        "SELECT", "ON", "USING", "LATERAL", "SORT", "CLUSTER", "DISTRIBUTE", "QUALIFY", "MINUS",
    }
)  # fmt: skip


def tables_in(sql: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names a query reads from, each once, in the order they come."""
    names = {name.lower(): name for name in known}
    found: dict[str, None] = {}
    for word in _table_words(sql):
        if word.lower() in names:
            found[names[word.lower()]] = None
    return tuple(found)


def _table_words(sql: str) -> Iterable[str]:
    is_expected = False
    stack: list[bool] = []
    in_list = False
    for match in _WORD.finditer(_NOISE.sub(" ", sql)):
        quoted, word, mark = match.groups()
        upper = (word or "").upper()
        if mark == "(":
            stack.append(in_list)
            in_list = False
        elif mark == ")":
            in_list = stack.pop() if stack else False
            is_expected = False
        elif mark == ",":
            is_expected = in_list
        elif upper in _BEGIN:
            is_expected = in_list = True
        elif upper in _END:
            is_expected = in_list = False
        elif is_expected:
            yield quoted or word
            is_expected = False
