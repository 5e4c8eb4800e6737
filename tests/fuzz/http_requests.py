"""Requests for fuzzing: mostly sound, with a few of the things that HTTP parsers disagree about."""

import random
from itertools import pairwise

TOPIC = "victim"
BODY = b'{"messages": [{"key": "k", "value": "v"}]}'

TARGETS = (
    b"/livez", b"/readyz", b"/topics", b"/topics/victim", b"/groups", b"/metrics", b"/docs",
    b"/topics/victim/partitions/0/messages?offset=0&limit=2", b"/topics/victim/messages",
)  # fmt: skip
ODD_TARGETS = (
    b"", b"*", b"/", b"//", b"/%", b"/%zz", b"/%00", b"/%ff%fe", b"/%25%2e%2e", b"/topics%2fvictim",
    b"/topics/%F0%9F%92%A9", b"/topics/..%2f..%2fetc", b"/topics?limit=%", b"/topics?%zz=%zz&&=&a",
    b"/topics/victim/partitions/-1/messages", b"/topics/victim/partitions/0/messages?offset=1e9",
    b"/topics/victim/partitions/99999999999999999999/messages?offset=0", b"/\xff", b"/\x00",
    b"/a b",
    b"http://x", b"http://localhost/livez", b"http://[::1", b"http://:80", b"localhost:443", b"x#y",
    b"/livez#fragment", b"/livez?" + b"q=%41&" * 500, b"/" + b"a" * 9_000, b"/" + b"%41" * 9_000,
)  # fmt: skip
METHODS = (b"GET", b"POST", b"PUT", b"PATCH", b"HEAD", b"OPTIONS")
ODD_METHODS = (b"get", b"", b"G\x00T", b"GE T", b"CONNECT", b"TRACE", b"PRI", b"X" * 300, b"SOURCE")
VERSIONS = (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 ", b"http/1.1", b"HTTP/1.", b"")
ODD_HEADERS = (
    b"connection: keep-alive", b"connection: close", b"connection: close, keep-alive",
    b"connection: upgrade\r\nupgrade: websocket", b"connection: Upgrade\r\nupgrade: h2c",
    b"host: elsewhere", b"expect: 100-continue", b"expect: 200-ok", b"content-length: 0",
    b"content-length: -1", b"content-length: +5", b"content-length: 5, 5", b"content-length: 0x5",
    b"content-length: 99999999999999999999", b"content-length: 5\r\ncontent-length: 6",
    b"content-length:", b"content-length: 4\x00", b"content-length : 5", b"content_length: 5",
    b"transfer-encoding: chunked", b"transfer-encoding: Chunked", b"transfer-encoding:\tchunked",
    b"transfer-encoding: gzip, chunked", b"transfer-encoding: chunked, gzip",
    b"transfer-encoding: identity", b"transfer-encoding: \x0bchunked",
    b"transfer-encoding : chunked",
    b"transfer-encoding: chunked\r\ntransfer-encoding: chunked", b"transfer-encoding: x, chunked",
    b"transfer-encoding: chunked\r\ncontent-length: 5",
    b"content-length: 5\r\ntransfer-encoding: chunked",
    b"a b: c", b": nameless", b"x\x00y: 1", b"x: \x00", b"x: \xff\xfe", b"x: a\r\n folded",
    b"x: a\nb: c",
    b"x: a\rb: c", b"no colon", b" leading: space", b"x:" + b" " * 3_000 + b"y",
    b"x: " + b"y" * 30_000,
    b"x: " + b"y" * 200_000, b"\r\n".join([b"x: y"] * 200), b"\r\n".join([b"x: y"] * 60),
    b"content-type: application/json", b"origin: http://evil", b"accept-encoding: gzip, br",
)  # fmt: skip
SIZES = (
    b"zz", b"-1", b"+5", b"0x5", b"5 ", b" 5", b"5;ext=1", b'5;ext="\r\n"', b"5\n",
    b"00000000000005",
    b"FFFFFFFFFFFFFFFF", b"FFFFFFFFFFFFFFFFF", b"", b"5;" + b"e" * 5_000, b"5;" + b"e" * 200_000,
)  # fmt: skip
ENDS = (b"\n", b"", b"\r", b"\r\r\n")
TRAILERS = (
    b"x: y\r\n", b"content-length: 9\r\n", b"transfer-encoding: chunked\r\n",
    b"host: z\r\n", b"x: " + b"y" * 3_000 + b"\r\n",
)  # fmt: skip


def chunked(dice: random.Random, body: bytes, *, odds: float) -> bytes:
    """A body in chunks, whose sizes and ends are odd with this probability."""
    raw = bytearray()
    while body:
        length = dice.choice((1, 5, 20, 1_000))
        piece, body = body[:length], body[length:]
        size = dice.choice(SIZES) if dice.random() < odds else b"%x" % len(piece)
        end = dice.choice(ENDS) if dice.random() < odds else b"\r\n"
        raw += size + b"\r\n" + piece + end
    if dice.random() >= odds:
        raw += b"0\r\n" + (dice.choice(TRAILERS) if dice.random() < odds else b"") + b"\r\n"
    return bytes(raw)


def request(dice: random.Random, *, odds: float) -> bytes:
    """One request; each of its parts is odd with this probability."""

    def is_odd() -> bool:
        return dice.random() < odds

    method = dice.choice(ODD_METHODS if is_odd() else METHODS)
    target = dice.choice(ODD_TARGETS if is_odd() else TARGETS)
    version = dice.choice(VERSIONS) if is_odd() else b"HTTP/1.1"
    newline = b"\n" if is_odd() else b"\r\n"
    lines = [method + b" " + target + b" " + version]
    if not is_odd():
        lines.append(b"host: localhost")
    lines += [dice.choice(ODD_HEADERS) for _ in range(3) if is_odd()]
    body = b""
    if method in {b"POST", b"PUT", b"PATCH"}:
        body = BODY if not is_odd() else dice.randbytes(dice.choice((1, 100, 3_000, 90_000)))
        if dice.random() < 0.5:
            lines.append(b"content-length: %d" % (len(body) if not is_odd() else len(body) + 1))
        else:
            lines.append(b"transfer-encoding: chunked")
            body = chunked(dice, body, odds=odds)
    dice.shuffle(rest := lines[1:])
    return newline.join([lines[0], *rest, b"", body])


def stream(dice: random.Random) -> bytes:
    """A few requests behind one another, now and then with a few bytes changed."""
    odds = dice.choice((0.0, 0.01, 0.03, 0.1, 0.4))
    raw = bytearray(b"".join(request(dice, odds=odds) for _ in range(dice.randint(1, 12))))
    for _ in range(dice.choice((0, 0, 0, 1, 4))):
        place = dice.randrange(len(raw))
        match dice.randrange(4):
            case 0:
                raw[place] ^= 1 << dice.randrange(8)
            case 1:
                del raw[place : place + dice.choice((1, 2, 40))]
            case 2:
                raw[place:place] = dice.choice((b"\x00", b"\r\n", b"\n", b"\r\n\r\n", b" ", b"%"))
            case _:
                raw[place:place] = dice.randbytes(dice.randint(1, 8))
    return bytes(raw)


def noise(dice: random.Random) -> bytes:
    """Bytes of nothing, at times behind the beginning of a request."""
    start = dice.choice((b"", b"GET / HTTP/1.1\r\n", b"POST /topics/victim/messages HTTP/1.1\r\n"))
    return start + dice.randbytes(dice.randint(1, 5_000))


def long_head(dice: random.Random) -> bytes:
    """A head without an end, far beyond every limit: a line, or lines without number."""
    line = dice.choice((b"x: y\r\n", b"a", b"x: " + b"y" * 90 + b"\r\n", b"\r\n", b"%41"))
    return b"GET /" + b" HTTP/1.1\r\nhost: localhost\r\n" + line * (400_000 // len(line))


def pieces(dice: random.Random, raw: bytes) -> list[bytes]:
    """The same bytes, cut at some places: none, a few, or after every byte of a stretch."""
    match dice.randrange(3):
        case 0:
            cuts = {dice.randrange(len(raw) + 1) for _ in range(dice.randint(0, 6))}
        case 1:
            size = dice.choice((7, 64, 1_000, 1 << 14, 1 << 16))
            cuts = set(range(0, len(raw), size))
        case _:
            first = dice.randrange(len(raw))
            cuts = set(range(first, min(first + 500, len(raw))))
    places = [0, *sorted(cuts), len(raw)]
    found = [raw[start:end] for start, end in pairwise(places)]
    return [piece for piece in found if piece]
