"""What a session without Delta needs, by the packages that are installed.

Shape: calculator, but for what it asks the packages.
"""

from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

PACKAGE: Final = "delta-spark"


def delta_missing() -> str:
    """Return why there is no Delta in a session, and what would help."""
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return advice(version("pyspark"))
    needs = [one for one in requires(PACKAGE) or () if one.startswith("pyspark")]
    return advice(version("pyspark"), found=found, needs=", ".join(needs))


def advice(pyspark: str, *, found: str = "", needs: str = "") -> str:
    """Return the same for a PySpark and perhaps a ``delta-spark``, with what that asks for."""
    release = ".".join(pyspark.split(".")[:2])
    installed = f" {PACKAGE} {found} is installed and asks for {needs or 'none'}." if found else ""
    return (
        "this session has no Delta. Each Delta is built for one release of Spark, and this is"
        f" PySpark {pyspark}.{installed} It needs a Delta for Spark {release}, if there is one"
        " (docs.delta.io/releases), by --conf spark.jars.packages=… and spark.sql.extensions; or"
        " use a lake: instead"
    )
