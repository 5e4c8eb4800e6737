"""``goqueue group`` against a real broker."""

import httpx
import pytest
import yaml

from tests.cli.running import SECONDS_MAX, BrokerProcess, Run


def join(broker: BrokerProcess, client: str, group: str = "billing", **fields: object) -> str:
    body = {"client_id": client, "topics": ["orders"], **fields}
    reply = httpx.post(f"http://{broker.http}/groups/{group}/join", json=body, timeout=SECONDS_MAX)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["member_id"])


def test_a_group_is_listed_described_and_deleted(cli: Run, broker: BrokerProcess) -> None:
    """What the members see is what the command line shows, as a table, JSON or YAML."""
    assert cli("group", "list").err == "no groups yet; the first consumer that joins one makes it\n"
    cli("topic", "create", "orders", "-p", "4")
    first = join(broker, "a", visibility_timeout="5m")
    second = join(broker, "b")

    assert cli("group", "list").out == (
        "NAME     STATE   MEMBERS  GENERATION  MODE       TOPICS\n"
        "billing  Stable        2           2  exclusive  orders\n"
    )
    assert cli("group", "list", "-o", "json").data == [
        {
            "name": "billing",
            "state": "Stable",
            "members": 2,
            "generation": 2,
            "topics": ["orders"],
            "mode": "exclusive",
        }
    ]
    described = cli("group", "describe", "billing", "-o", "json").data
    assert described["options"]["visibility_timeout_ms"] == 300_000
    assert [member["id"] for member in described["members"]] == [first, second]
    assert described["members"][1]["assignments"] == [
        {"topic": "orders", "partition": number} for number in (2, 3)
    ]
    assert yaml.safe_load(cli("group", "describe", "billing", "-o", "yaml").out)["name"] == (
        "billing"
    )
    table = cli("group", "describe", "billing").out
    assert "visibility_timeout    5m0s\n" in table
    assert "orders:0,1" in table
    listed = cli("group", "members", "billing")
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [
        [first, "orders:0,1"],
        [second, "orders:2,3"],
    ]
    assert [one["id"] for one in cli("group", "members", "billing", "-o", "json").data] == [
        first, second,
    ]  # fmt: skip

    refused = cli("group", "delete", "billing", stdin=b"no\n")
    assert refused.code != 0
    assert cli("group", "delete", "billing", "-f").out == "group billing deleted\n"
    assert cli("group", "list", "-o", "json").data == []


def test_a_group_nobody_is_in_shows_the_topics_it_has_offsets_of(
    cli: Run, broker: BrokerProcess
) -> None:
    """The progress is there after its members are gone, so the list names where."""
    cli("topic", "create", "left", "-p", "1")
    cli("produce", "left", stdin=b"a\n")
    cli("consume", "left", "--group", "gone")

    listed = {one["name"]: one for one in cli("group", "list", "-o", "json").data}
    described = cli("group", "describe", "gone", "-o", "json").data
    shown = httpx.get(f"http://{broker.http}/groups/gone", timeout=SECONDS_MAX).json()

    assert (listed["gone"]["members"], listed["gone"]["topics"]) == (0, ["left"])
    assert described["topics"] == shown["topics"] == ["left"]
    cli("group", "delete", "gone", "-f")


@pytest.mark.parametrize("verb", ["describe", "members", "delete"])
def test_an_unknown_group_is_an_error(cli: Run, verb: str) -> None:
    """The code tells programs what is wrong."""
    unknown = cli("group", verb, "none", "-o", "json")

    assert unknown.code == 1
    assert unknown.error["code"] == "group_not_found"


def test_a_member_cannot_paint_the_terminal(cli: Run, broker: BrokerProcess) -> None:
    """A name with control characters is refused before it is ever shown."""
    cli("topic", "create", "orders", "--if-not-exists")
    body = {"client_id": "a\u001b[31m", "topics": ["orders"]}
    reply = httpx.post(f"http://{broker.http}/groups/red/join", json=body, timeout=SECONDS_MAX)

    assert reply.status_code == 400
    assert cli("group", "describe", "red").code == 1
