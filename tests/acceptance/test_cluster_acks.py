"""What an ack of three real nodes says about the copies of a message."""

import http.client
import json
from pathlib import Path

import pytest

import goqueue
from tests.acceptance.clustered import Clustered, ClusteredNode
from tests.acceptance.test_cluster_kills import QUICK

COPIES = 3


def _publish(node: ClusteredNode, values: list[str]) -> dict[str, object]:
    host, _, port = node.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        body = json.dumps({"messages": [{"value": value} for value in values]})
        headers = {"content-type": "application/json"}
        connection.request("POST", "/topics/orders/messages", body=body, headers=headers)
        return dict(json.loads(connection.getresponse().read()))
    finally:
        connection.close()


@pytest.mark.slow
def test_an_ack_says_how_many_replicas_have_the_message(tmp_path: Path) -> None:
    """P1: over the SDK and over HTTP at every node, whoever leads."""
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            client.create_topic("orders", partitions=3)
            cluster.until_in_sync("orders", 3)
            with client.producer("orders") as producer:
                one = producer.send(b"one").result()
                many = [producer.send(b"m%d" % number, key=b"k") for number in range(300)]

                assert one.replicas == COPIES
                assert {future.result().replicas for future in many} == {COPIES}
            for node in cluster.nodes.values():
                assert _publish(node, ["a"])["replicas"] == COPIES
                assert _publish(node, ["b", "c", "d"])["replicas"] == COPIES
