"""A worker loads what it needs, and starts in a moment."""

import subprocess
import sys

HEAVY = ("pandas", "fastavro", "google.protobuf", "jsonschema_rs", "structlog", "rich")


def test_plain_tasks_load_nothing_heavy() -> None:
    """Schemas, files and what they need are for readers that ask for them."""
    code = (
        "import sys, goqueue.spark.connector.source, goqueue.spark.connector.tasks;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
