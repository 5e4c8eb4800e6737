"""Where the nodes of a cluster listen for each other: which of them this one keeps dialling.

The settings name some of them, the metadata names all that are registered, and a node that has
neither yet, because it joins or was away for long, is told by those it meets.
"""

from collections.abc import Mapping

from goqueue.base.ids import NodeId
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.wire.control_calls import Introduction


class AddressBook:
    """The addresses that one node knows."""

    def __init__(self, settings: Mapping[NodeId, str], metadata: Metadata) -> None:
        self._settings = settings
        self._metadata = metadata
        self._told: dict[NodeId, str] = {}

    def __repr__(self) -> str:
        return f"<AddressBook: {self.to_dial}>"

    def hear(self, said: Introduction) -> bool:
        """Keep what another node knows, unless this one knows the same or more."""
        if said.version <= self._metadata.image.version:
            return False
        told = {NodeId(node): address for node, address in said.addresses.items() if address}
        is_news = not told.items() <= self._told.items()
        self._told.update(told)
        return is_news

    @property
    def known(self) -> dict[str, str]:
        """The addresses of registered nodes, as the metadata has them."""
        nodes = self._metadata.image.nodes.values()
        return {str(one.id): one.addresses.cluster for one in nodes}

    @property
    def to_dial(self) -> dict[NodeId, str]:
        """The nodes that this one dials; the settings' address of a node goes before others."""
        found = {**self._told}
        for node, address in self.known.items():
            if address:
                found[NodeId(node)] = address
        found.update(self._settings)
        found.pop(self._metadata.own, None)
        return {node: address for node, address in found.items() if self._is_there(node)}

    def _is_there(self, node: NodeId) -> bool:
        """Return False for a node that was removed, or that only the settings know."""
        metadata = self._metadata
        if node in metadata.image.nodes or node in metadata.members or not metadata.image.nodes:
            return True
        return node in self._told and node not in metadata.image.removed.values()
