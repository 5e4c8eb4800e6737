"""Errors as the caller of the blocking SDK meets them: short, and with what to do about them."""

from typing import Final

from goqueue.base.errors import GoQueueError

HINTS: Final = {
    "topic_not_found": "client.create_topic(name) makes a topic, client.list_topics() shows them",
    "connection_lost": "is the broker running? `goqueue serve` starts one",
}


def brief(error: GoQueueError) -> GoQueueError:
    """Return an error to be raised again, without the frames of the SDK's own thread.

    What the broker refused is told by the message; how the refusal travelled helps nobody.
    """
    hint = HINTS.get(error.code)
    if hint is not None and not hasattr(error, "__notes__"):
        error.add_note(f"hint: {hint}")
    return error.with_traceback(None)
