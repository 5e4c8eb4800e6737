"""The table of settings and the addresses in it."""

import msgspec
import pytest

from goqueue.config.address import parse_address
from goqueue.config.explain import explain
from goqueue.config.load import load_config
from goqueue.config.model import BrokerConfig
from goqueue.config.settings import BY_ENVIRONMENT, BY_KEY, SETTINGS


def test_every_field_can_be_set_and_every_default_is_allowed() -> None:
    """No field is out of an operator's reach, and no default breaks its own bound."""
    defaults = msgspec.structs.asdict(BrokerConfig())

    assert {setting.field for setting in SETTINGS} == set(defaults)
    assert len(BY_KEY) == len(BY_ENVIRONMENT) == len(SETTINGS)
    for setting in SETTINGS:
        assert setting.read(defaults[setting.field]) == defaults[setting.field]
        assert setting.environment.startswith("GOQUEUE_")


def test_an_explanation_names_value_and_source() -> None:
    """`goqueue config show` has a line for each setting."""
    explained = explain(load_config(flags={"node_id": "n7"}, environment={}))
    by_key = {one.key: one for one in explained}

    assert list(by_key) == [setting.key for setting in SETTINGS]
    assert by_key["node_id"].value == "n7"
    assert by_key["node_id"].source == "flag --node-id"
    assert by_key["shutdown_timeout"].shown == "30s"
    assert by_key["limits.http_body"].shown == "1.0 MiB"
    assert all(one.meaning for one in explained)


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:7070", "::1", 7070, True),
        (":7070", "", 7070, False),
        ("0.0.0.0:65535", "0.0.0.0", 65535, False),  # noqa: S104 - an address to be told apart
        ("broker-1.example:80", "broker-1.example", 80, False),
    ],
)
def test_an_address_is_read_and_written_back(
    text: str, host: str, port: int, *, is_loopback: bool
) -> None:
    """What is written back is what was read."""
    address = parse_address(text)

    assert address == (host, port)
    assert str(address) == text
    assert address.is_loopback is is_loopback


@pytest.mark.parametrize(
    "text", ["", "7070", "host", "host:", "host:x", "a:70000", "a b:1", "::1:7"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """The error shows what an address looks like."""
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:7070"):
        parse_address(text)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("tracing.enabled", "off", False),
        ("tracing.enabled", True, True),
        ("tracing.sampling_rate", "0.25", 0.25),
        ("tracing.sampling_rate", 1, 1.0),
        ("tracing.sampling_rate", "1e-05", 1e-05),
        ("tracing.exporters", "file, otlp-grpc,file", "file,otlp-grpc"),
        ("tracing.exporters", ["stdout"], "stdout"),
        ("tracing.exporters", "", ""),
        ("tracing.otlp_grpc_endpoint", "https://collector:4317", "https://collector:4317"),
    ],
)
def test_what_tracing_is_told(key: str, text: object, value: object) -> None:
    assert BY_KEY[key].read(text) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("tracing.enabled", "perhaps"),
        ("tracing.sampling_rate", "2"),
        ("tracing.sampling_rate", "-0.1"),
        ("tracing.sampling_rate", "nan"),
        ("tracing.sampling_rate", True),
        ("tracing.exporters", "file,zipkin"),
        ("tracing.exporters", [1]),
        ("tracing.buffer_spans", "10"),
        ("tracing.otlp_http_endpoint", "collector:4318"),
        ("tracing.otlp_grpc_endpoint", "ftp://collector:4317"),
        ("tracing.jaeger_endpoint", "collector"),
    ],
)
def test_what_tracing_is_not_told(key: str, text: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        BY_KEY[key].read(text)
