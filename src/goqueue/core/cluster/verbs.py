"""The one door to a cluster's metadata: a proposal in, events and an answer out.

Shape: decider.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from goqueue.base.errors import InvalidRequestError
from goqueue.core.cluster import (
    blocks,
    commands,
    events,
    node_verbs,
    partition_verbs,
    reassignment,
    retirement,
    security_verbs,
    topic_verbs,
)
from goqueue.core.cluster.commands import Command, Proposal
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import Reply
from goqueue.core.decision import Decision

Verb = Callable[[ClusterImage, Any, int], Decision[Event, Reply]]

VERBS: Final[Mapping[type[Command], Verb]] = {
    commands.FoundCluster: node_verbs.found,
    commands.RaiseFeatureLevel: node_verbs.raise_level,
    commands.RegisterNode: node_verbs.register,
    commands.UnfenceNode: node_verbs.unfence,
    commands.FenceNode: node_verbs.fence,
    commands.BeginLeave: node_verbs.begin_leave,
    commands.FinishLeave: node_verbs.finish_leave,
    commands.RetireNode: retirement.retire,
    commands.ForgetNode: retirement.forget,
    commands.CreateTopic: topic_verbs.create,
    commands.ConfigureTopic: topic_verbs.configure,
    commands.DeleteTopic: topic_verbs.delete,
    commands.AddPartitions: topic_verbs.add_partitions,
    commands.FinishScaling: topic_verbs.finish_scaling,
    commands.AlterPartitions: partition_verbs.alter,
    commands.ElectLeaders: partition_verbs.elect,
    commands.BalanceLeaders: partition_verbs.balance,
    commands.MendLeaders: partition_verbs.mend,
    commands.AllocateIds: blocks.allocate,
    commands.StartReassignment: reassignment.start,
    commands.AdvanceMoves: reassignment.advance,
    commands.PauseReassignment: reassignment.pause,
    commands.ResumeReassignment: reassignment.resume,
    commands.CancelReassignment: reassignment.cancel,
    commands.ChangeSecurity: security_verbs.change,
}


def decide(image: ClusterImage, proposal: Proposal, *, now_ms: int) -> Decision[Event, Reply]:
    """Decide a proposal, or repeat what was answered to it before."""
    command, request_id = proposal.command, proposal.request_id
    if not isinstance(command, commands.FoundCluster):
        image.check_founded()
    kind = type(command).__name__
    known = image.answers.get(request_id) if request_id else None
    if known is not None:
        if known.kind != kind:
            raise InvalidRequestError(f"the request id was used for {known.kind} before")
        return Decision((), known.reply)
    decision = VERBS[type(command)](image, command, now_ms)
    if not request_id or not decision.events:
        return decision
    answered = events.ProposalAnswered(
        request_id=request_id, kind=kind, at_ms=now_ms, reply=decision.reply
    )
    return Decision((*decision.events, answered), decision.reply)
