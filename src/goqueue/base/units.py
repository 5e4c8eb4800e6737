"""Sizes and durations: the words people write and the integers the broker works with."""

import re
from typing import Final

KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

US_PER_MS: Final = 1000
NS_PER_US: Final = 1000
NS_PER_MS: Final = 1_000_000

DURATION_TEXT_MAX: Final = 64
"""Longest duration text looked at; the longest sensible one is a third of it."""

_DURATION_UNITS_NS: Final = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": SECOND_MS * NS_PER_MS,
    "m": MINUTE_MS * NS_PER_MS,
    "h": HOUR_MS * NS_PER_MS,
    "d": DAY_MS * NS_PER_MS,
}
_DURATION_PART: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([KMG]i?B|B)?", re.ASCII)
_SIZE_UNITS: Final = {
    None: 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": KiB,
    "MiB": MiB,
    "GiB": GiB,
}


def parse_duration_ms(text: str) -> int:
    """Read "30s", "1h30m", "-500ms" as milliseconds; raise ValueError saying what was expected."""
    if len(text) > DURATION_TEXT_MAX:
        raise ValueError(f"a duration has at most {DURATION_TEXT_MAX} characters")
    body = text.removeprefix("-").removeprefix("+")
    if body == "0":
        return 0
    total_ns = 0
    position = 0
    while position < len(body):
        part = _DURATION_PART.match(body, position)
        if part is None:
            break
        whole, fraction, unit = part.groups()
        unit_ns = _DURATION_UNITS_NS[unit]
        total_ns += int(whole) * unit_ns
        if fraction:
            total_ns += int(fraction) * unit_ns // 10 ** len(fraction)
        position = part.end()
    if not body or position < len(body):
        raise ValueError(f'{text!r} is not a duration; write for example "30s", "1h30m" or "500ms"')
    return -(total_ns // NS_PER_MS) if text.startswith("-") else total_ns // NS_PER_MS


def format_duration_ms(duration_ms: int) -> str:
    """Write milliseconds the way Go does: "1h30m0s", "2.5s", "500ms"."""
    sign, rest = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    if rest == 0:
        return "0s"
    if rest < SECOND_MS:
        return f"{sign}{rest}ms"
    hours, rest = divmod(rest, HOUR_MS)
    minutes, rest = divmod(rest, MINUTE_MS)
    seconds, milliseconds = divmod(rest, SECOND_MS)
    text = f"{seconds}.{milliseconds:03d}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def parse_size_bytes(text: str) -> int:
    """Read "64MiB", "10GB" or a plain number of bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{text!r} is not a size; write for example "64MiB", "10GB" or "4096"')
    number, unit = match.groups()
    return (
        int(float(number) * _SIZE_UNITS[unit]) if "." in number else int(number) * _SIZE_UNITS[unit]
    )


def format_size_bytes(size_bytes: int) -> str:
    """Write a number of bytes for people: "1.5 MiB"."""
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"
