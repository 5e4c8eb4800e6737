"""What a check of a data directory found."""

from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    """How bad it is. A note describes what the broker mends at its next start without loss."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing worth telling, with the file it is about."""

    severity: Severity
    path: str
    text: str


@dataclass(slots=True)
class Report:
    """Everything found, and how much was looked at."""

    findings: list[Finding] = field(default_factory=list)
    topics: int = 0
    partitions: int = 0
    segments: int = 0
    frames: int = 0
    messages: int = 0
    bytes_checked: int = 0

    def problem(self, path: str, text: str) -> None:
        """Report something that is wrong."""
        self.findings.append(Finding(severity=Severity.PROBLEM, path=path, text=text))

    def note(self, path: str, text: str) -> None:
        """Report something that will be mended without loss."""
        self.findings.append(Finding(severity=Severity.NOTE, path=path, text=text))

    @property
    def problems(self) -> int:
        """Return how many findings are problems."""
        return sum(finding.severity is Severity.PROBLEM for finding in self.findings)

    @property
    def is_clean(self) -> bool:
        """Return True if nothing is wrong."""
        return self.problems == 0
