"""Three brokers of Kafka with three replicas, asked the same by a Python client."""

import base64
import subprocess
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.cluster import work
from benchmarks.cluster.fleet import NODES, VALUE
from benchmarks.messages import Message
from benchmarks.peers.kafka import SECONDS_MAX, KafkaClient
from benchmarks.peers.kafka_jars import KAFKA_VERSION, class_path
from benchmarks.peers.peer import SkippedError, program

HEAP = ["-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
WARM_MESSAGES = 20_000
"""Published and read before anything is measured: Java compiles what it runs often."""

Found = dict[str, object]


class KafkaTrio:
    """Three nodes, each broker and controller."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._java = program("java", package="default-jre-headless")
        self._jars = class_path()
        self.ports = [free_port() for _ in range(NODES)]
        self._children: list[Child] = []

    def start(self) -> None:
        """Format the directories and start the nodes."""
        controllers = [free_port() for _ in range(NODES)]
        voters = ",".join(
            f"{number + 1}@{LOOPBACK}:{port}" for number, port in enumerate(controllers)
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number, (port, controller) in enumerate(zip(self.ports, controllers, strict=True)):
            folder = self._home / f"k{number}"
            folder.mkdir(parents=True)
            settings = folder / "server.properties"
            settings.write_text(
                "process.roles=broker,controller\n"
                f"node.id={number + 1}\n"
                f"listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}\n"
                "controller.listener.names=CONTROLLER\n"
                f"controller.quorum.voters={voters}\n"
                f"log.dirs={folder / 'logs'}\n"
                "default.replication.factor=3\n"
                "min.insync.replicas=2\n"
                "offsets.topic.replication.factor=3\n"
            )
            command = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
            subprocess.run(
                [self._java, "-cp", self._jars, *command, "--config", str(settings)],
                check=True,
                capture_output=True,
                timeout=SECONDS_MAX,
            )
            argv = [self._java, *HEAP, "-cp", self._jars, "kafka.Kafka", str(settings)]
            self._children.append(Child(argv, directory=folder))
        for child, port in zip(self._children, self.ports, strict=True):
            child.wait_port(port)

    def processor_seconds(self) -> float:
        """Return the processor time of all nodes."""
        return sum(child.processor_seconds() for child in self._children)

    def stop(self) -> None:
        """End all of them."""
        for child in self._children:
            child.kill()


def compare(side: work.Side, home: Path, *, messages: int, rounds: int) -> Found:
    """Publish and read in turn, or say why Kafka is not here."""
    with ExitStack() as stack:
        try:
            trio = KafkaTrio(home)
            stack.callback(trio.stop)
            trio.start()
        except SkippedError as error:
            return {"skipped": str(error)}
        return _in_turn(side, trio, messages=messages, rounds=rounds)


def _in_turn(side: work.Side, trio: KafkaTrio, *, messages: int, rounds: int) -> Found:
    client = KafkaClient(port=trio.ports[0], replicas=NODES)
    client.create("warm", partitions=NODES)
    client.publish("warm", _messages(WARM_MESSAGES))
    client.read("warm", count=WARM_MESSAGES)
    ours: dict[str, list[work.Measured]] = {"publish": [], "read": []}
    theirs: dict[str, list[tuple[float, float]]] = {"publish": [], "read": []}
    for turn in range(rounds):
        topic = f"beside-kafka-{turn}"
        side.create(topic)
        ours["publish"].append(work.publish(side, topic, messages))
        ours["read"].append(work.read(side, topic, messages))
        side.client.delete_topic(topic)
        client.create(topic, partitions=NODES)
        before = trio.processor_seconds()
        seconds = client.publish(topic, _messages(messages))
        middle = trio.processor_seconds()
        theirs["publish"].append((messages / seconds, (middle - before) * 1e6 / messages))
        seconds = client.read(topic, count=messages)
        cost = (trio.processor_seconds() - middle) * 1e6 / messages
        theirs["read"].append((messages / seconds, cost))
        client.delete(topic)
        time.sleep(1.0)
    found: Found = {"kafka": KAFKA_VERSION}
    for what, measured in ours.items():
        kafka = theirs[what]
        found[what] = {
            "GoQueue messages/s": [round(one.rate) for one in measured],
            "Kafka messages/s": [round(rate) for rate, _ in kafka],
            "GoQueue brokers us/message": [round(one.broker_us, 2) for one in measured],
            "Kafka brokers us/message": [round(cost, 2) for _, cost in kafka],
            "best / best": round(
                max(one.rate for one in measured) / max(rate for rate, _ in kafka), 2
            ),
        }
    return found


def _messages(count: int) -> list[Message]:
    return [Message(b"%d" % (number % work.KEYS), VALUE) for number in range(count)]
