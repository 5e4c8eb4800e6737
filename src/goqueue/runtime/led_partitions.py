"""Which partitions of a topic a question about all of it is answered for: those led here."""

from collections.abc import Sequence

from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import AtPlace, StateJournal


def led_partitions(state: StateJournal, topic: Topic) -> Sequence[Partition]:
    """Return the partitions whose state is here, or raise if that of one is still to be loaded.

    On one node these are all. In a cluster others answer for the rest.
    """
    if not state.is_beside:
        state.check(topic.record.name)
        return topic.partitions
    led = [one for one in topic.partitions if one.leadership.role is Role.LEADER]
    state.check_places(topic.record.name, [AtPlace(one.name) for one in led])
    return led
