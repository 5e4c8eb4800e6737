"""The administration calls of both clients: written once, for an event loop (ADR 0039).

A call is an asynchronous method of its family. Ordinary code gets it by ``blocking``, which keeps
its name, its arguments with their types, what it returns and its docstring.
"""

from goqueue.client.admin.delayed import AsyncDelays
from goqueue.client.admin.dlq import AsyncDlq
from goqueue.client.admin.groups import AsyncGroups
from goqueue.client.admin.schedules import AsyncSchedules
from goqueue.client.admin.schemas import AsyncSchemas
from goqueue.client.admin.security import AsyncSecurity
from goqueue.client.admin.topics import AsyncTopics
from goqueue.client.admin.traces import AsyncTraces
from goqueue.client.admin.transactions import AsyncTransactions
from goqueue.client.aio.link import Link
from goqueue.client.blocking.bridge import BlockingCalls, blocking
from goqueue.client.blocking.loop_thread import LoopThread


class AsyncAdmin(
    AsyncTopics,
    AsyncGroups,
    AsyncDelays,
    AsyncSchedules,
    AsyncDlq,
    AsyncTransactions,
    AsyncTraces,
    AsyncSecurity,
):
    """Every administration call."""

    def __init__(self, link: Link, timeout_s: float) -> None:
        super().__init__(link, timeout_s)
        self.schemas = AsyncSchemas(link, timeout_s)
        """The schema registry."""


class Schemas(BlockingCalls):
    """Registers, shows, compares and deletes schemas."""

    register = blocking(AsyncSchemas.register)
    get = blocking(AsyncSchemas.get)
    by_id = blocking(AsyncSchemas.by_id)
    subjects = blocking(AsyncSchemas.subjects)
    check = blocking(AsyncSchemas.check)
    validate = blocking(AsyncSchemas.validate)
    delete = blocking(AsyncSchemas.delete)
    compatibility = blocking(AsyncSchemas.compatibility)
    set_compatibility = blocking(AsyncSchemas.set_compatibility)


class Admin(BlockingCalls):
    """Every administration call, for ordinary code."""

    def __init__(self, client: AsyncAdmin, thread: LoopThread) -> None:
        super().__init__(client, thread)
        self.schemas = Schemas(client.schemas, thread)
        """The schema registry."""

    create_topic = blocking(AsyncTopics.create_topic)
    configure_topic = blocking(AsyncTopics.configure_topic)
    delete_topic = blocking(AsyncTopics.delete_topic)
    describe_topic = blocking(AsyncTopics.describe_topic)
    list_topics = blocking(AsyncTopics.list_topics)
    add_partitions = blocking(AsyncTopics.add_partitions)
    compact_topic = blocking(AsyncTopics.compact_topic)
    offsets = blocking(AsyncTopics.offsets)
    overview = blocking(AsyncTopics.overview)
    ping = blocking(AsyncTopics.ping)

    list_groups = blocking(AsyncGroups.list_groups)
    describe_group = blocking(AsyncGroups.describe_group)
    delete_group = blocking(AsyncGroups.delete_group)
    commit_offsets = blocking(AsyncGroups.commit_offsets)
    group_progress = blocking(AsyncGroups.group_progress)
    group_offsets = blocking(AsyncGroups.group_offsets)
    reset_offsets = blocking(AsyncGroups.reset_offsets)

    delayed = blocking(AsyncDelays.delayed)
    find_delayed = blocking(AsyncDelays.find_delayed)
    cancel_delayed = blocking(AsyncDelays.cancel_delayed)
    reschedule_delayed = blocking(AsyncDelays.reschedule_delayed)

    create_schedule = blocking(AsyncSchedules.create_schedule)
    list_schedules = blocking(AsyncSchedules.list_schedules)
    describe_schedule = blocking(AsyncSchedules.describe_schedule)
    pause_schedule = blocking(AsyncSchedules.pause_schedule)
    resume_schedule = blocking(AsyncSchedules.resume_schedule)
    trigger_schedule = blocking(AsyncSchedules.trigger_schedule)
    delete_schedule = blocking(AsyncSchedules.delete_schedule)

    dlq_list = blocking(AsyncDlq.dlq_list)
    dlq_peek = blocking(AsyncDlq.dlq_peek)
    dlq_preview = blocking(AsyncDlq.dlq_preview)
    dlq_redrive = blocking(AsyncDlq.dlq_redrive)
    dlq_purge = blocking(AsyncDlq.dlq_purge)
    dlq_progress = blocking(AsyncDlq.dlq_progress)
    dlq_cancel = blocking(AsyncDlq.dlq_cancel)
    dlq_history = blocking(AsyncDlq.dlq_history)

    list_transactions = blocking(AsyncTransactions.list_transactions)
    describe_transaction = blocking(AsyncTransactions.describe_transaction)
    abort_transaction = blocking(AsyncTransactions.abort_transaction)
    abort_detached = blocking(AsyncTransactions.abort_detached)

    find_trace = blocking(AsyncTraces.find_trace)
    search_traces = blocking(AsyncTraces.search_traces)
    tail_traces = blocking(AsyncTraces.tail_traces)
    trace_stats = blocking(AsyncTraces.trace_stats)

    whoami = blocking(AsyncSecurity.whoami)
    make_key = blocking(AsyncSecurity.make_key)
    list_keys = blocking(AsyncSecurity.list_keys)
    rotate_key = blocking(AsyncSecurity.rotate_key)
    revoke_key = blocking(AsyncSecurity.revoke_key)
    add_acl = blocking(AsyncSecurity.add_acl)
    list_acls = blocking(AsyncSecurity.list_acls)
    remove_acl = blocking(AsyncSecurity.remove_acl)
    explain_access = blocking(AsyncSecurity.explain_access)
