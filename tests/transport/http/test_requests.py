"""What every request can rely on, and what a hostile one cannot do."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.transport.http.connection import HEAD_BYTES_MAX
from tests.transport.http.running import Running, error_of

MiB = 1024 * 1024
PUBLISH = "/topics/orders/messages"


def publish_body(size: int) -> bytes:
    """Return a publish of exactly so many bytes."""
    shell = b'{"messages":[{"value":""}]}'
    return shell.replace(b'""', b'"' + b"x" * (size - len(shell)) + b'"')


def topic_body(size: int) -> bytes:
    """Return a topic creation of exactly so many bytes."""
    body = b'{"name":"large"}'
    return body + b" " * (size - len(body))


@pytest.mark.parametrize("path", ["/none", "/topics/", "/topics/a/b/c", "/v2/topics", "/v1/health"])
def test_an_unknown_route_answers_404(server: Running, path: str) -> None:
    """There is no such route, and the answer is JSON like every other."""
    reply = server.get(path)

    assert error_of(reply) == (404, "no such route")
    assert reply.json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/topics", "GET, HEAD, POST"),
        ("POST", "/v1/topics/a", "DELETE, GET, HEAD"),
        ("DELETE", "/topics/a/config", "GET, HEAD, PATCH, PUT"),
        ("GET", "/topics/a/messages", "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("OPTIONS", "/topics", "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_answers_405(server: Running, method: str, path: str, allow: str) -> None:
    """The answer names every method there is at the path."""
    reply = server.client.request(method, path)

    assert error_of(reply) == (405, f"method {method} is not allowed here")
    assert reply.headers["allow"] == allow
    assert reply.json()["code"] == "method_not_allowed"


def test_head_is_get_without_a_body(server: Running) -> None:
    """HEAD answers like GET and sends nothing."""
    reply = server.client.head("/topics")

    assert reply.status_code == 200
    assert reply.content == b""
    assert int(reply.headers["content-length"]) == len(server.get("/topics").content)


def test_every_reply_can_be_trusted_by_a_browser(server: Running) -> None:
    """Nothing is sniffed or kept, and every reply has its date."""
    for reply in (server.get("/topics"), server.get("/none"), server.get("/metrics")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        assert "server" not in reply.headers


def test_a_page_of_another_site_may_only_read(server: Running) -> None:
    """A browser that is made to send a request by a foreign page is refused."""
    foreign = {"sec-fetch-site": "cross-site"}
    refused = server.post("/topics", {"name": "forged"}, headers=foreign)
    own = server.post("/topics", {"name": "own"}, headers={"sec-fetch-site": "same-origin"})
    read = server.client.get("/topics", headers=foreign)

    assert error_of(refused) == (403, "requests from other sites may only read")
    assert own.status_code == 201
    assert read.json() == {"topics": ["own"]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "invalid JSON"),
        (b"{", "invalid JSON"),
        (b"nonsense", "invalid JSON"),
        (b'{"name":"a"} trailing', "invalid JSON"),
        (b'{"name":"a",}', "invalid JSON"),
        (b"\xff\xfe", "invalid JSON"),
        (b'{"name":"\xff"}', "invalid JSON"),
        (b'{"name":"\\ud800"}', "invalid JSON"),
        (b'{"name":"a\x00b"}', "invalid JSON"),
        (b"[" * 500_000, "body: expected object, got array"),
        (b'{"x":' + b"[" * 500_000, "invalid JSON: nested too deeply"),
        (b'{"config":' + b'{"a":' * 100_000, "invalid JSON: nested too deeply"),
        (b'{"name":"a","num_partitions":' + b"9" * 100_000 + b"}", "num_partitions: "),
        (b'{"name":"a","num_partitions":1e999}', "num_partitions: "),
        (b"5", "body: expected object, got int"),
        (b"null", "body: expected object, got null"),
    ],
    ids=range(16),
)
def test_bad_json_answers_400(server: Running, body: bytes, text: str) -> None:
    """Whatever is not JSON of the right shape is refused in words, and nothing is made."""
    status, error = error_of(server.client.post("/topics", content=body))

    assert status == 400
    assert error.startswith(text)
    assert len(error) < 300
    assert server.get("/topics").json() == {"topics": []}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "invalid JSON"),
        (b'{"messages":[{"value":"a"}', "invalid JSON"),
        (b'{"messages":[{"value":"\xff"}]}', "invalid JSON"),
        (b'{"messages":[{"value":"\\ud800"}]}', "invalid JSON"),
        (b'{"messages":' + b"[" * 500_000, "messages[0]: expected object, got array"),
        (b'{"messages":[{"value":"a","x":' + b"[" * 500_000, "invalid JSON: nested too deeply"),
        (b'{"messages":[{"value":"a","partition":' + b"9" * 100_000, "messages[0].partition: "),
    ],
    ids=range(7),
)
def test_a_publish_of_bad_json_stores_nothing(server: Running, body: bytes, text: str) -> None:
    """Neither way of reading a publish lets bad JSON through."""
    server.create()
    status, error = error_of(server.client.post(PUBLISH, content=body))

    assert status == 400
    assert error.startswith(text)
    assert server.get("/topics/orders").json()["total_messages"] == 0


@pytest.mark.parametrize("path", ["/topics", PUBLISH])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["declared", "chunked"])
def test_a_body_has_a_limit(server: Running, path: str, *, is_chunked: bool) -> None:
    """A body at its limit is taken; one byte more answers 413, not 400 (trap D3)."""
    server.create(num_partitions=1)
    limit, make = (16 * MiB, publish_body) if path == PUBLISH else (MiB, topic_body)

    def send(size: int) -> tuple[int, str]:
        body = make(size)
        chunks = (body[at : at + 65_536] for at in range(0, size, 65_536))
        reply = server.client.post(path, content=chunks if is_chunked else body)
        return reply.status_code, reply.json().get("code", "")

    assert send(limit) in {(200, ""), (201, "")}
    assert send(limit + 1) == (413, "too_large")
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize("declared", [b"2147483648", b"9223372036854775807"])
def test_a_declared_size_is_refused_before_the_body_comes(server: Running, declared: bytes) -> None:
    """A declared size beyond the limit answers 413 at once; not one byte of it is waited for."""
    with server.connect() as connection:
        connection.sendall(
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + declared + b"\r\n\r\n"
        )
        head = connection.recv(65_536)

    assert head.startswith(b"HTTP/1.1 413 ")


def test_limits_can_be_configured(tmp_path: Path) -> None:
    """Both limits are the operator's to choose."""
    with Running(tmp_path, http_body_bytes_max=100, http_publish_body_bytes_max=1000) as server:
        server.create(num_partitions=1)
        topic = server.client.post("/topics", content=topic_body(101))
        taken = server.client.post(PUBLISH, content=publish_body(1000))
        large = server.client.post(PUBLISH, content=publish_body(1001))

    assert error_of(topic) == (413, "request body is too large; the limit is 100 bytes")
    assert taken.status_code == 200
    assert error_of(large) == (413, "request body is too large; the limit is 1000 bytes")


def test_a_client_may_ask_before_it_sends(server: Running) -> None:
    """With ``Expect: 100-continue`` a body that is too large is never sent."""
    head = (
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
        b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    )
    with server.connect() as connection:
        connection.sendall(head % (2 * MiB))
        refused = connection.recv(65_536)
    with server.connect() as connection:
        body = b'{"name":"asked"}'
        connection.sendall(head % len(body))
        go_on = connection.recv(65_536)
        connection.sendall(body)
        created = connection.recv(65_536)

    assert refused.startswith(b"HTTP/1.1 413 ")
    assert go_on.startswith(b"HTTP/1.1 100 ")
    assert created.startswith(b"HTTP/1.1 201 ")


def test_a_connection_survives_a_refused_body(server: Running) -> None:
    """What is left of a refused body is thrown away, and the next request is served."""
    server.create(num_partitions=1)
    with server.connect() as connection:
        body = topic_body(MiB + 1)
        connection.sendall(
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        first = connection.recv(65_536)
        connection.sendall(b"GET /topics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        second = connection.recv(65_536)

    assert first.startswith(b"HTTP/1.1 413 ")
    assert second.startswith(b"HTTP/1.1 200 ")


def test_requests_can_be_pipelined(server: Running) -> None:
    """Several requests sent at once are answered in their order."""
    server.create(num_partitions=1)
    body = b'{"messages":[{"value":"a"}]}'
    publish = (
        b"POST /topics/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    )
    read = b"GET /topics/orders HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = server.exchange((publish % len(body) + body) * 3 + read)

    bodies = [part.split(b"HTTP/1.1")[0] for part in answer.split(b"\r\n\r\n")[1:]]
    offsets = [json.loads(part)["results"][0]["offset"] for part in bodies[:3]]
    assert offsets == [0, 1, 2]
    assert json.loads(bodies[3])["total_messages"] == 3


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /topics HTTP/9.9\r\n\r\n",
        b"GET /t\xc3\xb6pics HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        (
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
            b"content-length: 99999999999999999999999\r\n\r\n"
        ),
        (
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
            b"content-length: 5\r\ncontent-length: 6\r\n\r\n"
        ),
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /topics HTTP/1.1\r\nna me: x\r\n\r\n",
        b"GQ\x01\x00" + bytes(30),
    ],
)
def test_what_is_no_request_is_answered_and_closed(server: Running, request_bytes: bytes) -> None:
    """Bytes that are not HTTP get a 400 in JSON, the connection is closed, others are served."""
    head, _, body = server.exchange(request_bytes).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    assert json.loads(body)["code"] == "protocol_error"
    assert server.get("/health").status_code == 200


def header_flood(size: int) -> bytes:
    return b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-flood: " + b"x" * size


def test_a_head_has_a_limit(server: Running) -> None:
    """A head up to the limit is taken; a larger one answers 431 and the connection is closed."""
    rest = len(b"/healthhost: localhost\r\nx-flood: \r\nconnection: close\r\n")
    end = b"\r\nconnection: close\r\n\r\n"
    taken = server.exchange(header_flood(HEAD_BYTES_MAX - rest) + end)
    over = server.exchange(header_flood(HEAD_BYTES_MAX - rest + 1) + end)

    assert taken.startswith(b"HTTP/1.1 200 ")
    assert over.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in over


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-flood: ",
        b"GET /",
        b"POST /topics HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1;",
        (
            b"POST /topics HTTP/1.1\r\nhost: localhost\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\nx-trailer: "
        ),
    ],
    ids=["header", "address", "chunk extension", "trailer"],
)
def test_a_flood_that_never_ends_is_cut(server: Running, begin: bytes) -> None:
    """A head, an address, a chunk or a trailer without end is refused within the limit."""
    with server.connect() as connection:
        answer = b""
        try:
            connection.sendall(begin)
            for _ in range(100):
                connection.sendall(b"x" * 65_536)
        except OSError:
            pass
        else:
            pytest.fail("the broker took 6 MiB of nothing")
        try:
            answer = connection.recv(65_536)
        except ConnectionResetError:
            return

    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, connections_max=2) as server:
        yield server


def test_connections_have_a_limit(small: Running) -> None:
    """One connection too many is told so and closed; when another ends there is room again."""

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return connection.recv(65_536)

    with small.connect() as first, small.connect() as second:
        assert ask(first).startswith(b"HTTP/1.1 200 ")
        assert ask(second).startswith(b"HTTP/1.1 200 ")
        with small.connect() as third:
            refused = third.recv(65_536)
        assert ask(first).startswith(b"HTTP/1.1 200 ")

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"overloaded"' in refused
