"""A Spark session that is tuned for GoQueue, quiet, and finds its Java by itself."""

import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from goqueue.base.errors import GoQueueError
from goqueue.spark.java import find_java_home
from goqueue.spark.python import check_workers, worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
LOOPBACK: Final = "127.0.0.1"
GATEWAY_EXITED: Final = "JAVA_GATEWAY_EXITED"

REMOTE_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC"}
"""What may be set on a server that runs already."""

SETTINGS: Final = {
    **REMOTE_SETTINGS,
    # Workers on the same machine: half the price of a task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # As many as a writer shares out at once; their bytes are bounded by a setting beside it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.ui.showConsoleProgress": "false",
}
"""What every session of ours has unless told otherwise."""

LOCAL_SETTINGS: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    # As many as there are likely to be cores; 200 tiny tasks cost more than the work.
    "spark.sql.shuffle.partitions": "4",
    # The default one starts some twenty processes for every micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
"""What a session on one machine has beside."""


SENT_ALONG: Final = ("spark.submit.pyFiles", "spark.archives")
"""Ways to bring packages to workers that a Python of this machine does not know of."""

_watched: Final[set[str]] = set()
"""Applications whose queries are watched: a session that was made before is made once more."""


class SparkMissingError(GoQueueError):
    """PySpark is not installed."""

    code = "spark_missing"


class SparkNotStartedError(GoQueueError):
    """Spark did not start; its own words about it are on the standard error."""

    code = "spark_not_started"


def session(
    app_name: str = "goqueue",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    push_filters: bool = False,
) -> "SparkSession":
    """Return a session in which ``format("goqueue")`` works.

    ``master`` is as Spark has it, ``local[*]`` if not given; ``remote`` is the address of a Spark
    Connect server instead. ``conf`` comes before what is set here. ``push_filters`` is refused:
    Spark 4.3 would give wrong rows (ADR 0033).
    """
    if push_filters:
        raise ValueError(
            "push_filters: Spark 4.3 gives the filter of one scan to others of the same DataFrame;"
            " skip messages with startingOffsets, startingTimestamp and their like"
        )
    if find_spec("pyspark") is None:
        raise SparkMissingError("PySpark is not installed: pip install 'goqueue[spark]'")
    if master is not None and remote is not None:
        raise ValueError("a session has a master or a remote, not both")
    given = conf or {}
    made = _connect(app_name, remote, given) if remote else _launch(app_name, master, given)
    register(made)
    return made


def register(spark: "SparkSession") -> None:
    """Make ``format("goqueue")`` known to a session that was not made by ``session``.

    Raises ``WorkerPythonError`` if the session's workers run a Python without the connector.
    """
    from goqueue.spark.connector.source import GoQueueDataSource  # noqa: PLC0415 - loads PySpark

    if not _is_remote(spark) and not any(spark.conf.get(name, "") for name in SENT_ALONG):
        check_workers(spark.sparkContext.pythonExec, own=worker_python(cache_dir()))
    spark.dataSource.register(GoQueueDataSource)


def _is_remote(spark: "SparkSession") -> bool:
    """Return True if a session is one of Spark Connect, whose workers are the server's."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _connect(app_name: str, remote: str, conf: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(app_name).remote(remote)
    for name, value in {**REMOTE_SETTINGS, **conf}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _launch(app_name: str, master: str | None, conf: Mapping[str, str]) -> "SparkSession":
    chosen = master or conf.get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
    prepare_environment(is_local=chosen.startswith("local"))
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment when loaded

    builder = SparkSession.builder.appName(app_name).master(chosen)
    for name, value in settings_for(chosen, conf).items():
        builder = builder.config(name, value)
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    try:
        made = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != GATEWAY_EXITED:
            raise
        raise SparkNotStartedError("Spark's Java process ended before it was ready") from error
    made.sparkContext.setLogLevel(conf.get("spark.log.level", "ERROR"))
    from goqueue.spark.watch import watch  # noqa: PLC0415 - loads PySpark

    if made.sparkContext.applicationId not in _watched:
        _watched.add(made.sparkContext.applicationId)
        watch(made)
    return made


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: ours, then what fits the master, then the caller's."""
    quiet = f"-Dlog4j2.configurationFile={_log4j()}"
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": quiet}
    if master.startswith("local"):
        settings |= LOCAL_SETTINGS
    return {**settings, **conf}


def prepare_environment(*, is_local: bool) -> None:
    """Let Spark's launcher find Java, this Python, and on one machine the loopback."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ, cache_dir()))
    # The default is whatever python3 is first on the path.
    python = str(worker_python(cache_dir())) if is_local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def cache_dir() -> Path:
    """Return where things are kept that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "goqueue"


def _log4j() -> str:
    return str(files("goqueue.spark").joinpath("log4j2.properties"))
