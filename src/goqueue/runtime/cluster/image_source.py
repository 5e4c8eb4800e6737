"""The metadata of the cluster as the parts of a node see it: an image and its news."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from goqueue.base.ids import NodeEpoch
from goqueue.core.cluster.commands import Command
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import Reply

Propose = Callable[[Command], Awaitable[Reply]]
"""Has a command decided; done when this node has applied what came of it."""

ImageListener = Callable[[Sequence[Event] | None], None]
"""Hears what was applied; None if anything may be different from before."""


class ImageSource(Protocol):
    """Where a node learns what the cluster decided."""

    @property
    def image(self) -> ClusterImage:
        """What this node has applied."""
        ...

    @property
    def node_epoch(self) -> NodeEpoch | None:
        """The registration of this process; None until it is registered."""
        ...

    def watch(self, listener: ImageListener) -> None:
        """Call a listener in the step in which events were applied."""
        ...
