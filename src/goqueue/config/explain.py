"""Which value each setting has, and who set it."""

from dataclasses import dataclass

from goqueue.base.secret import Secret
from goqueue.config.load import Loaded
from goqueue.config.settings import SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One setting as an operator sees it. ``shown`` is the value as people write it."""

    key: str
    value: str | int | float
    shown: str
    source: str
    environment: str
    flag: str | None
    meaning: str


def explain(loaded: Loaded) -> list[Explanation]:
    """Return every setting with its value and its source."""
    explanations = []
    for setting in SETTINGS:
        value = getattr(loaded.config, setting.field)
        explanations.append(
            Explanation(
                key=setting.key,
                value=str(value) if isinstance(value, Secret) else value,
                shown=setting.show(value),
                source=loaded.sources[setting.field],
                environment=setting.environment,
                flag=setting.flag,
                meaning=setting.meaning,
            )
        )
    return explanations
