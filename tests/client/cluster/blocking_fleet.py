"""Three nodes in a thread of their own, for clients of ordinary code."""

from goqueue.client.blocking.loop_thread import LoopThread
from tests.client.cluster.fleet import Fleet, leaders_by_turns

TOPIC = "orders"
PARTITIONS = 6


class BlockingFleet:
    """Three nodes in a thread of their own."""

    def __init__(self) -> None:
        self.thread = LoopThread("fleet")
        self.fleet = Fleet()
        self.thread.run(self.fleet.start())
        self.do(self.fleet.create_topic, TOPIC, leaders_by_turns(PARTITIONS, "abc"))

    def do(self, call: object, *arguments: object) -> None:
        """Call something in the loop of the nodes."""

        async def run() -> None:
            call(*arguments)  # type: ignore[operator]

        self.thread.run(run())

    def move(self, partition: int, to: str | None) -> None:
        self.thread.run(self.fleet.move(TOPIC, partition, to))

    def kill(self, name: str, heir: str) -> None:
        self.thread.run(self.fleet.kill(name, heir=heir, pause_s=0.1))

    def close(self) -> None:
        self.thread.run(self.fleet.stop())
        self.thread.stop()
