"""Help texts as they are written: brackets are not markup.

Typer reads its help as Rich's markup, in which ``[spark]`` is the name of a style and vanishes.
"""

import re
from typing import Any, Final, get_args

_TAG: Final = re.compile(r"(?<!\\)\[(?=[a-z#/@][^\[]*\])")
"""What Rich takes for a tag, as far as it is not escaped yet."""


def literal(text: str) -> str:
    """Return a text that Rich shows as it is; one that was treated already stays the same."""
    return _TAG.sub(r"\\[", text)


def keep_brackets(annotation: Any) -> None:  # noqa: ANN401 - whatever a parameter is annotated with
    """Let the help of an option or argument be shown as it is written."""
    for one in get_args(annotation):
        if isinstance(getattr(one, "help", None), str):
            one.help = literal(one.help)
