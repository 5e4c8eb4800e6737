"""What is asked of the settings of TLS before a broker starts."""

import ssl
from pathlib import Path

import pytest

from goqueue.base.errors import InvalidConfigError
from goqueue.config.load import load_config
from goqueue.config.tls import tls_files
from goqueue.storage.certificates import ensure_self_signed
from tests.authority import Authority


def problems(tmp_path: Path, **settings: str) -> str:
    assignments = {f"tls.{name}": text for name, text in settings.items()}
    try:
        load_config(
            flags={"data_dir": str(tmp_path / "data")},
            environment={},
            file=None,
            assignments=assignments,
        )
    except InvalidConfigError as error:
        return error.message
    return ""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def test_a_certificate_and_its_key_are_enough(tmp_path: Path, authority: Authority) -> None:
    """TLS with files that fit one another is accepted."""
    cert, key = authority.issue()

    assert not problems(tmp_path, enabled="true", cert_file=str(cert), key_file=str(key))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"enabled": "true"}, "needs tls.cert_file and tls.key_file"),
        ({"cert_file": "/x.pem"}, "tls.cert_file is set, but tls.enabled is false"),
        ({"self_signed": "true", "client_auth": "verify"}, "tls.client_auth, tls.self_signed are"),
        ({"enabled": "true", "cert_file": "/none.pem", "key_file": "/none.key"}, "cannot be read"),
        ({"enabled": "true", "self_signed": "true", "client_auth": "require"}, "needs tls.ca_file"),
        ({"enabled": "true", "self_signed": "true", "key_file": "/k"}, "leave tls.cert_file and"),
        ({"enabled": "true", "self_signed": "true", "crl_file": "/k"}, "needs tls.ca_file"),
        ({"enabled": "true", "self_signed": "true", "min_version": "1.1"}, "is not one of 1.2"),
        ({"client_auth": "maybe"}, "'maybe' is not one of none"),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    """Each problem names its setting: nothing starts half protected."""
    assert expected in problems(tmp_path, **settings)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path, authority: Authority) -> None:
    """A private key is for its owner only."""
    cert, key = authority.issue()
    key.chmod(0o640)

    found = problems(tmp_path, enabled="true", cert_file=str(cert), key_file=str(key))

    assert f"{key} can be read by others; chmod 600 {key}" in found


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    """The pair is tried, not only read."""
    cert, _ = authority.issue(file="one")
    _, key = authority.issue(file="two")

    found = problems(tmp_path, enabled="true", cert_file=str(cert), key_file=str(key))

    assert "the private key is not that of the certificate" in found


def test_files_without_certificates_are_refused(tmp_path: Path, authority: Authority) -> None:
    """Text that is no certificate, and a file that is too large to be one."""
    cert, key = authority.issue()
    cert.write_text("nothing of that kind")
    no_pem = problems(tmp_path, enabled="true", cert_file=str(cert), key_file=str(key))
    cert.write_bytes(b"x" * (1 << 20) + b"x")
    large = problems(tmp_path, enabled="true", cert_file=str(cert), key_file=str(key))

    assert "there is no PEM certificate or key" in no_pem
    assert "is larger than" in large


def test_a_cluster_with_tls_needs_an_authority(tmp_path: Path) -> None:
    """Nodes believe one another by certificates."""
    with pytest.raises(InvalidConfigError, match=r"nodes of a cluster need tls\.ca_file"):
        load_config(
            flags={"data_dir": str(tmp_path)},
            environment={},
            assignments={
                "tls.enabled": "true",
                "tls.self_signed": "true",
                "cluster.enabled": "true",
                "cluster.peers": "a@127.0.0.1:7001",
            },
        )


def test_a_self_signed_certificate_is_kept(tmp_path: Path) -> None:
    """It is made once, for its owner only, and can be used at once."""
    config = load_config(
        flags={"data_dir": str(tmp_path)},
        environment={"GOQUEUE_TLS_ENABLED": "true", "GOQUEUE_TLS_SELF_SIGNED": "1"},
    ).config
    files = tls_files(config)
    assert files is not None
    ensure_self_signed(files.cert, files.key, ["localhost", "127.0.0.1"])
    first = files.cert.read_bytes()
    ensure_self_signed(files.cert, files.key, ["localhost", "127.0.0.1"])

    assert files.cert.read_bytes() == first
    assert files.key.stat().st_mode & 0o077 == 0
    assert files.server_context("goqueue/1").minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("listener", "settings", "is_told"),
    [
        ("10.0.0.1:7000", {}, True),
        ("10.0.0.1:7000", {"tls.behind_proxy": "true"}, False),
        ("127.0.0.1:7000", {}, False),
    ],
)
def test_callers_are_not_passed_on_in_the_clear(
    tmp_path: Path, listener: str, settings: dict[str, str], *, is_told: bool
) -> None:
    """Where keys are asked for, nodes speak TLS beyond this machine."""
    key = tmp_path / "cluster.key"
    key.touch(mode=0o600)
    key.write_text("k" * 32)
    given = {
        "auth.enabled": "true",
        "cluster.enabled": "true",
        "cluster.peers": "a@127.0.0.1:7001",
        "cluster.key_file": str(key),
        "listeners.internal": listener,
    }
    found = ""
    try:
        load_config(
            flags={"data_dir": str(tmp_path / "data")},
            environment={},
            assignments={**given, **settings},
        )
    except InvalidConfigError as error:
        found = error.message

    assert ("somebody on the way could speak for callers" in found) is is_told
