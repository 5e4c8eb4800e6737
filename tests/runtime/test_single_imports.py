"""One node needs no cluster: it loads nothing of one."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

SCRIPT = """
import asyncio, sys
import goqueue, goqueue.aio, goqueue.embedded
from goqueue.config.model import BrokerConfig
from goqueue.server import make_server

async def main(data_dir):
    config = BrokerConfig(
        data_dir=data_dir, native_listener="127.0.0.1:0", http_listener="127.0.0.1:0"
    )
    server = make_server(config)
    await server.start()
    server.broker.create_topic("t", partitions=1)
    await server.stop()

asyncio.run(main(sys.argv[1]))
parts = (
    "core.raft", "core.cluster", "core.replication", "runtime.cluster", "transport.cluster",
    "storage.raft_store", "storage.replica_journal", "service.peers", "node_server",
)
print([name for name in sys.modules if name.startswith(tuple(f"goqueue.{one}" for one in parts))])
print(goqueue.__file__)
"""


def test_a_broker_by_itself_loads_nothing_of_a_cluster(tmp_path: Path) -> None:
    """Neither a program that embeds or connects, nor a server that starts, serves and stops."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    loaded, where = run.stdout.strip().splitlines()

    assert loaded == "[]"
    assert Path(where).is_relative_to(SOURCE)
