"""``goqueue tx`` against a real broker."""

import re

import yaml

import goqueue
from tests.cli.running import BrokerProcess, Run


def test_a_hanging_transaction_is_seen_and_ended(cli: Run, broker: BrokerProcess) -> None:
    """How long it is open, where it writes and what it settles; abort frees the readers."""
    assert cli("tx", "list").err == "no producer has a transactional id yet\n"
    cli("topic", "create", "orders", "-p", "2")
    with goqueue.connect(broker.native) as client:
        client.consumer("billing", ["orders"]).close()
        producer = client.producer("orders", transactional_id="billing-1")
        tx = producer.transaction()
        tx.begin()
        tx.send(b"hanging", partition=1).result(60)
        client.producer("orders", transactional_id="idle")

        rows = [line.split() for line in cli("tx", "list").out.splitlines()[1:]]
        assert rows[0][:2] + rows[0][3:] == ["billing-1", "Ongoing", "0", "1", "-"]
        assert rows[1] == ["idle", "Empty", "-", "0", "0", "-"]
        (listed,) = cli("tx", "list", "--open", "-o", "json").data
        assert listed["transactional_id"] == "billing-1"
        assert listed["partitions"] == [{"topic": "orders", "partition": 1}]
        assert listed["open_ms"] >= 0
        assert listed["transaction_id"].endswith(tx.id)
        table = cli("tx", "describe", "billing-1").out
        assert re.search(r"partitions +orders:1\n", table)
        assert re.search(r"timeout +1m0s\n", table)

        assert cli("tx", "abort", "billing-1", stdin=b"no\n").code != 0
        assert cli("tx", "abort", "billing-1", "--force").out == "billing-1: CompleteAbort\n"
        ended = yaml.safe_load(cli("tx", "abort", "billing-1", "-o", "yaml").out)
        assert ended["state"] == "CompleteAbort"
        assert "nothing is open" in cli("tx", "abort", "billing-1").out
        assert cli("tx", "list", "--open").err == "no transaction is open\n"
        late = tx.send(b"late", partition=1)
        assert isinstance(late.exception(60), goqueue.GoQueueError)
        assert list(client.read("orders")) == []
        _show_adopted(cli, client)
    unknown = cli("tx", "describe", "nobody")
    assert unknown.code != 0
    assert "nobody" in unknown.err


def _show_adopted(cli: Run, client: goqueue.Client) -> None:
    task = client.producer("orders", transactional_id="task").transaction()
    task.begin()
    handle = task.detach()
    assert "Ongoing, detached" in cli("tx", "list", "--open").out
    with client.producer("orders", transactional_id="sink").transaction() as tx:
        tx.adopt([handle])
        assert "Ongoing, adopted by sink" in cli("tx", "describe", "task").out
        assert re.search(r"adopted +task\n", cli("tx", "describe", "sink").out)
        listed = {one["transactional_id"]: one for one in cli("tx", "list", "-o", "json").data}
        assert listed["task"]["adopted_by"] == "sink"
        assert listed["sink"]["adopted"] == ["task"]
    assert cli("tx", "list", "--open").err == "no transaction is open\n"
