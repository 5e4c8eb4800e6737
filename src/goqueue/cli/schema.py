"""``goqueue schema``: register, look at, compare and try schemas."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.errors import IncompatibleSchemaError, SchemaViolationError
from goqueue.cli.failure import usage
from goqueue.cli.output import Grid, count, print_data, print_pairs, say
from goqueue.cli.session import Session, add_common_options, command, confirm

if TYPE_CHECKING:
    from goqueue.core.schemas.definition import Definition

SUFFIXES: Final = {".json": "JSON", ".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF"}
VALUES_MAX: Final = 1_000

Subject = Annotated[str, typer.Argument(help="Name of the subject.")]
MaybeSubject = Annotated[str | None, typer.Argument(help="Name of the subject.")]
SchemaFile = Annotated[str, typer.Argument(metavar="FILE", help="The schema; - reads stdin.")]
Kind = Annotated[
    str | None, typer.Option("-t", "--type", help="JSON, AVRO or PROTOBUF; by default by suffix.")
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema it uses."),
]
Version = Annotated[int | None, typer.Option("--version", min=1, help="By default the latest.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Do not ask.")]
Permanent = Annotated[bool, typer.Option(help="Remove for good what was deleted before.")]
Deleted = Annotated[bool, typer.Option("--deleted", help="Deleted ones too.")]
Mode = Annotated[
    str | None, typer.Argument(help="NONE, BACKWARD, FORWARD or FULL, or one with _TRANSITIVE.")
]
ById = Annotated[int | None, typer.Option("--id", min=1, help="By its id, without a subject.")]
Older = Annotated[str, typer.Argument(metavar="OLD", help="File of the older schema.")]
Newer = Annotated[str, typer.Argument(metavar="NEW", help="File of the newer schema.")]
Compatibility = Annotated[str, typer.Option("-m", "--mode", help="The compatibility mode.")]
Values = Annotated[
    str, typer.Argument(metavar="[VALUES]", help="File with a JSON value a line; - reads stdin.")
]
Whole = Annotated[bool, typer.Option("--whole", help="The file is one value, of any type.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    schema = typer.Typer()
    add_common_options(schema, "Schemas: what messages may look like, and how that may change.")
    command(schema, "register")(register_schema)
    command(schema, "list")(list_subjects)
    command(schema, "get")(get)
    command(schema, "check")(check)
    command(schema, "evolve-check", is_local=True)(evolve_check)
    command(schema, "validate")(validate)
    command(schema, "delete")(delete)
    command(schema, "config")(config)
    app.add_typer(schema, name="schema")


def register_schema(
    session: Session,
    subject: Subject,
    file: SchemaFile,
    *,
    kind: Kind = None,
    reference: References = None,
) -> None:
    """Register a schema as the next version of a subject, if it is compatible."""
    text, used = _read(file), _references(reference or [])
    with session.connect() as client:
        place = client.schemas.register(subject, text, type=_kind(file, kind), references=used)
    if session.is_table:
        say(f"subject {subject} version {place.version} is schema {place.id}")
    else:
        print_data(session.output, {"subject": subject, "version": place.version, "id": place.id})


def list_subjects(
    session: Session, subject: MaybeSubject = None, *, deleted: Deleted = False
) -> None:
    """List the subjects, or the versions of one."""
    with session.connect() as client:
        found = client.schemas.subjects(subject, deleted=deleted)
    data = [
        {
            "subject": one.name,
            "versions": list(one.versions),
            "latest_id": one.latest_id,
            "type": one.type,
            "compatibility": one.compatibility,
        }
        for one in found
    ]
    rows = [
        (one.name, ",".join(map(str, one.versions)), one.latest_id, one.type, one.compatibility)
        for one in found
    ]
    columns = ("SUBJECT", "VERSIONS", ">LATEST ID", "TYPE", "COMPATIBILITY")
    empty = "no schemas yet; `goqueue schema register orders order.json` adds one"
    session.show(data, Grid(columns=columns, rows=rows, empty=empty))


def get(
    session: Session,
    subject: MaybeSubject = None,
    *,
    version: Version = None,
    id: ById = None,  # noqa: A002
) -> None:
    """Print a schema; with -o json also its version and its id."""
    if (subject is None) == (id is None):
        raise usage("give a subject or --id, one of them")
    with session.connect() as client:
        found = (
            client.schemas.by_id(id)
            if id is not None
            else client.schemas.get(subject or "", version)
        )
    if session.is_table:
        say(found.schema)
        return
    print_data(
        session.output,
        {
            "subject": found.subject,
            "version": found.version,
            "id": found.id,
            "type": found.type,
            "schema": found.schema,
            "references": [
                {"name": name, "subject": other, "version": number}
                for name, other, number in found.references
            ],
        },
    )


def check(
    session: Session,
    subject: Subject,
    file: SchemaFile,
    *,
    kind: Kind = None,
    reference: References = None,
    version: Version = None,
) -> None:
    """Return True if a schema could be the next version; exit code 1 if it could not."""
    text, used = _read(file), _references(reference or [])
    with session.connect() as client:
        breaks = client.schemas.check(
            subject, text, type=_kind(file, kind), references=used, version=version
        )
    _tell_verdict(session, breaks)


def evolve_check(
    session: Session,
    old: Older,
    new: Newer,
    *,
    mode: Compatibility = "BACKWARD",
    kind: Kind = None,
) -> None:
    """Compare two files without a broker; exit code 1 if they are not compatible."""
    from goqueue.base.ids import SchemaVersion  # noqa: PLC0415 - most commands do without these
    from goqueue.core.schemas.compatibility import (  # noqa: PLC0415 - same
        conflicts,
        read_compatibility,
    )

    older = [(SchemaVersion(1), _define(old, kind))]
    _tell_verdict(session, conflicts(read_compatibility(mode), _define(new, kind), older))


def validate(
    session: Session,
    subject: Subject,
    values: Values = "-",
    *,
    version: Version = None,
    whole: Whole = False,
) -> None:
    """Try values on a schema; exit code 1 if one does not fit."""
    raw = _read_bytes(values)
    lines = [raw] if whole else [line for line in raw.splitlines() if line.strip()]
    found: dict[int, str] = {}
    with session.connect() as client:
        for start in range(0, len(lines), VALUES_MAX):
            part = client.schemas.validate(
                subject, lines[start : start + VALUES_MAX], version=version
            )
            found |= {start + row: reason for row, reason in part.items()}
    if session.is_table:
        for row, reason in found.items():
            say(f"{row + 1}: {reason}")
        if not found:
            say(f"{count(len(lines), 'value')} fit")
    else:
        misfits = [{"line": row + 1, "error": reason} for row, reason in found.items()]
        print_data(session.output, {"values": len(lines), "misfits": misfits})
    if found:
        raise SchemaViolationError(f"{len(found)} of {count(len(lines), 'value')} do not fit")


def delete(
    session: Session,
    subject: Subject,
    *,
    version: Version = None,
    permanent: Permanent = False,
    force: Force = False,
) -> None:
    """Delete a version, or a subject with all of them."""
    what = f"subject {subject}" + (f" version {version}" if version else "")
    with session.connect() as client:
        # Nobody is asked about something that is not there.
        client.schemas.subjects(subject, deleted=permanent)
        confirm(f"{what} will be {'gone for good' if permanent else 'hidden'}.", is_forced=force)
        gone = client.schemas.delete(subject, version, permanent=permanent)
    if session.is_table:
        say(f"{what} deleted")
    else:
        print_data(session.output, {"subject": subject, "deleted": gone})


def config(session: Session, subject: MaybeSubject = None, mode: Mode = None) -> None:
    """Show or set the compatibility mode of a subject; * is the registry itself."""
    name = None if subject in (None, "*") else subject
    with session.connect() as client:
        if mode is None:
            chosen = client.schemas.compatibility(name)
        else:
            chosen = client.schemas.set_compatibility(mode, name)
    if session.is_table:
        print_pairs({"subject": name or "*", "compatibility": chosen})
    else:
        print_data(session.output, {"subject": name, "compatibility": chosen})


def _tell_verdict(session: Session, breaks: Sequence[str]) -> None:
    if not session.is_table:
        print_data(session.output, {"is_compatible": not breaks, "messages": list(breaks)})
    elif not breaks:
        say("compatible")
    for one in breaks if session.is_table else ():
        say(one)
    if breaks:
        raise IncompatibleSchemaError(f"not compatible: {count(len(breaks), 'break')}")


def _define(file: str, kind: str | None) -> "Definition":
    from goqueue.core.schemas.definitions import define  # noqa: PLC0415 - see evolve_check
    from goqueue.core.schemas.schema import read_schema  # noqa: PLC0415 - same

    return define(read_schema(_read(file), _kind(file, kind)), ())


def _kind(file: str, kind: str | None) -> str:
    return kind or SUFFIXES.get(Path(file).suffix.lower(), "JSON")


def _read(file: str) -> str:
    try:
        return _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise usage(f"{file}: not UTF-8 text") from error


def _read_bytes(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _references(words: Sequence[str]) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    for word in words:
        name, _, place = word.rpartition("=")
        subject, _, version = place.rpartition(":")
        if not name or not subject or not version.isdecimal():
            raise usage(f"--reference {json.dumps(word)} is not NAME=SUBJECT:VERSION")
        found.append((name, subject, int(version)))
    return found
