"""Makes the logs in which a broker keeps the state of its machines."""

from collections.abc import Awaitable, Callable, Mapping

from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import TopicName
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.catalogue import Catalogue
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.state_beside import PlacedState
from goqueue.runtime.state_log import SNAPSHOT_BYTES_MIN, StateLog


class StateLogs:
    """What the state logs of a broker have in common."""

    def __init__(
        self, catalogue: Catalogue, clock: Clock, ballast: Ballast, *, is_clustered: bool = False
    ) -> None:
        self._catalogue = catalogue
        self._is_clustered = is_clustered
        self._clock = clock
        self._ballast = ballast

    def __repr__(self) -> str:
        return f"<StateLogs in {self._catalogue!r}>"

    def make(
        self,
        topic: str,
        partitions: int,
        *,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        prepare: Callable[[], Awaitable[None]] | None = None,
        beside: Mapping[TopicName, Topic] | None = None,
    ) -> StateLog:
        """Return the log in a topic, which is made when it is first written to.

        Given the topics it may lie beside, what is decided about their messages lies there.
        """

        def open_topic() -> Topic:
            return self._open(TopicName(topic), partitions)

        if beside is not None:
            return PlacedState(
                open_topic,
                self._clock,
                self._ballast,
                partitions=partitions,
                topics=beside,
                snapshot_bytes_min=snapshot_bytes_min,
                prepare=prepare,
            )
        return StateLog(
            open_topic,
            self._clock,
            self._ballast,
            partitions=partitions,
            snapshot_bytes_min=snapshot_bytes_min,
            prepare=prepare,
        )

    def _open(self, name: TopicName, partitions: int) -> Topic:
        if not self._is_clustered:
            return self._catalogue.open_state(name, partitions)
        known = self._catalogue.topics.get(name)
        if known is None:
            raise LeaderNotAvailableError(f"the cluster has not made {name} yet")
        return known
