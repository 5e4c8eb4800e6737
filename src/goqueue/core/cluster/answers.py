"""The answers to proposals that are remembered, so that a repeat gets the first one.

Shape: decider. Times never go back among the answers, so that the oldest are always the first.
"""

from collections.abc import Mapping

import msgspec

from goqueue.base.cluster_limits import ANSWERS_MAX, ANSWERS_MS_MAX
from goqueue.core.cluster.events import ProposalAnswered


class Answers:
    """Answers by the ids of their requests."""

    def __init__(self) -> None:
        self._answers: dict[str, ProposalAnswered] = {}
        self._answered_ms = 0

    @property
    def by_request(self) -> Mapping[str, ProposalAnswered]:
        """The answers that are remembered, the oldest first."""
        return self._answers

    def remember(self, event: ProposalAnswered) -> None:
        """Keep an answer; too old ones, and too many, make room."""
        answers = self._answers
        self._answered_ms = max(self._answered_ms, event.at_ms)
        answers[event.request_id] = msgspec.structs.replace(event, at_ms=self._answered_ms)
        oldest = next(iter(answers.values()))
        while len(answers) > ANSWERS_MAX or oldest.at_ms <= self._answered_ms - ANSWERS_MS_MAX:
            del answers[oldest.request_id]
            oldest = next(iter(answers.values()))
