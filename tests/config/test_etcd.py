"""Which etcd a cluster uses, read from its setting."""

from pathlib import Path

import pytest

from goqueue.base.errors import InvalidConfigError
from goqueue.config.address import Address
from goqueue.config.etcd import EtcdConfig, is_etcd_url, parse_etcd_url


def test_endpoints_are_all_it_takes() -> None:
    """The port is etcd's own unless it is said; the prefix is ours."""
    config = parse_etcd_url("etcd://a,b:23790,[::1]:1,10.0.0.1")

    assert config == EtcdConfig(
        endpoints=(
            Address("a", 2379),
            Address("b", 23790),
            Address("::1", 1),
            Address("10.0.0.1", 2379),
        )
    )
    assert (config.prefix, config.tls, config.user, config.lease_s) == ("goqueue", None, "", 2)
    assert is_etcd_url("etcd://")
    assert not is_etcd_url("embedded")


def test_everything_can_be_said(tmp_path: Path) -> None:
    """With the password in a file, whose last line end does not count."""
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    (tmp_path / "secret").write_text("p w\n")
    files = "&".join(f"{name}_file={tmp_path}/{name}" for name in ("ca", "cert", "key"))
    login = f"user=u%2Fv&password_file={tmp_path}/secret"
    config = parse_etcd_url(f"etcd://a/team/queue/?{files}&{login}&lease_s=10")

    assert config.tls is not None
    assert config.tls.ca_file == tmp_path / "ca"
    assert config.tls.cert_file == tmp_path / "cert"
    assert (config.prefix, config.user, config.password) == ("team/queue", "u/v", "p w")
    assert config.lease_s == 10


def test_a_password_comes_from_the_environment_that_is_given() -> None:
    """And is not shown."""
    url = "etcd://a?tls=true&user=u&password_env=SECRET"
    config = parse_etcd_url(url, environment={"SECRET": "hidden"})

    assert config.password == "hidden"  # noqa: S105 - not a real one
    assert "hidden" not in repr(config)
    with pytest.raises(InvalidConfigError, match="no variable SECRET"):
        parse_etcd_url(url)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://a", "begins with etcd://"),
        ("etcd://", "needs a host"),
        ("etcd://a,,b", "needs a host"),
        ("etcd://a:0", "needs a host and a port"),
        ("etcd://a:99999", "is not an address"),
        ("etcd://a b:1", "is not an address"),
        ("etcd://a,a:2379", "twice"),
        ("etcd://" + ",".join(f"a{at}" for at in range(17)), "more than 16"),
        ("etcd://a/" + "p" * 201, "more than 200"),
        ("etcd://a/p q", "prefix has letters"),
        ("etcd://a/p//q", "prefix has letters"),
        ("etcd://" + "a" * 5000, "more than 4096"),
        ("etcd://a?tls", "NAME=VALUE"),
        ("etcd://a?tls=maybe", "true or false"),
        ("etcd://a?tls=true&tls=true", "twice"),
        ("etcd://a?color=red", "unknown option 'color'"),
        ("etcd://a?ca_file=", "no value"),
        ("etcd://a?ca_file=/nowhere", "no file /nowhere"),
        ("etcd://a?tls=false&ca_file=/dev/null", "of no use"),
        ("etcd://a?cert_file=/x", "come together"),
        ("etcd://a?user=u", "password_file"),
        ("etcd://a?password_env=P", "password_file"),
        ("etcd://127.0.0.1?user=u&password_file=/nowhere", "cannot be read"),
        ("etcd://a?user=u&password_env=P", "in the clear"),
        ("etcd://localhost?user=u&password_env=EMPTY", "empty password"),
        ("etcd://a?lease_s=0", "between 1 and 60"),
        ("etcd://a?lease_s=61", "between 1 and 60"),
        ("etcd://a?lease_s=2s", "number of seconds"),
    ],
)
def test_what_is_wrong_is_said(text: str, reason: str) -> None:
    """In words that name the setting."""
    with pytest.raises(InvalidConfigError, match=reason) as caught:
        parse_etcd_url(text, environment={"P": "secret", "EMPTY": ""})

    assert caught.value.message.startswith("cluster.quorum: ")


@pytest.mark.parametrize(
    "text", ["etcd://u:secret@a", "etcd://a?user=u&password=secret", "etcd://a,u:secret@b?x=1"]
)
def test_a_password_in_the_setting_is_refused_and_not_repeated(text: str) -> None:
    """Settings are shown and stand in lists of processes."""
    with pytest.raises(InvalidConfigError, match="password_file") as caught:
        parse_etcd_url(text)

    assert "secret" not in caught.value.message


def test_a_file_that_is_no_password_is_refused(tmp_path: Path) -> None:
    """Too long, or not text."""
    url = f"etcd://localhost?user=u&password_file={tmp_path}/secret"
    for raw, reason in [(b"x" * 5000, "larger than"), (b"\xff", "UTF-8"), (b"\n", "empty")]:
        (tmp_path / "secret").write_bytes(raw)
        with pytest.raises(InvalidConfigError, match=reason):
            parse_etcd_url(url)
