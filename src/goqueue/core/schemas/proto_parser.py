"""A ``.proto`` file as a descriptor: messages, enums, services and what they import.

Shape: codec. Recursive descent over the words of the file, bounded in depth. Options are skipped,
but for the few that change what a message looks like.
"""

from typing import Any, Final, NoReturn

from google.protobuf import descriptor_pb2 as pb

from goqueue.base.errors import InvalidSchemaError
from goqueue.core.schemas.proto_lexer import END, Token, tokens_of, unquote

DEPTH_MAX: Final = 32
_FIELD: Final = pb.FieldDescriptorProto
_SCALARS: Final = {
    name: _FIELD.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
        "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_LABELS: Final = {
    "optional": _FIELD.LABEL_OPTIONAL,
    "required": _FIELD.LABEL_REQUIRED,
    "repeated": _FIELD.LABEL_REPEATED,
}
_NUMBER_MAX: Final = 2**29 - 1
_ENUM_MAX: Final = 2**31

Options = dict[str, str]


class ProtoParser:
    """Reads one file."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._at = 0
        self._file = pb.FileDescriptorProto(syntax="proto2")

    def parse(self) -> pb.FileDescriptorProto:
        """Return the file, or raise saying which line is wrong."""
        while self._peek.kind != END:
            if self._take_if(";"):
                continue
            self._statement()
        if self._file.syntax == "proto2":
            self._file.ClearField("syntax")
        return self._file

    # Words.

    @property
    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def _take_if(self, text: str) -> bool:
        if self._peek.text != text or self._peek.kind == "text":
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take_if(text):
            self._fail(f"expected {text!a}, found {self._peek.text[:40]!a}")

    def _name(self) -> str:
        token = self._next()
        if token.kind != "name":
            self._fail(f"expected a name, found {token.text[:40]!a}")
        return token.text

    def _dotted(self) -> str:
        name = "." if self._take_if(".") else ""
        name += self._name()
        while self._take_if("."):
            name += "." + self._name()
        return name

    def _text(self) -> str:
        token = self._next()
        if token.kind != "text":
            self._fail(f"expected a quoted text, found {token.text[:40]!a}")
        whole = unquote(token.text)
        while self._peek.kind == "text":
            whole += unquote(self._next().text)
        return whole

    def _integer(self, least: int, most: int) -> int:
        sign = -1 if self._take_if("-") else 1
        token = self._next()
        try:
            is_octal = len(token.text) > 1 and token.text[0] == "0" and token.text.isdecimal()
            number = sign * int(token.text, 8 if is_octal else 0)
        except ValueError:
            self._fail(f"expected a whole number, found {token.text[:40]!a}")
        if not least <= number <= most:
            self._fail(f"{number} is not between {least} and {most}")
        return number

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidSchemaError(f"invalid schema: line {self._peek.line}: {reason}")

    # The file.

    def _statement(self) -> None:
        word = self._name()
        if word == "message":
            self._message(self._file.message_type.add(), depth=1)
        elif word == "enum":
            self._enum(self._file.enum_type.add())
        elif word == "extend":
            self._extend(self._file.extension, self._file.message_type, depth=1)
        elif word == "service":
            self._name()
            self._skip_block()
        else:
            self._line(word)
            self._expect(";")

    def _line(self, word: str) -> None:
        """Read a statement that ends with a semicolon."""
        match word:
            case "syntax":
                self._syntax()
            case "package":
                self._file.package = self._dotted()
            case "import":
                self._import()
            case "option":
                self._option()
            case "edition":
                self._fail("editions are not supported; write proto2 or proto3")
            case other:
                self._fail(f"unexpected {other[:40]!a}")

    def _syntax(self) -> None:
        self._expect("=")
        syntax = self._text()
        if syntax not in {"proto2", "proto3"}:
            self._fail(f"syntax {syntax[:40]!a} is neither proto2 nor proto3")
        self._file.syntax = syntax

    def _import(self) -> None:
        is_public = self._take_if("public")
        if not is_public:
            self._take_if("weak")
        if is_public:
            self._file.public_dependency.append(len(self._file.dependency))
        self._file.dependency.append(self._text())

    @property
    def _is_proto3(self) -> bool:
        return bool(self._file.syntax == "proto3")

    # Messages.

    def _message(self, message: pb.DescriptorProto, *, depth: int) -> None:
        if depth > DEPTH_MAX:
            self._fail(f"messages are nested more than {DEPTH_MAX} deep")
        message.name = self._name()
        self._body(message, depth=depth)

    def _body(self, message: pb.DescriptorProto, *, depth: int) -> None:
        self._expect("{")
        while not self._take_if("}"):
            if not self._take_if(";"):
                self._member(message, depth=depth)
        self._name_optionals(message)

    def _member(self, message: pb.DescriptorProto, *, depth: int) -> None:
        word = self._peek.text
        is_plain = self._tokens[self._at + 1].text if self._peek.kind == "name" else ""
        if word == "message" and is_plain not in {".", "="}:
            self._next()
            self._message(message.nested_type.add(), depth=depth + 1)
        elif word == "enum" and is_plain not in {".", "="}:
            self._next()
            self._enum(message.enum_type.add())
        elif word == "oneof":
            self._next()
            self._oneof(message, depth=depth)
        elif word in {"option", "reserved", "extensions"}:
            self._next()
            self._rule(word, message)
        elif word == "extend":
            self._next()
            self._extend(message.extension, message.nested_type, depth=depth)
        elif word == "map" and is_plain == "<":
            self._map(message)
        else:
            self._field(message.field.add(), message.nested_type, depth=depth)

    def _rule(self, word: str, message: pb.DescriptorProto) -> None:
        if word == "option":
            self._option()
        elif word == "extensions":
            for start, end in self._ranges(_NUMBER_MAX):
                message.extension_range.add(start=start, end=end + 1)
            self._field_options()
        elif self._peek.kind == "number" or self._peek.text == "-":
            for start, end in self._ranges(_NUMBER_MAX):
                message.reserved_range.add(start=start, end=end + 1)
        else:
            message.reserved_name.extend(self._reserved_names())
        self._expect(";")

    def _ranges(self, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while True:
            start = self._integer(-most - 1, most)
            end = start
            if self._take_if("to"):
                end = most if self._take_if("max") else self._integer(-most - 1, most)
            found.append((start, end))
            if not self._take_if(","):
                return found

    def _reserved_names(self) -> list[str]:
        names: list[str] = []
        while True:
            names.append(self._text() if self._peek.kind == "text" else self._name())
            if not self._take_if(","):
                return names

    def _oneof(self, message: pb.DescriptorProto, *, depth: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._take_if("}"):
            if self._take_if(";"):
                continue
            if self._peek.text == "option":
                self._next()
                self._option()
                self._expect(";")
                continue
            field = message.field.add(oneof_index=index)
            self._field(field, message.nested_type, depth=depth)

    def _field(self, field: pb.FieldDescriptorProto, nested: Any, *, depth: int) -> None:  # noqa: ANN401 - a repeated field
        field.label = _FIELD.LABEL_OPTIONAL
        if self._peek.text in _LABELS and self._tokens[self._at + 1].text != "=":
            label = self._next().text
            field.label = _LABELS[label]
            if label == "required" and self._is_proto3:
                self._fail("proto3 has no required fields")
            field.proto3_optional = label == "optional" and self._is_proto3
        kind = self._dotted()
        if kind == "group":
            self._group(field, nested, depth=depth)
            return
        _set_type(field, kind)
        field.name = self._name()
        self._expect("=")
        field.number = self._integer(1, _NUMBER_MAX)
        self._apply(self._field_options(), field)
        self._expect(";")

    def _group(self, field: pb.FieldDescriptorProto, nested: Any, *, depth: int) -> None:  # noqa: ANN401 - same
        name = self._name()
        self._expect("=")
        field.number = self._integer(1, _NUMBER_MAX)
        self._field_options()
        field.name, field.type, field.type_name = name.lower(), _FIELD.TYPE_GROUP, name
        message = nested.add(name=name)
        if depth >= DEPTH_MAX:
            self._fail(f"messages are nested more than {DEPTH_MAX} deep")
        self._body(message, depth=depth + 1)

    def _map(self, message: pb.DescriptorProto) -> None:
        self._next()
        self._expect("<")
        key_type = self._dotted()
        self._expect(",")
        value_type = self._dotted()
        self._expect(">")
        name = self._name()
        entry = message.nested_type.add(name=_camel(name) + "Entry")
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key_type), ("value", value_type)), 1):
            field = entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL)
            _set_type(field, kind)
        if key_type not in _SCALARS or key_type in {"float", "double", "bytes"}:
            self._fail(f"{key_type[:40]} cannot be the key of a map")
        self._expect("=")
        field = message.field.add(name=name, label=_FIELD.LABEL_REPEATED)
        field.number = self._integer(1, _NUMBER_MAX)
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, entry.name
        self._field_options()
        self._expect(";")

    def _name_optionals(self, message: pb.DescriptorProto) -> None:
        """Give each optional field of proto3 the oneof of its own that descriptors want."""
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _extend(self, extensions: Any, nested: Any, *, depth: int) -> None:  # noqa: ANN401 - repeated fields
        extendee = self._dotted()
        self._expect("{")
        while not self._take_if("}"):
            if not self._take_if(";"):
                self._field(extensions.add(extendee=extendee), nested, depth=depth)

    # Enums.

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        enum.name = self._name()
        self._expect("{")
        while not self._take_if("}"):
            if self._take_if(";"):
                continue
            name = self._name()
            if name == "option":
                named = self._option()
                enum.options.allow_alias = enum.options.allow_alias or named == {
                    "allow_alias": "true"
                }
            elif name == "reserved":
                self._reserve_in_enum(enum)
            else:
                self._expect("=")
                number = self._integer(-_ENUM_MAX, _ENUM_MAX - 1)
                enum.value.add(name=name, number=number)
                self._field_options()
            self._expect(";")
        if not enum.options.allow_alias:
            enum.ClearField("options")

    def _reserve_in_enum(self, enum: pb.EnumDescriptorProto) -> None:
        if self._peek.kind == "number" or self._peek.text == "-":
            for start, end in self._ranges(_ENUM_MAX - 1):
                enum.reserved_range.add(start=start, end=end)
        else:
            enum.reserved_name.extend(self._reserved_names())

    # Options.

    def _option(self) -> Options:
        name = self._option_name()
        self._expect("=")
        return {name: self._option_value()}

    def _option_name(self) -> str:
        name = ""
        while True:
            if self._take_if("("):
                name += f"({self._dotted()})"
                self._expect(")")
            else:
                name += self._name()
            if not self._take_if("."):
                return name
            name += "."

    def _option_value(self) -> str:
        if self._peek.kind == "text":
            return self._text()
        if self._peek.text == "{":
            self._skip_block()
            return "{}"
        sign = "-" if self._take_if("-") else ""
        self._take_if("+")
        return sign + self._next().text

    def _field_options(self) -> Options:
        found: Options = {}
        if not self._take_if("["):
            return found
        while True:
            found |= self._option()
            if self._take_if("]"):
                return found
            self._expect(",")

    def _apply(self, options: Options, field: pb.FieldDescriptorProto) -> None:
        if "default" in options:
            field.default_value = options["default"]
        if "json_name" in options:
            field.json_name = options["json_name"]
        if "packed" in options:
            field.options.packed = options["packed"] == "true"

    def _skip_block(self) -> None:
        self._expect("{")
        depth = 1
        while depth:
            token = self._next()
            if token.kind == END:
                self._fail("a block is not closed")
            if token.kind == "symbol":
                depth += {"{": 1, "}": -1}.get(token.text, 0)


def _set_type(field: pb.FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
