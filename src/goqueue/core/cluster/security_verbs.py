"""How keys and access rules of a cluster change: as those of one broker, for all nodes.

Shape: decider. What is decided is up to ``core/security``.
"""

from goqueue.core.cluster import commands, events
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import SecurityDone
from goqueue.core.decision import Decision
from goqueue.core.security.keys import KeyRecord
from goqueue.core.security.rule import Rule


def change(
    image: ClusterImage, command: commands.ChangeSecurity, now_ms: int
) -> Decision[Event, SecurityDone]:
    """Change keys or access rules."""
    decision = image.security.decide(command.command, now_ms=now_ms)
    found = decision.reply
    reply = SecurityDone(
        key=found if isinstance(found, KeyRecord) else None,
        rule=found if isinstance(found, Rule) else None,
    )
    return Decision(tuple(events.SecurityChanged(event=one) for one in decision.events), reply)
