"""From a JSON schema to a validator: patterns run in linear time, and nothing is ever fetched.

Shape: calculator.
"""

from typing import Any, Final

import jsonschema_rs

from goqueue.base.errors import InvalidSchemaError
from goqueue.base.limits import SCHEMA_PATTERN_BYTES_MAX
from goqueue.core.schemas.json_document import DRAFT_7, JsonDocument

REASON_CHARACTERS_MAX: Final = 300


def make_validator(
    document: JsonDocument,
    root: Any = None,  # noqa: ANN401 - any JSON
) -> jsonschema_rs.Validator:
    """Return a validator of a document or, with ``root``, of a schema that uses its parts."""
    is_draft_7 = document.draft == DRAFT_7
    kind = jsonschema_rs.Draft7Validator if is_draft_7 else jsonschema_rs.Draft202012Validator
    try:
        return kind(
            document.root if root is None else root,
            registry=_registry(document, is_draft_7=is_draft_7),
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=SCHEMA_PATTERN_BYTES_MAX, dfa_size_limit=SCHEMA_PATTERN_BYTES_MAX
            ),
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        where = pointer(error.instance_path) or "/"
        raise InvalidSchemaError(f"invalid schema: {where}: {_first(error.message)}") from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise InvalidSchemaError(f"invalid schema: {_first(str(error))}") from error


def _registry(document: JsonDocument, *, is_draft_7: bool) -> jsonschema_rs.Registry | None:
    if not document.others:
        return None
    return jsonschema_rs.Registry(
        [(name, other.root) for name, other in document.others.items()],
        draft=jsonschema_rs.Draft7 if is_draft_7 else jsonschema_rs.Draft202012,
    )


def pointer(path: list[str | int]) -> str:
    """Return a place in a document as a JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)[:500]


def _first(text: str) -> str:
    return text.partition("\n")[0][:REASON_CHARACTERS_MAX]
