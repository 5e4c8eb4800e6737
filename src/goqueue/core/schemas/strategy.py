"""Which subject a message's schema is registered under."""

from typing import Final

BY_TOPIC: Final = "topic"
"""The topic's name or, where there is no such subject, the name with ``-value`` behind it."""
BY_RECORD: Final = "record"
"""The full name of the record."""
BY_TOPIC_RECORD: Final = "topic_record"
"""The topic's name, a dash and the full name of the record."""
VALUE_SUFFIX: Final = "-value"
STRATEGIES: Final = (BY_TOPIC, BY_RECORD, BY_TOPIC_RECORD)
