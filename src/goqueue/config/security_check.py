"""Who can reach a broker, and what has to be asked of them: problems that nothing overrides."""

from collections.abc import Iterator, Mapping
from typing import Final

from goqueue.config.address import Address, parse_address
from goqueue.config.model import BrokerConfig

DEFAULT: Final = "default"
"""The source of a value that was not set."""


def listener_problems(config: BrokerConfig, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield why a broker with such listeners must not start."""
    native, http = parse_address(config.native_listener), parse_address(config.http_listener)
    if native == http and http.port:
        yield f"listeners.http: {http} is also listeners.native ({sources['http_listener']})"
    yield from _locks_without_door(config, sources)
    for key, field, address in (
        ("listeners.native", "native_listener", native),
        ("listeners.http", "http_listener", http),
    ):
        if not address.is_loopback:
            yield from _open_door(config, key, address, sources[field])
    yield from _open_peers(config, sources["cluster_listener"])


def _open_peers(config: BrokerConfig, source: str) -> Iterator[str]:
    """Yield why keys must not be asked for while nodes could be spoken for by others."""
    peers = parse_address(config.cluster_listener)
    is_safe = config.tls_enabled or config.tls_behind_proxy or peers.is_loopback
    if config.cluster_enabled and config.auth_enabled and not is_safe:
        yield (
            f"listeners.internal: {peers} can be reached from other machines, and without TLS"
            " somebody on the way could speak for callers: switch tls.enabled on, or set"
            f" tls.behind_proxy where the network between the nodes is protected ({source})"
        )


def _open_door(config: BrokerConfig, key: str, address: Address, source: str) -> Iterator[str]:
    reach = f"{key}: {address} can be reached from other machines"
    if not config.auth_enabled:
        yield (
            f"{reach}, and without auth.enabled the broker asks nobody who they are; switch it on,"
            " or listen on 127.0.0.1 and let others come through an SSH tunnel or a proxy on this"
            f" machine that authenticates them ({source})"
        )
    elif not (config.tls_enabled or config.tls_behind_proxy):
        yield (
            f"{reach}, and keys would travel in the clear: switch tls.enabled on, or set"
            " tls.behind_proxy where a proxy speaks TLS and nothing but it reaches this address"
            f" ({source})"
        )


def _locks_without_door(config: BrokerConfig, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield what asks for protection that is switched off: who asks for a lock gets no door."""
    if config.auth_enabled:
        return
    for key, field, asks in (
        ("auth.root_key", "api_root_key", bool(config.api_root_key)),
        ("acl.enabled", "acl_enabled", config.acl_enabled),
    ):
        if asks and sources[field] != DEFAULT:
            yield (
                f"{key} is set, but without auth.enabled nobody is asked for anything"
                f" ({sources[field]})"
            )
