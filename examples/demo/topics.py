"""The topics of the demonstration."""

from typing import Final

from goqueue import Client

PARTITIONS: Final = 3
ORDERS: Final = "orders"
INVOICES: Final = "invoices"
CLEAN: Final = "orders.clean"
QUARANTINE: Final = "orders.quarantine"
TOTALS: Final = "orders.totals"
DEAD: Final = "orders.dlq"


def make_topics(client: Client) -> None:
    """Make them all; the dead letters' own is made by the broker when there is one."""
    for name in (ORDERS, INVOICES, CLEAN, QUARANTINE):
        client.create_topic(name, partitions=PARTITIONS)
    client.create_topic(TOTALS, partitions=1, cleanup_policy="compact")
