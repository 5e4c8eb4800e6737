"""A node of a cluster on etcd in a process of its own: told what to do line by line, as JSON."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from goqueue.base.errors import GoQueueError
from goqueue.config.etcd import parse_etcd_url
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.etcd.client import EtcdClient
from goqueue.runtime.cluster.etcd.consensus import EtcdConsensus, EtcdConsensusConfig
from tests.runtime.cluster.etcd.fleet import IndexedWords

ROOT = Path(__file__).parents[2]


class EtcdNode:
    """A process and the questions it is asked."""

    def __init__(self, url: str, peer: int, founders: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.etcd_node", url, str(peer), str(founders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )

    async def ask(self, **question: object) -> dict[str, Any]:
        """Ask one question and wait for the answer."""
        return await asyncio.to_thread(self._ask, question)

    def _ask(self, question: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def pause(self) -> None:
        """Stop it in the middle of whatever it does."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate(timeout=60)


async def serve(url: str, peer: int, founders: int) -> None:
    """Take part, and answer questions until there are no more."""
    etcd = parse_etcd_url(url)
    machine = IndexedWords()
    config = EtcdConsensusConfig(
        peer=PeerId(peer),
        founders=[PeerId(one) for one in range(1, founders + 1)],
        prefix=etcd.prefix,
        lease_seconds=etcd.lease_s,
        compact_batches=50,
    )
    node = EtcdConsensus(config, EtcdClient(etcd, first=peer), machine)
    await node.start()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await answer(node, machine, json.loads(line))), flush=True)  # noqa: T201
    await node.stop()


async def answer(
    node: EtcdConsensus, machine: IndexedWords, question: dict[str, Any]
) -> dict[str, Any]:
    """Answer one question."""
    try:
        if "propose" in question:
            outcome = await node.propose(question["propose"].encode())
            return {"index": outcome.index}
        if question.get("barrier"):
            await node.barrier()
    except GoQueueError as error:
        return {"error": error.code}
    leading = node.leading
    return {
        "leader": leading.leader,
        "term": leading.term,
        "is_own": leading.is_own,
        "entries": [(index, word.decode()) for index, word in machine.entries],
        "restored": machine.restored,
        "leaders": [(one.leader, one.term, one.is_own) for one in machine.leaders],
    }


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
