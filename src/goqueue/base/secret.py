"""A text that is shown to nobody: not in logs, not in errors, not in what is printed."""

from typing import Final

MASK: Final = "***"


class Secret:
    """Holds a secret; only ``reveal`` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def __repr__(self) -> str:
        return MASK if self._text else ""

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def reveal(self) -> str:
        """Return the secret itself."""
        return self._text


NO_SECRET: Final = Secret()
