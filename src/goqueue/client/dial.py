"""How connections to a broker are made: every connection of a client is made alike."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """What a client's connections have in common."""

    timeout_s: float = 30.0
    """Bounds connecting and each call."""
    api_key: str | None = field(default=None, repr=False)
    """What the broker is shown to be let in."""

    def within(self, timeout_s: float) -> "Dial":
        """Return the same with another bound."""
        return replace(self, timeout_s=timeout_s)
