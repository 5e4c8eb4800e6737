"""The settings of a cluster together: what each of them allows, given the others."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from goqueue.base.cluster_limits import NODE_ID_CHARACTERS_MAX
from goqueue.base.errors import InvalidConfigError, InvalidNameError
from goqueue.base.names import check_name
from goqueue.config.address import parse_address
from goqueue.config.cluster_settings import parse_peers
from goqueue.config.etcd import is_etcd_url, parse_etcd_url
from goqueue.config.model import BrokerConfig

KEY_BYTES_MIN: Final = 16
"""A shorter key could be guessed."""
KEY_BYTES_MAX: Final = 4_096
GROUP_OR_OTHERS: Final = 0o077


def cluster_problems(config: BrokerConfig) -> Iterator[str]:
    """Yield what is wrong with the settings of a cluster, if there is one."""
    if not config.cluster_enabled:
        return
    peers = parse_peers(config.cluster_peers)
    others = [one for one in peers if one.node != config.node_id]
    if not others:
        yield "cluster.peers: at least one peer is required in cluster mode"
    yield from _bad_name(config)
    yield from _bad_quorum(config.cluster_quorum, len(others))
    yield from _bad_timers(config)
    yield from _bad_key(config)


def read_key(config: BrokerConfig) -> bytes:
    """Return the key that all nodes share; empty without one, or raise InvalidConfigError."""
    if not config.cluster_key_file:
        return b""
    path = Path(config.cluster_key_file)
    try:
        key = path.read_bytes().strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise InvalidConfigError(
            f"cluster.key_file: {path} cannot be read: {error.strerror}"
        ) from error
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise InvalidConfigError(
            f"cluster.key_file: {path} has {len(key)} bytes; a key has at least {KEY_BYTES_MIN}"
        )
    if os.name == "posix" and mode & GROUP_OR_OTHERS:
        raise InvalidConfigError(
            f"cluster.key_file: {path} can be read by others; chmod 600 {path}"
        )
    return key


def _bad_name(config: BrokerConfig) -> Iterator[str]:
    try:
        check_name(config.node_id, field="node_id", characters_max=NODE_ID_CHARACTERS_MAX)
    except InvalidNameError as error:
        yield error.message


def _bad_quorum(quorum: str, peers: int) -> Iterator[str]:
    size = peers + 1
    if is_etcd_url(quorum):
        try:
            parse_etcd_url(quorum, environment=os.environ)
        except InvalidConfigError as error:
            yield error.message
    if not quorum.isdigit():
        return
    if int(quorum) > size:
        yield (
            f"cluster.quorum_size: {int(quorum)} exceeds total cluster size {size}"
            f" (peers={peers} + self=1)"
        )
    elif int(quorum) != size // 2 + 1:
        yield (
            f"cluster.quorum: {int(quorum)} is not the majority of {size} nodes, {size // 2 + 1};"
            " leave it out"
        )


def _bad_timers(config: BrokerConfig) -> Iterator[str]:
    if config.cluster_heartbeat_ms >= config.cluster_suspect_ms:
        yield "cluster.suspect_timeout: must be longer than cluster.heartbeat_interval"
    if config.cluster_suspect_ms >= config.cluster_dead_ms:
        yield "cluster.dead_timeout: must be longer than cluster.suspect_timeout"
    if 2 * config.cluster_heartbeat_ms >= config.cluster_dead_ms:
        yield "cluster.dead_timeout: must be longer than two heartbeats"
    if 2 * config.cluster_election_ms > config.cluster_dead_ms:
        yield "cluster.election_timeout: twice of it must not be longer than cluster.dead_timeout"


def _bad_key(config: BrokerConfig) -> Iterator[str]:
    listener = parse_address(config.cluster_listener)
    if listener.port:
        for key, text in (
            ("listeners.native", config.native_listener),
            ("listeners.http", config.http_listener),
        ):
            if parse_address(text) == listener:
                yield f"listeners.internal: {listener} is also {key}"
    try:
        key_bytes = read_key(config)
    except InvalidConfigError as error:
        yield error.message
        return
    if not key_bytes and config.auth_enabled:
        yield (
            "cluster.key_file: with auth.enabled nodes need a secret that all of them have, or any"
            " program on this machine could pass on requests in the name of others"
        )
    elif not key_bytes and not listener.is_loopback:
        yield (
            f"listeners.internal: {listener} can be reached from other machines; nodes need"
            " cluster.key_file there, a file with a secret that all of them have"
        )
