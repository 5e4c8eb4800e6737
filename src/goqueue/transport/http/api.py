"""Everything the HTTP API can do."""

from goqueue.service.service import Service
from goqueue.transport.http.ack import AckRoutes
from goqueue.transport.http.ack_batch import AckBatchRoutes
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
from goqueue.transport.http.reassignment import ReassignmentRoutes
from goqueue.transport.http.schedules import ScheduleRoutes
from goqueue.transport.http.schemas import SchemaRoutes
from goqueue.transport.http.security import SecurityRoutes
from goqueue.transport.http.taking import NextRoutes
from goqueue.transport.http.topics import TopicRoutes
from goqueue.transport.http.traces import TraceRoutes
from goqueue.transport.http.transactions import TransactionRoutes


def operations(service: Service) -> tuple[Operation, ...]:
    """Return every operation on a broker, the busiest first: routes are tried in this order."""
    described = (
        *MessageRoutes(service).operations(),
        *PollRoutes(service).operations(),
        *NextRoutes(service).operations(),
        *AckBatchRoutes(service).operations(),
        *AckRoutes(service).operations(),
        *ReadingRoutes(service).operations(),
        *OffsetRoutes(service).operations(),
        *GroupRoutes(service).operations(),
        *CooperativeRoutes(service).operations(),
        *TopicRoutes(service).operations(),
        *ReassignmentRoutes(service).operations(),
        *DelayedRoutes(service).operations(),
        *ScheduleRoutes(service).operations(),
        *TransactionRoutes(service).operations(),
        *QueueStatsRoutes(service).operations(),
        *DlqRoutes(service).operations(),
        *TraceRoutes(service).operations(),
        *SchemaRoutes(service).operations(),
        *ConfluentRoutes(service).operations(),
        *SecurityRoutes(service).operations(),
        *HealthRoutes(service).operations(),
    )
    return (*described, *PageRoutes(service, described).operations())
