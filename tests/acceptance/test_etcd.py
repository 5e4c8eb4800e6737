"""The client and consensus on a real etcd of three members."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from goqueue.runtime.cluster.etcd.api import DeleteKeys, Etcd
from goqueue.runtime.cluster.etcd.client import EtcdClient
from tests.acceptance.etcd_server import EtcdServers, needs_etcd
from tests.runtime.cluster.etcd.etcd_contract import ALL, Compact, EtcdContract

pytestmark = [needs_etcd, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    with EtcdServers(tmp_path_factory.mktemp("etcd")) as servers:
        yield servers


class TestEtcdClient(EtcdContract):
    """The client of the JSON gateway."""

    servers: EtcdServers

    @pytest.fixture(autouse=True)
    def _on(self, servers: EtcdServers) -> None:
        self.servers = servers

    def run(self, scenario: Callable[[Etcd, Compact], Awaitable[None]]) -> None:
        async def main() -> None:
            client = EtcdClient(self.servers.config())
            await client.txn((), [DeleteKeys(*ALL)])
            await scenario(client, self.servers.compact)
            await client.close()

        asyncio.run(asyncio.wait_for(main(), 60))
