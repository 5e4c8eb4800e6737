"""What a JSON schema says of types, named values, numbers and texts, compared.

Shape: calculator.
"""

from math import inf
from typing import Final

from goqueue.base.limits import SCHEMA_BREAKS_MAX
from goqueue.core.schemas.definition import Break
from goqueue.core.schemas.json_view import (
    FRACTION,
    NUMBERS,
    SchemaView,
    Views,
    declared_types,
    identity,
    is_number,
    largest,
    lower_bound,
    own_values,
    smallest,
    upper_bound,
    values_of,
)

_SAME_TEXT: Final = ("pattern", "format", "contentEncoding", "contentMediaType")


def breaks(writers: Views, reader: SchemaView, path: str, *, types: frozenset[str]) -> list[Break]:
    """Return what of the writers' values a reader does not take."""
    found = _types(reader, path, types) + _values(writers, reader, path, types)
    if types & NUMBERS:
        found += _numbers(writers, reader, path, is_whole=FRACTION not in types)
    if "string" in types:
        found += _texts(writers, reader, path)
    return found


def _types(reader: SchemaView, path: str, types: frozenset[str]) -> list[Break]:
    lost = types - declared_types(reader)
    if not lost:
        return []
    if FRACTION in lost and "integer" in lost:
        lost = lost - NUMBERS | {"number"}
    named = reader.get("type")
    now = named if isinstance(named, str) else " or ".join(named)
    return [Break(path, f"the type was {' or '.join(sorted(lost))} and must be {now}")]


def _values(writers: Views, reader: SchemaView, path: str, types: frozenset[str]) -> list[Break]:
    allowed = own_values(reader)
    if allowed is None:
        return []
    values = values_of(writers, types)
    if values is None:
        return [Break(path, "only some values are allowed (enum, const)")]
    kept = set(map(identity, allowed))
    lost = [value for value in values if identity(value) not in kept][:SCHEMA_BREAKS_MAX]
    return [Break(path, f"the value {ascii(value)[:60]} is not allowed") for value in lost]


def _numbers(writers: Views, reader: SchemaView, path: str, *, is_whole: bool) -> list[Break]:
    found: list[Break] = []
    for keywords, bound, is_lower in (
        (("minimum", "exclusiveMinimum"), lower_bound, True),
        (("maximum", "exclusiveMaximum"), upper_bound, False),
    ):
        ours, theirs = bound(writers, is_whole=is_whole), bound([reader], is_whole=is_whole)
        inside = ours.value > theirs.value if is_lower else ours.value < theirs.value
        if inside or (ours.value == theirs.value and (ours.is_open or not theirs.is_open)):
            continue
        was = "without a limit" if ours.value in (inf, -inf) else f"{ours.value:g}"
        name = keywords[0] if reader.get(keywords[0]) is not None else keywords[1]
        found.append(Break(path, f"{name} was {was} and is {theirs.value:g}"))
    step = reader.get("multipleOf")
    if is_number(step) and not _is_multiple(writers, step, is_whole=is_whole):
        found.append(Break(path, f"multipleOf {step:g} refuses what was allowed"))
    return found


def _is_multiple(writers: Views, step: float, *, is_whole: bool) -> bool:
    if is_whole and step in (1, 1.0):
        return True
    steps = [view.get("multipleOf") for view in writers]
    # Fractions are not compared by remainder: 0.3 % 0.1 is not 0.
    return any(
        one == step or (isinstance(one, int) and isinstance(step, int) and one % step == 0)
        for one in steps
        if is_number(one)
    )


def _texts(writers: Views, reader: SchemaView, path: str) -> list[Break]:
    found = sizes(writers, reader, path, least="minLength", most="maxLength")
    for keyword in _SAME_TEXT:
        wanted = reader.get(keyword)
        if wanted is not None and not any(view.get(keyword) == wanted for view in writers):
            found.append(Break(path, f"{keyword} {ascii(wanted)[:60]} was not asked for"))
    return found


def sizes(
    writers: Views,
    reader: SchemaView,
    path: str,
    *,
    least: str,
    most: str,
    known: tuple[float, float] = (0, inf),
) -> list[Break]:
    """Return how the sizes of what was written lie outside the reader's bounds."""
    found: list[Break] = []
    low, high = largest(writers, least, known[0]), smallest(writers, most, known[1])
    wanted_low, wanted_high = reader.get(least), reader.get(most)
    if is_number(wanted_low) and low < wanted_low:
        found.append(Break(path, f"{least} was {low:g} and is {wanted_low:g}"))
    if is_number(wanted_high) and high > wanted_high:
        was = "without a limit" if high == inf else f"{high:g}"
        found.append(Break(path, f"{most} was {was} and is {wanted_high:g}"))
    return found
