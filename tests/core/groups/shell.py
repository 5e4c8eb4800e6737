"""A group that is driven by words, with its journal and its clock."""

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import GroupId, MemberId, TopicName, TopicPartition
from goqueue.core.groups.events import Event, Revoked
from goqueue.core.groups.group import Group
from goqueue.core.groups.member import JoinRequest
from goqueue.core.groups.rebalance import by_topic, flat
from goqueue.core.groups.sessions import Sessions
from goqueue.testing.clock import FakeClock


def words_of(partitions: set[TopicPartition]) -> str:
    """Say partitions in few words: ``orders 0,1 events 2``."""
    topics = by_topic(partitions)
    return " ".join(f"{topic} {','.join(map(str, topics[topic]))}" for topic in topics) or "nothing"


class GroupShell:
    """``topic orders 3``; ``join a orders,events mode=shared``; ``as a orders`` joins again."""

    def __init__(self) -> None:
        self.group = Group(GroupId("billing"))
        self.sessions = Sessions(self.group)
        self.clock = FakeClock(0)
        self.partitions: dict[TopicName, int] = {}
        self.journal: list[Event] = []

    def execute(self, command: str) -> str:
        verb, *words = command.split()
        try:
            return str(getattr(self, verb.replace("-", "_"))(*words))
        except GoQueueError as error:
            return f"{error.code}: {error}"

    def topic(self, name: str, count: str) -> str:
        self.partitions.pop(TopicName(name), None)
        if int(count):
            self.partitions[TopicName(name)] = int(count)
        return self._commit(self.group.recount(partitions=self.partitions).events)

    def join(self, client: str, topics: str, *settings: str) -> str:
        return self._join(client, topics, settings, None)

    def rejoin(self, client: str, topics: str, *settings: str) -> str:
        return self._join(client, topics, settings, f"{client}-1")

    def _join(self, client: str, topics: str, words: tuple[str, ...], known: str | None) -> str:
        named = dict(word.split("=") for word in words)
        settings: dict[str, object] = {k: int(v) if v.isdigit() else v for k, v in named.items()}
        protocol, assignor = settings.pop("protocol", None), settings.pop("assignor", None)
        request = JoinRequest(
            client_id=client,
            topics=tuple(topics.split(",")),
            protocol=None if protocol is None else str(protocol),
            assignor=None if assignor is None else str(assignor),
            member_id=known,
            options=settings,
        )
        decision = self.group.join(
            request,
            new_id=MemberId(f"{client}-1"),
            partitions=self.partitions,
            now_ms=self.clock.now_ms(),
        )
        said = self._commit(decision.events)
        self.sessions.touch(decision.reply, now_ms=self.clock.monotonic_ms())
        return said

    def leave(self, client: str) -> str:
        return self._commit(self.group.leave(f"{client}-1", partitions=self.partitions).events)

    def heartbeat(self, client: str, generation: str) -> str:
        self.group.check(f"{client}-1", int(generation))
        self.sessions.touch(f"{client}-1", now_ms=self.clock.monotonic_ms())
        return self.group.phase_of(f"{client}-1", int(generation)).value

    def revoked(self, client: str, generation: str, *words: str) -> str:
        topics = {
            TopicName(words[at]): list(map(int, words[at + 1].split(",")))
            for at in range(0, len(words), 2)
        }
        decision = self.group.revoke(
            f"{client}-1", generation=int(generation), revoked=flat(topics)
        )
        return self._commit(decision.events)

    def advance(self, duration_ms: str) -> str:
        """Let time pass, then sweep."""
        self.clock.advance(int(duration_ms))
        now_ms = self.clock.monotonic_ms()
        lost = self.sessions.lost(now_ms=now_ms)
        dropped = self._commit(self.group.disconnect(lost, partitions=self.partitions).events)
        silent = self.sessions.silent(now_ms=now_ms)
        said = self._commit(self.group.expire(silent, partitions=self.partitions).events)
        forced = self._commit(self.group.force(self.sessions.late(now_ms=now_ms)).events)
        return "\n".join(filter(None, (dropped, said, forced)))

    def drop(self, client: str) -> str:
        """End the last connection of a member."""
        self.sessions.lose(MemberId(f"{client}-1"), now_ms=self.clock.monotonic_ms())
        return ""

    def stand_still(self, duration_ms: str) -> str:
        """Let time pass in which the broker hears nobody."""
        self.clock.advance(int(duration_ms))
        self.sessions.excuse(int(duration_ms), now_ms=self.clock.monotonic_ms())
        return self.advance("0")

    def delete(self, *words: str) -> str:
        return self._commit(self.group.delete(is_forced="force" in words).events)

    def restart(self) -> str:
        """Come back from the journal, as bytes."""
        raw = msgspec.msgpack.encode(self.journal)
        self.group = rebuilt(msgspec.msgpack.decode(raw, type=list[Event]))
        self.sessions = Sessions(self.group)
        self.sessions.follow(now_ms=self.clock.monotonic_ms())
        return self.show()

    def compact(self) -> str:
        self.journal = list(self.group.snapshot())
        return f"{len(self.journal)} events"

    def show(self) -> str:
        group = self.group
        lines = [f"{group.state.value} generation {group.generation} {group.protocol}"]
        for member in group.members:
            line = f"{member.removesuffix('-1')}: {words_of(set(group.open_to(member)))}"
            if revoking := group.to_revoke(member):
                line += f"; gives up {words_of(revoking)}"
            if awaited := group.awaited_by(member):
                line += f"; awaits {words_of(awaited)}"
            lines.append(line)
        return "\n".join(lines)

    def _commit(self, events: tuple[Event, ...]) -> str:
        for event in events:
            self.journal.append(event)
            self.group.apply(event)
        self.sessions.follow(now_ms=self.clock.monotonic_ms())
        return "\n".join(map(_said, events))


def rebuilt(events: list[Event]) -> Group:
    """Return the group these events make."""
    group = Group(GroupId("billing"))
    for event in events:
        group.apply(event)
    return group


def _said(event: Event) -> str:
    if isinstance(event, Revoked):
        forced = " by force" if event.is_forced else ""
        member = event.member_id.removesuffix("-1")
        return f"Revoked {words_of(flat(event.partitions))} of {member}{forced}"
    return type(event).__name__
