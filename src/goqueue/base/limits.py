"""Every limit of the broker, with its reason and its relation to the others.

A limit is checked before anything is allocated for what it bounds. Sizes are in bytes.
"""

from typing import Final

from goqueue.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, GiB, KiB, MiB

NAME_CHARACTERS_MAX: Final = 249
"""Longest name: a directory name of 255 with room for suffixes such as ``.dlq``."""

KEY_BYTES_MAX: Final = 65_535
"""The frame stores the key length in 16 bits."""

VALUE_BYTES_MAX: Final = 16 * MiB
"""Largest value of one message."""

HEADERS_BYTES_MAX: Final = 65_535
"""The frame stores the length of the headers block in 16 bits."""

HEADERS_COUNT_MAX: Final = 1_000
"""Most headers on one message."""

DEDUP_ID_BYTES_MAX: Final = 256
"""Longest ``dedup_id``; it is remembered for the whole window."""

FRAME_HEADER_BYTES: Final = 34
"""Fixed part of every frame, from the storage contract."""

BATCH_ROWS_MAX: Final = 100_000
"""Most messages in one batch frame: bounds the work of one validation."""

BATCH_BYTES_MAX: Final = 16 * MiB + 512 * KiB
"""Largest Arrow payload of a batch frame, before and after decompression."""

FRAME_BYTES_MAX: Final = FRAME_HEADER_BYTES + KEY_BYTES_MAX + HEADERS_BYTES_MAX + BATCH_BYTES_MAX
"""Nothing larger is ever a frame, so a declared size above it is a lie."""

SEGMENT_BYTES: Final = 64 * MiB
"""A frame that would make a segment larger than this starts a new one."""

SEGMENT_BYTES_MIN: Final = 4 * KiB
"""Smallest segment size a topic may ask for; only tests and tiny topics want it."""

INDEX_INTERVAL_BYTES: Final = 4 * KiB
"""Log bytes between two index entries."""

INDEX_ENTRY_BYTES: Final = 16
"""Two signed 64-bit numbers."""

PARTITIONS_MAX: Final = 10_000
"""Most partitions of one topic: each holds an open file and some memory."""

GROWTHS_MAX: Final = 100
"""How often a topic may get more partitions: where the old ones ended is remembered each time."""

TOPICS_MAX: Final = 100_000
"""Most topics of one broker: the catalogue is held in memory."""

RETENTION_MS_MAX: Final = 100 * 365 * DAY_MS
"""A century; beyond it a number is a mistake in the unit."""

SYNC_INTERVAL_MS_MAX: Final = HOUR_MS
"""Longest time a topic may leave acknowledged bytes unsynced by choice."""

DEDUP_WINDOW_MS_MAX: Final = DAY_MS
"""Longest window in which ``dedup_id`` is remembered."""

DEDUP_IDS_MAX: Final = 1_000_000
"""Most ids remembered for one topic; a full window refuses instead of forgetting early."""

DELAY_MS_MAX: Final = 100 * 365 * DAY_MS
"""Longest delay: a century; beyond it a number is a mistake in the unit."""

DELAYED_MAX: Final = 1_000_000
"""Messages of one topic that wait for their time (a default); one more is refused."""

DELAY_ID_BYTES_MAX: Final = 256
"""Longest ``delay_id``, as long as a ``dedup_id`` may be."""

RESCHEDULED_MAX: Final = 100_000
"""Messages of one partition that were given another time and wait: each is an object."""

DELAYED_PAGE_MAX: Final = 1_000
"""Most delayed messages listed in one reply."""

DELAYED_PREVIEW_BYTES_MAX: Final = 64
"""What a list shows of the key and of the value of a delayed message; the rest is cut off."""

SCHEDULES_MAX: Final = 10_000
"""Most recurring schedules of one broker: each is held in memory."""

SCHEDULE_VALUE_BYTES_MAX: Final = 64 * KiB
"""Largest value a schedule publishes: it is part of its state, which snapshots repeat."""

SCHEDULES_BYTES_MAX: Final = 64 * MiB
"""Values, keys and headers of all schedules together: they are held in memory."""

SCHEDULE_CRON_CHARACTERS_MAX: Final = 256
"""Longest cron line."""

SCHEDULE_ZONE_CHARACTERS_MAX: Final = 64
"""Longest name of a time zone; the longest there is has half of that."""

SCHEDULE_EVERY_MS_MIN: Final = SECOND_MS
"""Shortest interval of a schedule: each tick takes two syncs."""

SCHEDULE_EVERY_MS_MAX: Final = 366 * DAY_MS
"""Longest interval of a schedule: a leap year."""

SCHEDULE_LATE_MS_MAX: Final = 10 * SECOND_MS
"""A tick looked at later than this has been missed, if missed ones are skipped."""

SCHEDULE_SET_BACK_MS_MAX: Final = 2 * DAY_MS
"""How long a cron schedule waits for a wall clock that was set back to reach its last tick again;
set back by more, the clock was wrong before, and the schedule goes on from where it is now."""

SCHEDULE_MISSED_PUBLISHED_MAX: Final = 1_000
"""Missed ticks that ``missed=all`` makes up for at once, the latest ones."""

SCHEDULE_MISSED_COUNTED_MAX: Final = 1_000
"""Missed ticks of a cron line counted for one absence: each takes 20 µs. Beyond, the count of
missed ticks is at least this."""

SCHEDULES_PAGE_MAX: Final = 1_000
"""Most schedules listed in one reply."""

SCHEDULE_TICKS_SHOWN: Final = 5
"""Next ticks a description of a schedule lists."""

SCHEDULE_RUNS_MAX: Final = 256
"""Schedules that publish at the same moment; others wait for their turn."""

SCHEDULE_BACKOFF_MS_MIN: Final = SECOND_MS
SCHEDULE_BACKOFF_MS_MAX: Final = 60 * SECOND_MS
"""Pauses before a tick that could not be published is tried again; they double."""

HIDDEN_RANGES_MAX: Final = 10_000
"""Ranges of hidden offsets one reply names; a reply that would need more ends earlier."""

COMPACTION_KEYS_MAX: Final = 500_000
"""Keys a compaction remembers at once, about 75 MB of them; more keys take more passes."""

TIMESTAMP_AHEAD_MS_MAX: Final = DAY_MS
"""How far a message's time may lie ahead of the broker's clock: retention trusts it."""

PRIORITIES: Final = 5
"""Lanes, from 0 (critical) to 4 (background)."""

PRODUCER_BATCHES_REMEMBERED: Final = 16
"""Recent batches per producer and partition whose repeat returns the original offsets."""

PRODUCER_REQUESTS_IN_FLIGHT_MAX: Final = 8
"""Requests a client keeps unanswered; each may hold one batch per partition."""

PRODUCERS_PER_PARTITION_MAX: Final = 10_000
"""Producers remembered per partition; the one idle longest is forgotten first."""

PRODUCER_IDS_ASKED_MAX: Final = 1_000
"""Producer ids one request may ask for: a producer of a cluster has one for each partition."""

PRODUCER_LIVES_MAX: Final = 100_000
"""Renewed producers remembered; beyond, a quarter is forgotten, the lowest ids first. Who is
forgotten, or has a lower id than those, is told so and gets a new id."""

REQUEST_BYTES_MAX: Final = 34 * MiB
"""Largest request on the native protocol."""

REQUEST_HEADER_BYTES_MAX: Final = 1 * MiB
"""Largest header (the part that is decoded into objects) of a native request."""

REQUEST_PARTS_MAX: Final = PARTITIONS_MAX
"""Most partitions named by one request."""

CONNECTION_REQUESTS_MAX: Final = 128
"""Unanswered requests of one connection before the broker stops reading from it."""

CONNECTION_WRITE_BYTES_MAX: Final = 64 * KiB
"""Unsent reply bytes of one connection before the broker stops reading from it."""

CONNECTIONS_MAX: Final = 10_000
"""Most native connections; one more is told so and closed."""

REQUEST_BUFFER_BYTES_MAX: Final = 256 * MiB
"""Bytes of requests over all connections, from their arrival to their answer."""

REQUEST_BUFFER_FREE_BYTES: Final = 64 * KiB
"""A native request up to this size is counted only when it is whole."""

REPLY_BUFFER_BYTES_MAX: Final = 256 * MiB
"""Bytes read from the log and not yet taken by their readers, over all native connections."""

REPLY_BYTES_MIN: Final = 64 * KiB
"""What a reply may hold however full the common buffer is, so that every reader gets on."""

FETCH_BYTES_MAX: Final = 32 * MiB
"""Most bytes one fetch may ask for."""

FETCH_WAIT_MS_MAX: Final = 60_000
"""Longest a fetch may wait for news."""

HTTP_PUBLISH_BODY_BYTES_MAX: Final = 16 * MiB
"""Largest body of a publish over HTTP (a default; configurable)."""

HTTP_BODY_BYTES_MAX: Final = 1 * MiB
"""Largest body of any other HTTP request (a default; configurable)."""

HTTP_MESSAGES_MAX: Final = 10_000
"""Most messages in one HTTP publish: bounds the time one request holds the loop."""

HTTP_READ_MESSAGES_MAX: Final = 1_000
"""Most messages in one HTTP read; a larger limit is clamped to it."""

HTTP_SETTLE_RECEIPTS_MAX: Final = 10_000
"""Most receipts in one HTTP batch of acks, nacks, rejections or extensions."""

HTTP_REASON_CHARACTERS_MAX: Final = 1_000
"""What is kept of the reason a consumer gives; the rest is cut off."""

POLL_MESSAGES_MAX: Final = 10_000
"""Most messages one poll may lease."""

SETTLE_PARTS_MAX: Final = 10_000
"""Most leases or partitions one settlement may name."""

SETTLE_RUNS_MAX: Final = 40_000
"""Most numbers in the runs of one part of a settlement: every other message of 10,000, twice."""

EXTENSION_MS_MAX: Final = 12 * HOUR_MS
"""Longest a lease may be extended by at once."""

RETRY_DELAY_MS_MAX: Final = 7 * DAY_MS
"""Longest pause a consumer may ask for before the next attempt."""

FAILING_MESSAGES_MAX: Final = 50_000
"""Messages of one partition whose delivery failed and that are not settled: a group that cannot
settle them gets no more, so that its state stays small."""

LOOK_AHEAD_MESSAGES_MAX: Final = 2_000_000
"""Messages of one partition that may wait behind an earlier one of their key before the broker
looks no further."""

RECENT_BYTES_MAX: Final = 32 * MiB
"""Memory for what was read of logs and is likely to be polled again, of all groups together."""

GROUPS_MAX: Final = 10_000
"""Most consumer groups of one broker: each is held in memory and swept every second."""

GROUP_MEMBERS_MAX: Final = 1_000
"""Most members of one group: every change of one looks at all of them."""

GROUP_TOPICS_MAX: Final = 256
"""Most topics one member subscribes to."""

GROUP_PARTITIONS_MAX: Final = 20_000
"""Most partitions a group may share out: an assignment is one record of the log."""

CLIENT_ID_CHARACTERS_MAX: Final = NAME_CHARACTERS_MAX
"""Longest name a member gives itself."""

SESSION_TIMEOUT_MS_MIN: Final = 3 * SECOND_MS
"""Shortest silence after which a member counts as gone: a few sweeps and heartbeats."""

SESSION_TIMEOUT_MS_MAX: Final = 30 * MINUTE_MS
"""Longest; its partitions stand still for so long when a member dies."""

DISCONNECT_GRACE_MS_MAX: Final = 30 * MINUTE_MS
"""Longest time a member whose connections ended has to come back; 0 removes it at once."""

MEMBER_CONNECTIONS_MAX: Final = 8
"""Connections remembered for one member, the latest it was heard on. The SDK uses two."""

REVOCATION_TIMEOUT_MS_MIN: Final = SECOND_MS
"""Shortest time a member gets to finish what is taken from it."""

REVOCATION_TIMEOUT_MS_MAX: Final = 30 * MINUTE_MS
"""Longest time one member may hold up what another waits for."""

VISIBILITY_TIMEOUT_MS_MIN: Final = SECOND_MS
"""Shortest lease: below it messages come back while they travel."""

VISIBILITY_TIMEOUT_MS_MAX: Final = 12 * HOUR_MS
"""Longest lease: a lost message waits for so long."""

RETRIES_MAX: Final = 1_000
"""Most redeliveries before a message is a dead letter."""

IN_FLIGHT_MAX: Final = 100_000
"""Most messages one member may hold leased."""

BACKOFF_MS_MAX: Final = 12 * HOUR_MS
"""Longest wait before a message is tried again."""

AUTO_COMMIT_INTERVAL_MS_MIN: Final = 100
"""Shortest pause between two automatic commits of a member."""

AUTO_COMMIT_INTERVAL_MS_MAX: Final = HOUR_MS
"""Longest; so much is read again after a crash."""

DLQ_RETENTION_MS: Final = 336 * HOUR_MS
"""How long dead letters are kept unless their topic says otherwise."""

MOVE_MESSAGES_MAX: Final = 500
"""Most messages moved to or from the dead letters in one step: others wait for their turn."""

MOVE_BYTES_MAX: Final = 1 * MiB
"""A step ends when its messages are this large; a larger one is moved alone."""

MOVE_BACKOFF_MS_MIN: Final = 1_000
MOVE_BACKOFF_MS_MAX: Final = 60_000
"""Pauses before messages that could not be moved are tried again; they double."""

REDRIVES_MAX: Final = 1_000
"""Highest ``max_redrives``."""

REDRIVES_DEFAULT: Final = 3
"""How often a message goes back unless ``max_redrives`` says otherwise."""

REDRIVE_RATE_MAX: Final = 1_000_000
"""Highest rate of a redrive, messages a second."""

REDRIVE_RUNS_MAX: Final = 4_000
"""Most runs of offsets one redrive may name; more are sent in several."""

REDRIVES_KEPT_MAX: Final = 100
"""Jobs remembered for one topic of dead letters, the one that runs among them."""

DLQ_SCAN_MESSAGES_MAX: Final = 1_000_000
"""Dead letters one peek or dry run looks at; what lies behind is not counted, and it says so."""
SUBJECT_CHARACTERS_MAX: Final = 2 * NAME_CHARACTERS_MAX + 1
"""Longest subject: a topic, a dash and the full name of a record."""

SCHEMA_BYTES_MAX: Final = 1 * MiB
"""Largest text of one schema."""

SCHEMA_BODY_BYTES_MAX: Final = 4 * MiB
"""Largest body of a request about schemas: a schema with every character escaped, and more."""

SCHEMA_DEPTH_MAX: Final = 64
"""Deepest nesting of a schema: what walks it does so by recursion."""

SCHEMA_NODES_MAX: Final = 100_000
"""Most parts of one schema: bounds the time to read and compare it."""

SCHEMA_EXPANSION_MAX: Final = 10_000
"""Most parts of a JSON schema that look at the same place of a message, references followed."""

SCHEMA_CHAIN_MAX: Final = 200
"""Longest chain of references and combinations a JSON schema sends one value through."""

SCHEMA_REFERENCES_MAX: Final = 100
"""Most schemas one refers to, directly or through others."""

SCHEMA_PATTERN_BYTES_MAX: Final = 1 * MiB
"""Memory one compiled pattern of a JSON schema may take."""

SCHEMA_BREAKS_MAX: Final = 20
"""Most reasons given why two schemas do not fit together."""

SCHEMA_COMPARE_STEPS_MAX: Final = 20_000
"""Most steps of comparing two schemas; past it they count as incompatible."""

SUBJECTS_MAX: Final = 10_000
"""Most subjects of the registry."""

SUBJECT_VERSIONS_MAX: Final = 1_000
"""Most versions of one subject, deleted ones too: the transitive modes look at all of them."""

SCHEMAS_BYTES_MAX: Final = 256 * MiB
"""Texts of all schemas: they are held in memory."""

SPARK_FIELDS_MAX: Final = 2_000
"""Most fields of a schema that become columns in Spark, nested ones counted."""

SPARK_DEPTH_MAX: Final = 32
"""Deepest nesting of a column in Spark; what lies deeper is text."""

TX_TIMEOUT_MS: Final = 60_000
"""How long a transaction may stay open, if its producer does not say otherwise."""

TX_TIMEOUT_MS_MAX: Final = 15 * 60_000
"""Longest a transaction may stay open: read-committed readers wait for it."""

TX_SESSION_MS: Final = 30_000
"""A transactional producer not heard of for so long loses its open transaction."""

TX_HEARTBEAT_MS: Final = 3_000
"""How often a producer with an open transaction says that it is there."""
assert TX_HEARTBEAT_MS * 5 <= TX_SESSION_MS, "a few may get lost"

TX_PARTITIONS_MAX: Final = 10_000
"""Most partitions one transaction may write to, or settle in."""

TX_ADOPTED_MAX: Final = 10_000
"""Most transactions that one may adopt: all of them are ended in one step."""

TX_TOKEN_CHARACTERS_MAX: Final = 4_096
"""Longest token stored with a commit."""

TX_PRODUCERS_MAX: Final = 100_000
"""Most transactional ids: each is held in memory."""

TX_IDLE_MS_MAX: Final = 7 * DAY_MS
"""A transactional id that is idle for so long is forgotten."""

TRACE_SPANS: Final = 100_000
"""Spans kept in memory (a default); older ones make room."""

TRACE_SPANS_MAX: Final = 10_000_000
"""Most spans an operator may have kept in memory."""

TRACE_MEMORIES_MAX: Final = 20_000
"""Live leases, and traces of senders, remembered so that later spans find what they belong to;
about 400 bytes each. What a sender gave is read from the log again, if need be."""

TRACE_LOOKUPS_MAX: Final = 1_000
"""Reads of the log under way to find the traces of messages; beyond it spans are dropped."""

TRACE_PAGE_MAX: Final = 1_000
"""Most traces in one reply."""

TRACE_CANDIDATES_MAX: Final = 10_000
"""Messages one search puts together before it looks at what they became."""

TRACE_SPANS_SHOWN_MAX: Final = 10_000
"""Most spans of one trace in a reply: many messages may share the trace of one caller."""

TRACE_QUEUE_SPANS_MAX: Final = 100_000
"""Spans that wait for one exporter; beyond it they are dropped and counted."""

JOURNAL_RECORD_BYTES_MAX: Final = 4 * MiB
"""Largest record of an internal journal."""

PIPELINE_FILE_BYTES_MAX: Final = 1 * MiB
"""Largest pipeline file: it is written by hand."""

PIPELINE_NAME_CHARACTERS_MAX: Final = 64
"""Longest name of a pipeline or of a part of one: it is a folder and a column of a table."""

PIPELINE_PARTS_MAX: Final = 200
"""Most sources, steps and sinks of a pipeline together: each sink is a query with its threads."""

PIPELINE_RULES_MAX: Final = 100
"""Most expectations about one part: each is counted in every batch."""

PIPELINE_LIST_MAX: Final = 256
"""Most entries of a list or mapping in a pipeline file."""

PIPELINE_TEXT_CHARACTERS_MAX: Final = 4_096
"""Longest path, pattern or expression in a pipeline file."""

PIPELINE_SQL_CHARACTERS_MAX: Final = 65_536
"""Longest query in a pipeline file."""

PRODUCER_BUFFER_BYTES: Final = 64 * MiB
"""Default bound of a client's unsent and unanswered messages."""

assert PIPELINE_NAME_CHARACTERS_MAX < NAME_CHARACTERS_MAX
assert PIPELINE_SQL_CHARACTERS_MAX < PIPELINE_FILE_BYTES_MAX
assert REQUEST_BYTES_MAX >= REQUEST_HEADER_BYTES_MAX + FRAME_BYTES_MAX
assert FRAME_BYTES_MAX < SEGMENT_BYTES
assert FRAME_BYTES_MAX <= FETCH_BYTES_MAX
assert VALUE_BYTES_MAX <= BATCH_BYTES_MAX
assert PRODUCER_REQUESTS_IN_FLIGHT_MAX <= PRODUCER_BATCHES_REMEMBERED
assert REQUEST_BYTES_MAX < REQUEST_BUFFER_BYTES_MAX
assert 8 * FETCH_BYTES_MAX <= REPLY_BUFFER_BYTES_MAX, "an idle broker grants any fetch in full"
assert 4 * POLL_MESSAGES_MAX <= SETTLE_RUNS_MAX, "what was polled can be settled at once"

assert PARTITIONS_MAX <= GROUP_PARTITIONS_MAX, "any one topic can be consumed by a group"

assert REDRIVES_KEPT_MAX * REDRIVE_RUNS_MAX * 2 * 9 < VALUE_BYTES_MAX, "a snapshot of all jobs"
assert MOVE_MESSAGES_MAX <= BATCH_ROWS_MAX
assert MOVE_BYTES_MAX + FRAME_BYTES_MAX < SEGMENT_BYTES
assert MOVE_BACKOFF_MS_MIN < MOVE_BACKOFF_MS_MAX
assert SCHEDULE_BACKOFF_MS_MIN < SCHEDULE_BACKOFF_MS_MAX
assert SCHEDULE_VALUE_BYTES_MAX + HEADERS_BYTES_MAX < HTTP_BODY_BYTES_MAX
assert SCHEDULE_VALUE_BYTES_MAX < SCHEDULES_BYTES_MAX
assert SCHEDULE_EVERY_MS_MIN < SCHEDULE_LATE_MS_MAX < SCHEDULE_EVERY_MS_MAX
assert TX_TIMEOUT_MS <= TX_TIMEOUT_MS_MAX
assert SEGMENT_BYTES < 2 * GiB
assert SCHEMA_BYTES_MAX < SCHEMA_BODY_BYTES_MAX <= VALUE_BYTES_MAX
