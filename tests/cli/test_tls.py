"""Certificates made, shown and tried by commands, and commands by TLS."""

from pathlib import Path

import pytest

from tests.cli.running import BrokerProcess, Run


def test_a_broker_and_commands_use_what_was_made(run: Run, home: Path) -> None:
    """From nothing to a broker by TLS: make, serve, remember, ask."""
    made = run("tls", "make", "certs", "--name", "127.0.0.1", "--name", "localhost", "-o", "json")
    assert made.code == 0, made.err
    assert made.data["names"] == ["127.0.0.1", "localhost"]
    cert, key, ca = (str(home / made.data[name]) for name in ("cert", "key", "ca"))
    checked = run("tls", "check", "--cert", cert, "--key", key, "-o", "json")
    assert checked.data == {"ok": True, "problems": []}
    files = ["tls.enabled=true", f"tls.cert_file={cert}", f"tls.key_file={key}"]
    broker = BrokerProcess(home / "data", *(part for one in files for part in ("--set", one)))
    try:
        address = f"goqueues://{broker.native}"
        assert run("config", "set-context", "safe", "-s", address, "--tls-ca", ca).code == 0
        created = run("topic", "create", "orders", "-c", "safe")
        plain = run("topic", "list", "-s", broker.native)
        untrusted = run("topic", "list", "-s", address, "-o", "json")
        shown = run("tls", "show", broker.native, "-o", "json")
        pinned = run(
            "config", "set-context", "pinned", "-s", address, "--tls-pin", made.data["pin"]
        )
        listed = run("topic", "list", "-c", "pinned", "-o", "json")
        doctor = run("doctor", "-c", "safe", "--data", str(home / "data"), "-o", "json")
    finally:
        assert broker.stop() == 0

    assert created.code == 0, created.err
    assert "this port speaks TLS" in plain.err
    assert untrusted.error["code"] == "untrusted_broker"
    assert shown.data["pin"] == made.data["pin"]
    assert pinned.code == 0
    assert [one["name"] for one in listed.data] == ["orders"]
    [asked] = [one for one in doctor.data if one["check"] == "broker"]
    assert asked["state"] == "ok"


def test_a_second_certificate_has_the_same_authority(run: Run, home: Path) -> None:
    """The authority is made once; its key is for its owner only."""
    first = run("tls", "make", "certs", "--name", "a.example", "-o", "json").data
    second = run("tls", "make", "certs", "--name", "b.example", "-o", "json").data

    assert first["issuer"] == second["issuer"]
    assert first["cert"] != second["cert"]
    assert (home / "certs" / "ca-key.pem").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("make", "certs"), "a certificate is for a name"),
        (("make", "certs", "--name", "ca"), "would be those of the authority"),
        (("make", "certs", "--name", "../../etc/x", "--days", "1000"), "--days"),
        (("show", "127.0.0.1:1"), "cannot reach 127.0.0.1:1"),
        (("check", "--cert", "none.pem", "--key", "none.pem"), ""),
    ],
)
def test_bad_input_is_told(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    """Each mistake has its words and an exit code of its own."""
    outcome = run("tls", *arguments)

    assert outcome.code != 0
    assert expected in outcome.err


def test_a_file_that_is_no_certificate_is_told(run: Run, home: Path) -> None:
    """Nothing of what is in the file is shown."""
    (home / "text.pem").write_text("secret words")
    outcome = run("tls", "show", "text.pem")

    assert outcome.code != 0
    assert "text.pem holds no certificate" in outcome.err
    assert "secret words" not in outcome.err
