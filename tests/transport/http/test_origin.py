"""Pages of strangers: a browser that shows them cannot be made to reach the broker for them."""

from pathlib import Path

import pytest

from goqueue.transport.http.origin import KNOWN_MAX, Hosts
from tests.transport.http.running import Running, error_of

OURS = ("localhost", "node-1", "127.0.0.1", "[::1]", "10.1.2.3", "LOCALHOST", "localhost.")
STRANGE = (
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil.example:80",
    "[::1].evil.example",
    "localhost:80:80",
    "2130706433.",
    "x",
    "*",
)


@pytest.mark.parametrize("port", ["", ":8080", ":"])
@pytest.mark.parametrize("name", OURS)
def test_the_names_of_a_broker_are_its_own(name: str, port: str) -> None:
    """Whatever port a tunnel gives it."""
    assert Hosts(["node-1"]).has((name + port).encode())


@pytest.mark.parametrize("name", STRANGE)
def test_other_names_are_not(name: str) -> None:
    """A name in somebody else's hands may mean any address, this machine's, too."""
    hosts = Hosts(["node-1"])

    assert not hosts.has(name.encode())
    assert not hosts.has(name.encode()), "nor the second time"


def test_what_is_remembered_is_bounded() -> None:
    """P11: any number of addresses may be in the header."""
    hosts = Hosts()

    assert all(hosts.has(b"10.0.%d.%d" % divmod(number, 250)) for number in range(2 * KNOWN_MAX))
    assert len(hosts._known) == KNOWN_MAX  # noqa: SLF001 - the bound is the promise


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/topics", "/metrics", "/nowhere", "/"])
def test_a_request_for_somebody_else_is_answered_421(
    server: Running, method: str, path: str
) -> None:
    """DNS rebinding: a page of evil.example reads and changes nothing, whatever it asks for."""
    headers = {"host": "evil.example", "sec-fetch-site": "same-origin"}
    reply = server.client.request(method, path, headers=headers, json={"name": "taken"})

    assert reply.status_code == 421
    assert reply.json()["code"] == "wrong_host"
    assert server.get("/topics").json() == {"topics": []}


def test_names_can_be_added(tmp_path: Path) -> None:
    """For proxies that pass on the name their clients used."""
    with Running(tmp_path / "data", http_hosts="broker.example,b2", node_id="Node-7") as running:
        replies = [
            running.client.get("/livez", headers={"host": host}).status_code
            for host in ("broker.example", "B2:443", "node-7", "b3")
        ]

    assert replies == [200, 200, 200, 421]


def _group(server: Running) -> str:
    """Make a group with a member and a message to lease; return the path of its poll."""
    server.create(num_partitions=1)
    server.publish({"value": "one"})
    joined = server.post("/groups/workers/join", {"client_id": "c", "topics": ["orders"]})
    return f"/groups/workers/poll?member_id={joined.json()['member_id']}&timeout=1ms"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-site", "origin": "http://{address}"},
        {"sec-fetch-site": "anything"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:1"},
        {"origin": "http://{address}.evil.example"},
        {"origin": "null"},
        {"origin": ""},
    ],
)
def test_a_page_that_is_not_ours_changes_nothing(server: Running, headers: dict[str, str]) -> None:
    """Of another site, of the same site or in a browser that names the origin only."""
    poll = _group(server)
    foreign = {name: value.format(address=server.address) for name, value in headers.items()}
    refused = [
        server.client.post("/topics", json={"name": "forged"}, headers=foreign),
        server.client.delete("/topics/orders", headers=foreign),
        server.client.get(poll, headers=foreign),
    ]
    read = server.client.get("/topics", headers=foreign)

    assert {error_of(reply) for reply in refused} == {
        (403, "requests from other sites may only read")
    }
    assert read.json() == {"topics": ["orders"]}
    assert server.get(poll).json()["messages"], "nothing was leased before"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "http://{address}"},
        {"sec-fetch-site": "none"},
        {"origin": "http://{address}"},
        {"origin": "https://{address}"},
    ],
)
def test_our_own_pages_and_programs_may_change_things(
    server: Running, headers: dict[str, str]
) -> None:
    """The broker's pages, a person's own request, and whatever is no browser."""
    poll = _group(server)
    own = {name: value.format(address=server.address) for name, value in headers.items()}

    assert server.client.post("/topics", json={"name": "own"}, headers=own).status_code == 201
    assert server.client.get(poll, headers=own).json()["messages"]
    assert server.client.delete("/topics/own", headers=own).status_code == 200
