"""What a table shows of bytes that a client chose."""

from typing import Final

from goqueue.cli.terminal import escape, text_of

CHARACTERS_MAX: Final = 40


def preview(content: bytes | str, *, size: int | None = None) -> str:
    """Return the beginning of a key or value, safe on a terminal.

    ``size`` is how large it really is, where ``content`` is only its beginning.
    """
    text = escape(text_of(content) if isinstance(content, bytes) else content)
    is_cut = len(text) > CHARACTERS_MAX or (size is not None and size > len(content))
    return text[: CHARACTERS_MAX - 1] + "…" if is_cut else text
