"""Everything the HTTP API can do."""

from goqueue.runtime.broker import Broker
from goqueue.transport.http.ack import AckRoutes
from goqueue.transport.http.ack_batch import AckBatchRoutes
from goqueue.transport.http.ack_stats import ReliabilityRoutes
from goqueue.transport.http.admin import AdminRoutes
from goqueue.transport.http.confluent import ConfluentRoutes
from goqueue.transport.http.cooperative import CooperativeRoutes
from goqueue.transport.http.delayed import DelayedRoutes
from goqueue.transport.http.dlq import DlqRoutes
from goqueue.transport.http.groups import GroupRoutes
from goqueue.transport.http.health import HealthRoutes
from goqueue.transport.http.messages import MessageRoutes
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.pages import PageRoutes
from goqueue.transport.http.poll import PollRoutes
from goqueue.transport.http.poll_offsets import OffsetRoutes
from goqueue.transport.http.queue_stats import QueueStatsRoutes
from goqueue.transport.http.reading import ReadingRoutes
from goqueue.transport.http.schemas import SchemaRoutes
from goqueue.transport.http.topics import TopicRoutes
from goqueue.transport.http.traces import TraceRoutes
from goqueue.transport.http.transactions import TransactionRoutes


def operations(broker: Broker) -> tuple[Operation, ...]:
    """Return every operation on a broker, the busiest first: routes are tried in this order."""
    described = (
        *MessageRoutes(broker).operations(),
        *PollRoutes(broker).operations(),
        *AckBatchRoutes(broker).operations(),
        *AckRoutes(broker).operations(),
        *ReadingRoutes(broker).operations(),
        *OffsetRoutes(broker).operations(),
        *GroupRoutes(broker).operations(),
        *CooperativeRoutes(broker).operations(),
        *TopicRoutes(broker).operations(),
        *AdminRoutes(broker).operations(),
        *DelayedRoutes(broker).operations(),
        *TransactionRoutes(broker).operations(),
        *QueueStatsRoutes(broker).operations(),
        *ReliabilityRoutes(broker).operations(),
        *DlqRoutes(broker).operations(),
        *TraceRoutes(broker).operations(),
        *SchemaRoutes(broker).operations(),
        *ConfluentRoutes(broker).operations(),
        *HealthRoutes(broker).operations(),
    )
    return (*described, *PageRoutes(broker, described).operations())
