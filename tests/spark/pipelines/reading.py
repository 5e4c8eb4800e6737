"""Topics as tests of pipelines look at them."""

import json
from collections.abc import Callable
from typing import Any

from goqueue import Message
from goqueue.client.sync import Client
from goqueue.spark.pipelines.state import RunState

Run = Callable[..., RunState]


def values(client: Client, topic: str) -> list[Any]:
    """Return the JSON values of a topic."""
    return [json.loads(message.value or b"null") for message in client.read(topic)]


def content(message: Message) -> tuple[object, ...]:
    """Return what a producer gave."""
    headers = {
        name: value
        for name, value in (message.headers or {}).items()
        if not name.startswith("goqueue-original-")
    }
    return (message.key, message.value, headers, message.priority)
