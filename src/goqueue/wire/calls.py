"""The headers of every native request and reply.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
"""

from typing import Annotated

import msgspec

from goqueue.base.cluster_limits import REPLICAS_MAX
from goqueue.base.limits import (
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    NAME_CHARACTERS_MAX,
    PRODUCER_IDS_ASKED_MAX,
    REQUEST_PARTS_MAX,
    TX_TOKEN_CHARACTERS_MAX,
)
from goqueue.base.security_limits import CREDENTIAL_BYTES_MAX

PROTOCOL_VERSION = 1

FEATURES = ("read_in_place",)
"""What either end may do beyond the protocol's version; both name theirs in HELLO."""

FEATURES_MAX = 100

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=1_000)]
Credential = Annotated[bytes, msgspec.Meta(max_length=CREDENTIAL_BYTES_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
NumberOrNone = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
Nodes = Annotated[list[Name], msgspec.Meta(max_length=REPLICAS_MAX)]


class Call(msgspec.Struct, array_like=True, frozen=True):
    """Base of all headers."""


class Hello(Call, frozen=True):
    """First request on a connection."""

    protocol: Number
    client: Text
    api_key: Text | None = None
    features: Annotated[list[Name], msgspec.Meta(max_length=FEATURES_MAX)] = []
    """What the client can do; names the broker does not know are ignored."""
    mechanism: Text = ""
    """How the credential is to be read; empty for a key or a token as it is."""
    credential: Credential = b""
    """What ``api_key`` has no room for."""


class HelloReply(Call, frozen=True):
    """Who answers."""

    protocol: int
    server: str
    node_id: str
    features: list[str] = []
    session_ms: int = 0
    """How long the credential is valid; 0 if it does not end by itself."""


class Nothing(Call, frozen=True):
    """A header without fields."""


class Failure(Call, frozen=True):
    """Why a request was refused."""

    code: str
    message: str
    retryable: bool = False
    retry_after_ms: int = 0


class CreateTopic(Call, frozen=True):
    """Make a topic."""

    name: str
    partitions: int
    settings: dict[Name, str | int | float] = {}


class TopicCall(Call, frozen=True):
    """Name a topic."""

    name: str


class ConfigureTopic(Call, frozen=True):
    """Change settings of a topic."""

    name: str
    settings: dict[Name, str | int | float]


class PartitionState(Call, frozen=True):
    """The range of one partition, half-open, and how many messages are in it.

    Those are fewer than offsets: transactions leave marks, compaction and cancelling leave holes.
    """

    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    messages: int = 0


class TopicState(Call, frozen=True):
    """All about one topic."""

    name: str
    created_ms: int
    settings: dict[str, str | int | float]
    partitions: list[PartitionState]


class TopicSummary(Call, frozen=True):
    """A topic in a list."""

    name: str
    partitions: int
    messages: int
    size_bytes: int


class TopicList(Call, frozen=True):
    """Every topic."""

    topics: list[TopicSummary]


class AddPartitions(Call, frozen=True):
    """Give a topic more partitions; ``count`` is the new total."""

    name: Name
    count: Number
    assignments: Annotated[dict[Number, Nodes], msgspec.Meta(max_length=REQUEST_PARTS_MAX)] = {}
    """In a cluster: the nodes of each new partition, the preferred leader first."""


class PartitionsAdded(Call, frozen=True):
    """How many partitions a topic had, and how many it has now."""

    name: str
    before: int
    after: int


class ScalingState(Call, frozen=True):
    """Whether partitions are being added to a topic."""

    name: str
    is_scaling: bool


class CompactTopic(Call, frozen=True):
    """Compact some partitions of a topic, or all; or only tell what would go."""

    name: str
    partitions: (
        Annotated[list[Number], msgspec.Meta(max_length=REQUEST_PARTS_MAX, min_length=1)] | None
    ) = None
    dry_run: bool = False


class CompactedPart(Call, frozen=True):
    """What became of one partition; ``dirty_ratio`` is what it was before."""

    partition: int
    records_before: int
    records_after: int
    records_removed: int
    dirty_ratio: float
    error: str | None = None


class Compacted(Call, frozen=True):
    """The outcome of a compaction."""

    parts: list[CompactedPart]


class InitProducer(Call, frozen=True):
    """Ask for a producer id, or for several; or (with one) for the next life of it."""

    producer_id: Natural = 0
    epoch: Number = 0
    count: Annotated[int, msgspec.Meta(ge=1, le=PRODUCER_IDS_ASKED_MAX)] = 1


class ProducerIdentity(Call, frozen=True):
    """Who a producer is, and ids in their first life for those that were asked for with it."""

    producer_id: int
    epoch: int
    others: list[int] = []


class Last(Call, frozen=True):
    """With these messages a transaction has so many, and is to be committed."""

    messages: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
    token: Annotated[str, msgspec.Meta(max_length=TX_TOKEN_CHARACTERS_MAX)] = ""


class Transaction(Call, frozen=True):
    """The open transaction messages belong to: its producer, that one's life, and its number."""

    producer_id: Natural
    epoch: Number
    number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    last: Last | None = None


class ProducePart(Call, frozen=True):
    """How many payload bytes are for which partition."""

    partition: Number
    size: Number


class Produce(Call, frozen=True):
    """Publish frames; they follow one another in the payload, in the order of ``parts``."""

    topic: Name
    acks: Text
    parts: Annotated[list[ProducePart], msgspec.Meta(max_length=REQUEST_PARTS_MAX, min_length=1)]
    transaction: Transaction | None = None


class RepeatPart(Call, frozen=True):
    """A message that was left out, and where its original is; at -1 if it was refused."""

    row: int
    partition: int
    offset: int


class ProducedPart(Call, frozen=True):
    """Where the messages of one part went, or why they did not."""

    partition: int
    base_offset: int
    is_duplicate: bool = False
    repeats: list[RepeatPart] = []
    failure: Failure | None = None
    misfits: dict[int, str] = {}
    conflicts: list[int] = []
    """Those of the misfits that were refused because their ``delay_id`` is taken."""


class Produced(Call, frozen=True):
    """The outcome of a publish and what its ack means."""

    durability: str
    parts: list[ProducedPart]
    is_ended: bool = False
    """Whether the transaction was committed with these messages."""
    failure: Failure | None = None
    """Why it was not, where that was asked for."""
    replicas: int = 1
    """How many nodes have the messages on their disks; the least of all partitions."""


class FetchPart(Call, frozen=True):
    """One partition to read, from an offset up to an optional end."""

    partition: Number
    offset: Natural
    end_offset: Natural | None = None
    epoch: NumberOrNone = -1
    """The epoch of the message before the offset, as an earlier reply said; -1 if not known."""


class Fetch(Call, frozen=True):
    """Read frames of several partitions."""

    topic: Name
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)]
    parts: Annotated[list[FetchPart], msgspec.Meta(max_length=REQUEST_PARTS_MAX, min_length=1)]
    show_delayed: bool = False
    is_committed: bool = True
    in_place: Annotated[int, msgspec.Meta(ge=0, le=FETCH_BYTES_MAX)] = 0
    """How much at a time a reader can take from the broker's files itself; 0 if it cannot."""


class Place(Call, frozen=True):
    """Where frames lie: a file that a process has open, what tells it from others, a position."""

    process: int
    descriptor: int
    device: int
    inode: int
    position: int


class FetchedPart(Call, frozen=True):
    """What one partition had: so many payload bytes, where to go on, unreadable ranges.

    ``hidden`` are ranges left out because their messages are delayed or were cancelled. With a
    ``place`` the bytes are there, not in the payload, and what was ``aborted`` is to be left out.
    """

    partition: int
    size: int
    next_offset: int
    start_offset: int
    end_offset: int
    gaps: list[tuple[int, int]] = []
    failure: Failure | None = None
    hidden: list[tuple[int, int]] = []
    place: Place | None = None
    aborted: list[tuple[int, int]] = []
    epoch: int = -1
    """The leader epoch of the message before ``next_offset``; -1 without replicas."""
    taken_back: tuple[int, int] | None = None
    """Messages that the reader has seen and the log does not have any more."""


class Fetched(Call, frozen=True):
    """The outcome of a read; the frames follow one another in the payload."""

    parts: list[FetchedPart]


class Offsets(Call, frozen=True):
    """Ask where a time is in each partition; without a time, for the ends.

    Who reads what is committed only, reads no further than the first open transaction.
    """

    topic: Name
    timestamp_us: Natural | None = None
    is_committed: bool = True
    partitions: Annotated[list[Number], msgspec.Meta(max_length=REQUEST_PARTS_MAX)] | None = None
    """Which partitions are meant; all without."""


class OffsetsPart(Call, frozen=True):
    """The range of a partition, and the first offset at or after the time (-1 if none)."""

    partition: int
    start_offset: int
    end_offset: int
    offset: int = -1


class OffsetsReply(Call, frozen=True):
    """The outcome of a look-up."""

    parts: list[OffsetsPart]
