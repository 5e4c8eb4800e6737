"""Numbers of messages on the command line, against a real broker: of messages, not of offsets."""

import goqueue
from tests.cli.running import BrokerProcess, Run


def fill(client: goqueue.Client, topic: str) -> None:
    """Publish four messages beside three marks, two aborted messages and a cancelled one."""
    client.create_topic(topic, partitions=1)
    with client.producer(topic, transactional_id=f"of-{topic}") as producer:
        for values, is_kept in (((b"a", b"b"), True), ((b"x", b"y"), False), ((b"c",), True)):
            tx = producer.transaction()
            tx.begin()
            for value in values:
                tx.send(value).result(60)
            if is_kept:
                tx.commit()
            else:
                tx.abort()
    with client.producer(topic) as producer:
        never = producer.send(b"never", delay="1h").result(60)
        producer.send(b"later", delay="1h").result(60)
    client.cancel_delayed(topic, 0, never.offset)


def test_topics_groups_and_dead_letters_count_messages(cli: Run, broker: BrokerProcess) -> None:
    """Ten offsets and four messages: in describe, list, lag, top, and the list of dead letters."""
    with goqueue.connect(broker.native) as client:
        fill(client, "counted")
        fill(client, "counted.dlq")
        with client.consumer("counters", ["counted"]) as consumer:
            assert [one.value for one in consumer.poll(timeout=60)] == [b"a", b"b", b"c"]
        (state,) = client.describe_topic("counted").partitions
        (progress,) = client.group_progress("counters")

        assert (state.end_offset - state.start_offset, state.messages) == (10, 4)
        assert (progress.lag, progress.delayed) == (4, 1)
    described = cli("topic", "describe", "counted", "-o", "json").data
    assert described["messages"] == 4
    assert cli("topic", "describe", "counted").out.splitlines()[-1].split()[:4] == [
        "0",
        "0",
        "10",
        "4",
    ]
    listed = {one["name"]: one["messages"] for one in cli("topic", "list", "-o", "json").data}
    assert listed["counted"] == 4
    (lag,) = cli("group", "lag", "counters", "-o", "json").data
    assert lag["lag"] == 4
    letters = {one["source"]: one["depth"] for one in cli("dlq", "list", "-o", "json").data}
    assert letters["counted"] == 3
    top = cli("top", "--once", "-o", "json").data
    (group,) = [one for one in top["groups"] if one["name"] == "counters"]
    (topic,) = [one for one in top["topics"] if one["name"] == "counted"]
    assert (group["lag"], sum(topic["pending"].values())) == (4, 4)
