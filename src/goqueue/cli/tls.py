"""``goqueue tls``: certificates made, shown, and tried before a broker uses them."""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from goqueue.base.units import SECOND_MS
from goqueue.cli.failure import Failure, usage
from goqueue.cli.output import Grid, print_data, print_pairs, say
from goqueue.cli.session import Session, add_common_options, command, native_address

if TYPE_CHECKING:
    from cryptography import x509

DAYS_MAX: Final = 825
"""Clients of some systems refuse certificates that last longer."""
AUTHORITY: Final = "ca"

Folder = Annotated[Path, typer.Argument(help="Directory for the files, made if missing.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Host name or address the certificate is for; repeatable, the first names the files.",
    ),
]
Days = Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How long it is valid.")]
Subject = Annotated[str, typer.Argument(help="A PEM file, or the host:port of a broker.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a certificate that is there.")]
Cert = Annotated[Path, typer.Option("--cert", help="PEM file with the certificate.")]
Key = Annotated[Path, typer.Option("--key", help="PEM file with its private key.")]
Ca = Annotated[Path | None, typer.Option("--ca", help="PEM file with authorities.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    tls = typer.Typer()
    add_common_options(tls, "Certificates for brokers and clients.")
    for name, function in (("make", make), ("show", show), ("check", check)):
        command(tls, name, is_local=True)(function)
    app.add_typer(tls, name="tls")


def make(
    session: Session,
    folder: Folder,
    *,
    names: Names = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Make a certificate that a private authority vouches for.

    The authority, ca.pem and ca-key.pem, is made once in the same directory. Give ca.pem to
    clients and nodes, and keep ca-key.pem away from them: its owner can make certificates for
    anybody.
    """
    from goqueue.storage import certificates  # noqa: PLC0415 - needs cryptography

    if not names:
        raise usage("a certificate is for a name", "--name broker.example --name 10.0.0.1")
    strange = [one for one in names if not one.strip() or any(map(str.isspace, one))]
    if strange:
        raise usage(f"--name {strange[0]!r}: a host name or an address has no spaces")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca, ca_key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}-key.pem"
    base = "".join(one if one.isalnum() or one in ".-_" else "_" for one in names[0])
    if base == AUTHORITY or base.startswith("."):
        raise usage(f"--name {names[0]}: the files would be those of the authority, or hidden")
    cert, key = folder / f"{base}.pem", folder / f"{base}-key.pem"
    if not force and (cert.exists() or key.exists()):
        raise usage(f"{cert} is there already", "--force makes another one in its place")
    try:
        if not ca.exists():
            certificates.make_authority("GoQueue private authority").write(ca, ca_key)
        authority = certificates.read_authority(ca, ca_key)
        issued = certificates.make_certificate(names, authority=authority, days=days)
        issued.write(cert, key)
    except (OSError, ValueError) as error:
        raise Failure(f"no certificate was made: {error}", code="certificate_not_made") from error
    data = {
        "cert": str(cert),
        "key": str(key),
        "ca": str(ca),
        **_facts(issued.certificate),
    }
    if not session.is_table:
        print_data(session.output, data)
        return
    say(f"made {cert}, {key}; {ca} vouches for it")
    say(f"serve:   --set tls.enabled=true --set tls.cert_file={cert} --set tls.key_file={key}")
    say(f"clients: goqueue config set-context NAME --server goqueues://… --tls-ca {ca}")


def show(session: Session, subject: Subject) -> None:
    """Show a certificate: whom it is for, how long, and the pin that clients may use."""
    path = Path(subject)
    certificate = _read(path) if path.is_file() else _fetch(subject, session.timeout_ms)
    data = _facts(certificate)
    if session.is_table:
        print_pairs({name: _text(value) for name, value in data.items()})
    else:
        print_data(session.output, data)


def check(session: Session, cert: Cert, key: Key, ca: Ca = None) -> None:
    """Try certificate and key as a broker would at its start."""
    from goqueue.config.model import BrokerConfig  # noqa: PLC0415
    from goqueue.config.tls_check import tls_problems  # noqa: PLC0415 - needs ssl

    config = BrokerConfig(
        tls_enabled=True,
        tls_cert_file=str(cert),
        tls_key_file=str(key),
        tls_ca_file="" if ca is None else str(ca),
    )
    problems = list(tls_problems(config))
    if not problems:
        certificate = _read(cert)
        if certificate.not_valid_after_utc <= datetime.now(UTC):
            problems.append(f"{cert} ended on {certificate.not_valid_after_utc:%Y-%m-%d}")
    data = {"ok": not problems, "problems": problems}
    rows = [[one] for one in problems]
    session.show(data, Grid(columns=["PROBLEM"], rows=rows, empty="a broker can use these files"))
    if problems:
        raise typer.Exit(1)


def _read(path: Path) -> "x509.Certificate":
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Failure(
            f"{path} holds no certificate: {error}", code="invalid_certificate"
        ) from error


def _fetch(server: str, timeout_ms: int) -> "x509.Certificate":
    from cryptography import x509  # noqa: PLC0415

    host, _, port = native_address(server).rpartition(":")
    context = ssl.create_default_context()
    # It is only looked at: who uses its pin has compared it with what the broker's owner says.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout_ms / SECOND_MS) as line,
            context.wrap_socket(line, server_hostname=host.strip("[]")) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except ssl.SSLError as error:
        raise Failure(f"{server} does not speak TLS: {error.reason}", code="no_tls") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Failure(f"cannot reach {server}: {reason}", code="connection_lost") from error
    assert shown is not None, "a server shows one"
    return x509.load_der_x509_certificate(shown)


def _facts(certificate: "x509.Certificate") -> dict[str, object]:
    from goqueue.storage.certificates import names_of, pin_of  # noqa: PLC0415

    return {
        "names": names_of(certificate),
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "valid_from": certificate.not_valid_before_utc.isoformat(timespec="seconds"),
        "valid_until": certificate.not_valid_after_utc.isoformat(timespec="seconds"),
        "days_left": (certificate.not_valid_after_utc - datetime.now(UTC)).days,
        "pin": pin_of(certificate),
    }


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
