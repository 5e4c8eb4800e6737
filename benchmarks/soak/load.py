"""One process of the load: some parts in threads, and at the end a line of JSON with counts."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.soak import consuming, publishing, special
from benchmarks.soak.stage import Stage

Part = Callable[[Stage], None]

PROCESSES: Final[dict[str, tuple[Part, ...]]] = {
    "publishing": (
        publishing.in_batches,
        publishing.one_by_one,
        publishing.over_http,
        publishing.to_table,
        publishing.to_work,
    ),
    "special": (
        publishing.delayed,
        publishing.with_dedup_ids,
        publishing.with_schema,
        special.transforming,
        special.looking,
    ),
    "consuming": (
        consuming.shared,
        consuming.shared,
        consuming.exclusive,
        consuming.keyed,
        consuming.over_http,
    ),
    "failing": (consuming.failing, consuming.failing, consuming.redriving, consuming.released),
    "passing": (
        consuming.passing,
        consuming.as_stream,
        special.new_producers,
        special.coming_and_going,
    ),
}
STOP_SECONDS_MAX: Final = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run the parts of one process until the time is over or SIGTERM comes."""
    name, address, http, rate, seconds = arguments
    stage = Stage(address, http, float(rate), time.monotonic() + float(seconds))
    signal.signal(signal.SIGTERM, lambda *_: stage.stop.set())
    threads = [
        threading.Thread(target=stage.keep_on, args=(part.__name__, part), daemon=True)
        for part in PROCESSES[name]
    ]
    for thread in threads:
        thread.start()
    while not stage.is_over:
        stage.pause(1)
    for thread in threads:
        thread.join(STOP_SECONDS_MAX)
    print(json.dumps(stage.counts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
