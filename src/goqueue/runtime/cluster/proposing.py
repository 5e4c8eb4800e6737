"""Proposals from any node: asked of the controller, with one request id until it answers."""

import asyncio
import secrets
from typing import Final

import msgspec

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    LeaderNotAvailableError,
    NotLeaderError,
    OverloadedError,
    ShuttingDownError,
    StorageFailedError,
    from_code,
)
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import Command, Proposal, decode_proposal, encode_proposal
from goqueue.core.cluster.replies import Reply
from goqueue.runtime.cluster.decisions import Decisions, RefusedError
from goqueue.runtime.cluster.links import Links, PeerReply
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.wire.control_calls import ProposeCall, ProposeReply
from goqueue.wire.peer_calls import PeerOperation

PROPOSE_SECONDS: Final = 10.0
"""How long a proposal is repeated: two elections and some."""
ASK_SECONDS: Final = 6.0
"""How long one answer of the controller is waited for: longer than its own wait for the quorum."""
PAUSE_SECONDS: Final = 0.05

TRY_AGAIN: Final = (
    ClosedError,
    NotLeaderError,
    ConnectionLostError,
    DeadlineExceededError,
    LeaderNotAvailableError,
    OverloadedError,
    ShuttingDownError,
    StorageFailedError,
)
"""What says nothing about the proposal: another try, or another controller, may take it."""

_decode_reply: Final = msgspec.msgpack.Decoder(ProposeReply).decode


class Proposing:
    """Asks the controller, wherever that is, and answers others while it is this node."""

    def __init__(self, metadata: Metadata, decisions: Decisions, links: Links) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._links = links
        self._is_stopped = False

    async def propose(
        self, command: Command, *, request_id: str = "", timeout_s: float = PROPOSE_SECONDS
    ) -> Reply:
        """Return the answer when this node has applied it, or raise what the verb raised."""
        proposal = Proposal(command=command, request_id=request_id or secrets.token_hex(16))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            if self._is_stopped:
                raise ClosedError("the node is stopping")
            try:
                left_s = max(PAUSE_SECONDS, deadline - loop.time())
                async with asyncio.timeout(left_s):
                    return await self._ask(proposal, min(ASK_SECONDS, left_s))
            except TimeoutError:
                error: GoQueueError = DeadlineExceededError(
                    f"the controller did not answer in {timeout_s:g} s"
                )
            except TRY_AGAIN as failure:
                error = failure
            if loop.time() + PAUSE_SECONDS >= deadline:
                raise error
            await asyncio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """Repeat nothing any more."""
        self._is_stopped = True

    async def _ask(self, proposal: Proposal, seconds: float) -> Reply:
        if self._metadata.leading.is_own:
            try:
                return (await self._decisions.decide(proposal)).reply
            except RefusedError as refused:
                raise refused.error from None
        controller = self._metadata.controller
        if controller is None:
            raise LeaderNotAvailableError("no controller is known at present")
        answer = await ask(self._links, controller, proposal, timeout_s=seconds)
        await self._metadata.applied(answer.version)
        return reply_in(answer)

    # What peers ask.

    async def answer(self, payload: memoryview) -> PeerReply:
        """Decide a proposal of another node, if this one is the controller."""
        proposal = decode_proposal(bytes(payload))
        try:
            version, reply = await self._decisions.decide(proposal)
        except RefusedError as refused:
            error = refused.error
            return PeerReply(ProposeReply(refused.version, code=error.code, message=error.message))
        return PeerReply(ProposeReply(version, reply))


async def ask(
    links: Links, controller: NodeId, proposal: Proposal, *, timeout_s: float
) -> ProposeReply:
    """Return the answer of a node that is believed to be the controller."""
    packet = await links.request(
        controller,
        PeerOperation.PROPOSE,
        ProposeCall(),
        (encode_proposal(proposal),),
        timeout_s=timeout_s,
    )
    return _decode_reply(packet.header)


def reply_in(answer: ProposeReply) -> Reply:
    """Return the reply of an answer, or raise what the verb raised."""
    if answer.reply is None:
        raise from_code(answer.code, answer.message)
    return answer.reply
