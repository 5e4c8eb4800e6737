"""Ids that belong to one job have one coordinator, and ids of producers name theirs."""

import pytest

from goqueue.base.cluster_limits import ID_BLOCK, ID_OWNERS_MAX, PLAIN_PRODUCERS_OWNER
from goqueue.core.cluster import commands
from goqueue.core.cluster.blocks import allocate
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.producers.id_blocks import (
    PRODUCER_IDS,
    is_transactional,
    owner_of,
)
from goqueue.core.tx.families import home_of
from goqueue.spark.connector.writer import task_id


@pytest.mark.parametrize(
    "job", ["app", "a.task", "a.task-", "a.task-1", "a..task-", ".task-", "a.", "a.tas", "x#y"]
)
def test_tasks_have_the_home_of_their_job(job: str) -> None:
    """Whatever the job is called, also like a task of another one."""
    assert home_of(task_id(job, 3, 0)) == home_of(task_id(job, 4, 1)) == home_of(job)


def test_other_ids_are_their_own_home() -> None:
    """Names that look alike are not a family."""
    assert home_of("billing-1") == "billing-1"
    assert home_of("billing.task") == "billing.task"


@pytest.mark.parametrize("owner", [0, 1, 7, PLAIN_PRODUCERS_OWNER])
def test_every_id_of_a_block_names_its_owner(owner: int) -> None:
    """Also those of later blocks; the metadata of a cluster gives them out so."""
    image = ClusterImage()
    for _ in range(3):
        command = commands.AllocateIds(kind=PRODUCER_IDS, owner=owner)
        decision = allocate(image, command, 0)
        for event in decision.events:
            image.apply(event)
        first, count = decision.reply.first, decision.reply.count
        assert count == ID_BLOCK
        assert {owner_of(number) for number in range(first, first + count)} == {owner}
        assert is_transactional(first) == (owner != PLAIN_PRODUCERS_OWNER)
    assert owner < ID_OWNERS_MAX
