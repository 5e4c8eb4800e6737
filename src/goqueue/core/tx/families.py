"""Which transactional ids have one coordinator: an adopter's, and those of what it may adopt.

Shape: calculator. Adoption is one event of the adopter, so both must be hosted together. The tasks
of a job have ids that begin with the job's own: ``JOB.task-…``.
"""

from typing import Final

TASK_MARK: Final = ".task-"
"""Stands between the id of a job and what tells its tasks apart; a name may contain it anyway."""


def home_of(transactional_id: str) -> str:
    """Return the name by which the coordinator of an id is found in a cluster."""
    return transactional_id.partition(TASK_MARK)[0]
