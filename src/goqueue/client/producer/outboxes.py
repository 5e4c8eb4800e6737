"""Outboxes of producers: one for a broker, one of several for the partitions of a cluster."""

from collections.abc import Callable
from functools import partial

from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.single import Sent
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.outbox import Outbox
from goqueue.client.protocol.routed_outbox import RoutedOutbox, RoutedTxOutbox
from goqueue.client.protocol.sending import Sending, TxSending
from goqueue.client.protocol.tx_outbox import TxOutbox


def outbox_for(
    cluster: ClusterView | None, options: ProducerOptions, on_settled: Callable[[Sent], None]
) -> Sending[Sent]:
    """Return the outbox of a producer without transactions."""
    acks, most = options.acks, options.in_flight_max
    make = partial(Outbox[Sent], acks=acks, in_flight_max=most, on_settled=on_settled)
    return make() if cluster is None else RoutedOutbox(cluster, make, in_flight_max=most)


def tx_outbox_for(
    cluster: ClusterView | None, options: ProducerOptions, on_settled: Callable[[Sent], None]
) -> TxSending[Sent]:
    """Return the outbox of a producer with transactions."""
    acks, most = options.acks, options.in_flight_max
    make = partial(TxOutbox[Sent], acks=acks, in_flight_max=most, on_settled=on_settled)
    return make() if cluster is None else RoutedTxOutbox(cluster, make, in_flight_max=most)
