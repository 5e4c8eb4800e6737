"""Where topics are read from: a broker, or the files of a data directory."""

from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.options import Connection
from goqueue.spark.connector.positions import Log


def open_log(connection: Connection, logdir: str | None) -> Log:
    """Return the log of a reader."""
    if logdir is None:
        return Broker(connection)
    # Most workers never read files, and need nothing of what that takes.
    from goqueue.spark.connector.logdir import LogDirectory  # noqa: PLC0415

    return LogDirectory(logdir)
