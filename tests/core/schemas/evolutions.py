"""Random JSON schemas, random changes to them, and random data that fits."""

from copy import deepcopy
from random import Random
from typing import Any

Json = Any

NAMES = ("a", "b", "c", "d")
WORDS = ("", "x", "no", "word", "longer word", "A1", "b22")
UNDECLARED = ("qq1", "qq2")
"""Names that no schema here ever declares."""
PATTERNED = ("zz1", "zz2")
"""Names that are declared by a pattern, if at all."""


class SchemaMaker:
    """Makes schemas and changes them, all from one seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def schema(self, depth: int = 3) -> Json:
        """Return a schema."""
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "any"]
        if depth > 0:
            kinds += ["object", "object", "object", "array", "anyOf", "oneOf", "allOf", "types"]
        return getattr(self, f"_{self.random.choice(kinds)}")(depth)

    def _maybe(self, schema: dict[str, Json], keyword: str, *values: Json) -> None:
        if self.random.random() < 0.4:
            schema[keyword] = self.random.choice(values)

    def _string(self, _: int) -> Json:
        schema: dict[str, Json] = {"type": "string"}
        self._maybe(schema, "minLength", 0, 1, 2)
        self._maybe(schema, "maxLength", 3, 5, 20)
        self._maybe(schema, "pattern", "^[a-z ]*$", "o")
        return schema

    def _integer(self, _: int) -> Json:
        return self._bounded("integer")

    def _number(self, _: int) -> Json:
        return self._bounded("number")

    def _bounded(self, kind: str) -> Json:
        schema: dict[str, Json] = {"type": kind}
        self._maybe(schema, "minimum", -3, 0, 1.5)
        self._maybe(schema, "maximum", 4, 7, 10.5)
        self._maybe(schema, "exclusiveMinimum", -4, 0)
        self._maybe(schema, "exclusiveMaximum", 8, 5.5)
        self._maybe(schema, "multipleOf", 1, 2)
        return schema

    def _boolean(self, _: int) -> Json:
        return {"type": "boolean"}

    def _null(self, _: int) -> Json:
        return {"type": "null"}

    def _enum(self, _: int) -> Json:
        values = ["x", "no", 1, 2, 2.5, None, True, [], {"a": 1}]
        if self.random.random() < 0.3:
            return {"const": self.random.choice(values)}
        return {"enum": self.random.sample(values, self.random.randint(1, 4))}

    def _any(self, _: int) -> Json:
        return self.random.choice([{}, True, {"minLength": 2}, {"minimum": 3}, {"required": ["a"]}])

    def _types(self, depth: int) -> Json:
        kinds = self.random.sample(["string", "integer", "null", "object", "array", "number"], 2)
        schema: dict[str, Json] = {"type": kinds}
        if "object" in kinds:
            schema |= {k: v for k, v in self._object(depth - 1).items() if k != "type"}
        if "string" in kinds:
            self._maybe(schema, "maxLength", 3, 5)
        return schema

    def _object(self, depth: int) -> Json:
        names = self.random.sample(NAMES, self.random.randint(0, 3))
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {name: self.schema(depth - 1) for name in names},
        }
        if self.random.random() < 0.6:
            schema["required"] = self.random.sample(names, self.random.randint(0, len(names)))
        if self.random.random() < 0.5:
            chosen = [False, True, self.schema(depth - 1)]
            schema["additionalProperties"] = self.random.choice(chosen)
        if self.random.random() < 0.2:
            schema["patternProperties"] = {"^z": self.schema(depth - 1)}
        self._maybe(schema, "minProperties", 1)
        self._maybe(schema, "maxProperties", 3, 5)
        if self.random.random() < 0.1:
            schema["propertyNames"] = {"maxLength": 2}
        if self.random.random() < 0.1:
            schema["dependencies"] = {"a": ["b"]}
        return schema

    def _array(self, depth: int) -> Json:
        schema: dict[str, Json] = {"type": "array", "items": self.schema(depth - 1)}
        if self.random.random() < 0.3:
            schema["items"] = [self.schema(depth - 1), self.schema(depth - 1)]
            self._maybe(schema, "additionalItems", *(False, True, {"type": "integer"}))
        self._maybe(schema, "minItems", 0, 1)
        self._maybe(schema, "maxItems", 2, 4)
        self._maybe(schema, "uniqueItems", *(True, False))
        return schema

    def _anyOf(self, depth: int) -> Json:  # noqa: N802 - the keyword
        return {"anyOf": [self.schema(depth - 1) for _ in range(2)]}

    def _oneOf(self, depth: int) -> Json:  # noqa: N802 - the keyword
        return {"oneOf": [self.schema(depth - 1) for _ in range(2)]}

    def _allOf(self, depth: int) -> Json:  # noqa: N802 - the keyword
        return {"allOf": [self.schema(depth - 1) for _ in range(2)]}

    def change(self, schema: Json) -> Json:
        """Return a schema a little different somewhere."""
        changed = deepcopy(schema)
        places = list(_places(changed))
        for _ in range(self.random.choice((0, 1, 1, 1, 2))):
            holder, key = self.random.choice(places) if places else (None, None)
            if holder is None or self.random.random() < 0.1:
                return self._wrap(changed)
            if self.random.random() < 0.5 and isinstance(holder[key], dict) and holder[key]:
                self._edit(holder[key])
            else:
                holder[key] = self.schema(2)
            places = list(_places(changed))
        if isinstance(changed, dict) and changed and self.random.random() < 0.6:
            self._edit(changed)
        return changed

    def _wrap(self, schema: Json) -> Json:
        other = self.schema(1)
        wrapped = [
            {"anyOf": [schema, other]},
            {"oneOf": [other, schema]},
            {"allOf": [schema, other]},
            {"not": {"not": schema}},
            {"definitions": {"d": schema}, "$ref": "#/definitions/d"},
        ]
        return self.random.choice(wrapped)

    def _edit(self, schema: dict[str, Json]) -> None:
        """Drop, loosen or tighten one keyword."""
        keyword = self.random.choice(sorted(schema))
        value = schema[keyword]
        if keyword in {"properties", "required", "enum"} and value:
            self._edit_some(schema, keyword)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            schema[keyword] = max(0, value + self.random.choice((-2, -1, 1, 2, 100)))
            if keyword == "multipleOf":
                schema[keyword] = self.random.choice((1, 2, 4))
        elif keyword == "type" and value == "integer":
            schema["type"] = "number"
        else:
            del schema[keyword]

    def _edit_some(self, schema: dict[str, Json], keyword: str) -> None:
        value = schema[keyword]
        if keyword == "properties":
            if self.random.random() < 0.5:
                value[self.random.choice(NAMES)] = self.schema(1)
            else:
                del value[self.random.choice(sorted(value))]
        elif keyword == "required" and self.random.random() < 0.5:
            schema[keyword] = sorted({*value, self.random.choice(NAMES)})
        elif len(value) > 1 or keyword == "required":
            value.pop(self.random.randrange(len(value)))


def _places(schema: Json) -> Any:
    """Yield every place a schema stands in."""
    if not isinstance(schema, dict):
        return
    for keyword in ("properties", "patternProperties", "definitions"):
        for name in schema.get(keyword, {}):
            yield schema[keyword], name
            yield from _places(schema[keyword][name])
    for keyword in ("items", "anyOf", "oneOf", "allOf"):
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from _listed(value)
        elif isinstance(value, dict):
            yield schema, keyword
            yield from _places(value)
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema, "additionalProperties"
        yield from _places(schema["additionalProperties"])


def _listed(schemas: list[Json]) -> Any:
    for index, one in enumerate(list(schemas)):
        yield schemas, index
        yield from _places(one)


ANY = "any"
_ANY: Json = {"$ref": f"#/definitions/{ANY}"}


def closed(schema: Json) -> Json:
    """Return a schema that takes no property it does not name, but those nobody ever names."""
    whole = _close(schema)
    free = _open_to({"items": _ANY})
    if not isinstance(whole, dict):
        return whole
    if whole == _ANY:
        return {**free, "definitions": {ANY: free}}
    return {**whole, "definitions": {ANY: free}}


def _open_to(schema: dict[str, Json]) -> dict[str, Json]:
    patterns = {**schema.get("patternProperties", {}), "^qq": _ANY}
    return {**schema, "patternProperties": patterns, "additionalProperties": False}


def _close(schema: Json) -> Json:
    if schema is True or schema == {}:
        return _ANY
    if schema is False:
        return False
    made = dict(schema)
    for keyword in ("properties", "patternProperties"):
        if keyword in made:
            made[keyword] = {name: _close(one) for name, one in made[keyword].items()}
    made.setdefault("items", True)
    for keyword in ("items", "anyOf", "oneOf", "allOf"):
        if keyword in made:
            value = made[keyword]
            made[keyword] = list(map(_close, value)) if isinstance(value, list) else _close(value)
    if isinstance(made.get("additionalItems"), dict):
        made["additionalItems"] = _close(made["additionalItems"])
    return _close_beside(made)


def _close_beside(made: dict[str, Json]) -> Json:
    beside = made.get("additionalProperties", True)
    if beside is True or beside == {}:
        return _open_to(made)
    made["additionalProperties"] = _close(beside)
    return made


class ValueMaker:
    """Makes values a schema may take; who asks keeps those that fit."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def value(self, schema: Json, depth: int = 4) -> Json:
        """Return a value with some chance to fit."""
        if not isinstance(schema, dict) or not schema or depth <= 0:
            return self._any(depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._combined(schema, keyword, depth)
        kind = schema.get("type", self.random.choice(("object", "string", "integer")))
        if isinstance(kind, list):
            kind = self.random.choice(kind)
        return getattr(self, f"_{kind}")(schema, depth)

    def _combined(self, schema: dict[str, Json], keyword: str, depth: int) -> Json:
        chosen = self.value(self.random.choice(schema[keyword]), depth)
        if keyword == "allOf" and all(isinstance(one, dict) for one in schema[keyword]):
            values = [self.value(one, depth) for one in schema[keyword]]
            if all(isinstance(one, dict) for one in values):
                return {key: one[key] for one in values for key in one}
        return chosen

    def _any(self, depth: int) -> Json:
        plain: list[Json] = [None, True, 0, 1, 2.5, "x", "word", [], {}]
        if depth > 0:
            plain += [[1, "x"], {"a": 1}, {"b": "x", "c": 2}]
        return self.random.choice(plain)

    def _null(self, _: Json, __: int) -> Json:
        return None

    def _boolean(self, _: Json, __: int) -> Json:
        return self.random.random() < 0.5

    def _string(self, _: Json, __: int) -> Json:
        return self.random.choice(WORDS)

    def _integer(self, schema: Json, _: int) -> Json:
        edges = [schema.get(name, 0) for name in ("minimum", "maximum", "exclusiveMinimum")]
        return int(self.random.choice([*edges, 2, 4, 6])) + self.random.choice((-1, 0, 0, 1))

    def _number(self, schema: Json, depth: int) -> Json:
        return self._integer(schema, depth) + self.random.choice((0, 0, 0.5, 0.25))

    def _object(self, schema: Json, depth: int) -> Json:
        found: dict[str, Json] = {}
        required = schema.get("required", [])
        for name, part in schema.get("properties", {}).items():
            if name in required or self.random.random() < 0.6:
                found[name] = self.value(part, depth - 1)
        for name in required:
            found.setdefault(name, self._any(depth - 1))
        for part in schema.get("patternProperties", {}).values():
            if self.random.random() < 0.5:
                found[self.random.choice(PATTERNED)] = self.value(part, depth - 1)
        self._add_others(found, schema.get("additionalProperties", True), depth)
        return found

    def _add_others(self, found: dict[str, Json], beside: Json, depth: int) -> None:
        if isinstance(beside, dict) and beside:
            # Only a schema for them makes undeclared names count.
            for name in self.random.sample((*NAMES, *UNDECLARED), 2):
                found.setdefault(name, self.value(beside, depth - 1))
        elif beside is not False and self.random.random() < 0.3:
            found[self.random.choice(UNDECLARED)] = self._any(depth - 1)

    def _array(self, schema: Json, depth: int) -> Json:
        items = schema.get("items", True)
        count = self.random.randint(0, 3)
        if isinstance(items, list):
            rest = schema.get("additionalItems", True)
            return [
                self.value(items[i] if i < len(items) else rest, depth - 1) for i in range(count)
            ]
        return [self.value(items, depth - 1) for _ in range(count)]
