"""From the setting of an etcd to a node that takes part through it."""

from collections.abc import Sequence

from goqueue.config.etcd import EtcdConfig
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.consensus import StateMachine
from goqueue.runtime.cluster.etcd.client import EtcdClient
from goqueue.runtime.cluster.etcd.consensus import EtcdConsensus, EtcdConsensusConfig


def open_etcd_consensus(
    etcd: EtcdConfig, *, peer: PeerId, founders: Sequence[PeerId], machine: StateMachine
) -> EtcdConsensus:
    """Return a node that is not started yet. Without founders it waits for a cluster to join.

    The state machine is restored some time behind ``start``, when etcd was read; ``barrier`` waits.
    """
    config = EtcdConsensusConfig(
        peer=peer, founders=founders, prefix=etcd.prefix, lease_seconds=etcd.lease_s
    )
    # Nodes begin with different members of etcd.
    return EtcdConsensus(config, EtcdClient(etcd, first=peer), machine)
