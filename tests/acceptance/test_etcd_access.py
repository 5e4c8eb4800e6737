"""A real etcd that asks for a name, and one that speaks TLS."""

import asyncio
import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from goqueue.config.etcd import EtcdConfig, parse_etcd_url
from goqueue.runtime.cluster.etcd.api import EtcdError, EtcdRefusedError, PutKey, ReadKeys
from goqueue.runtime.cluster.etcd.client import EtcdClient
from tests.acceptance.etcd_server import EtcdServers, needs_etcd

pytestmark = [needs_etcd, pytest.mark.slow]


async def use(config: EtcdConfig, key: bytes = b"goqueue/a") -> bytes:
    """Write and read a key, and see it change."""
    client = EtcdClient(config)
    try:
        reply = await client.txn((), [PutKey(key, b"1")])
        watch = await client.watch(key, key + b"\0", start_revision=reply.revision)
        (event,) = await watch.next()
        watch.close()
        assert event.modified_at == reply.revision
        return (await client.range(ReadKeys(key))).items[0].value
    finally:
        await client.close()


def allow(servers: EtcdServers) -> None:
    """Let a user write below the prefix, and ask everyone for a name."""
    key, end = (base64.b64encode(text).decode() for text in (b"goqueue/", b"goqueue0"))
    permission = {"permType": "READWRITE", "key": key, "range_end": end}
    requests: list[tuple[str, dict[str, object]]] = [
        ("user/add", {"name": "root", "password": "r"}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "queue"}),
        ("role/grant", {"name": "queue", "perm": permission}),
        ("user/add", {"name": "goqueue", "password": "top secret"}),
        ("user/grant", {"user": "goqueue", "role": "queue"}),
        ("enable", {}),
    ]
    for path, request in requests:
        servers.post(f"/v3/auth/{path}", request)


def test_a_user_comes_in_with_its_password(tmp_path: Path) -> None:
    """And no further than its permission; the password is nowhere shown."""
    secret = tmp_path / "password"
    secret.write_text("top secret\n")
    wrong = tmp_path / "wrong"
    wrong.write_text("guess\n")
    with EtcdServers(tmp_path, 1) as servers:
        allow(servers)
        url = f"etcd://{servers.endpoints}/goqueue"
        config = parse_etcd_url(f"{url}?user=goqueue&password_file={secret}")
        stranger = parse_etcd_url(f"{url}?user=goqueue&password_file={wrong}")

        assert asyncio.run(use(config)) == b"1"
        with pytest.raises(EtcdRefusedError):
            asyncio.run(use(config, b"other"))
        with pytest.raises(EtcdError):
            asyncio.run(use(stranger))
        with pytest.raises(EtcdError):
            asyncio.run(use(servers.config()))
        assert "top secret" not in repr(config)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_tls_is_spoken_with_those_who_are_known(tmp_path: Path) -> None:
    """By their certificate's authority; both sides show one."""
    for name in ("ca", "other"):
        make(tmp_path, name)
    for name in ("member", "node"):
        make(tmp_path, name, "ca")
    options = [
        *("--cert-file", str(tmp_path / "member.pem"), "--key-file", str(tmp_path / "member.key")),
        *("--trusted-ca-file", str(tmp_path / "ca.pem"), "--client-cert-auth"),
    ]
    own = f"cert_file={tmp_path}/node.pem&key_file={tmp_path}/node.key"
    with EtcdServers(tmp_path, 1, *options, scheme="https") as servers:
        url = f"etcd://{servers.endpoints}?ca_file={tmp_path}"
        asyncio.run(wait_for(parse_etcd_url(f"{url}/ca.pem&{own}")))

        assert asyncio.run(use(parse_etcd_url(f"{url}/ca.pem&{own}"))) == b"1"
        for bad in (f"{url}/other.pem&{own}", f"{url}/ca.pem"):
            with pytest.raises(EtcdError):
                asyncio.run(use(parse_etcd_url(bad)))


async def wait_for(config: EtcdConfig) -> None:
    """Wait until etcd answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                await use(config)
            except EtcdError:
                await asyncio.sleep(0.05)
            else:
                return


def make(directory: Path, name: str, issuer: str | None = None) -> None:
    """Make a key and a certificate, of its own or of an issuer."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    keys = ["-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2"]
    names = ["-subj", f"/CN={name}"]
    if issuer is not None:
        names += ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"]
        names += ["-addext", "subjectAltName=IP:127.0.0.1"]
        names += ["-addext", "basicConstraints=critical,CA:FALSE"]
        names += ["-addext", "extendedKeyUsage=serverAuth,clientAuth"]
    subprocess.run([*new, *keys, *names], cwd=directory, check=True, capture_output=True)
