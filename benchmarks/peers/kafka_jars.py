"""Kafka's own jars, fetched once by Maven into a cache, since Debian has no package of it."""

import subprocess
from pathlib import Path

from benchmarks.peers.peer import SkippedError, program

KAFKA_VERSION = "4.1.0"
CACHE = Path.home() / ".cache" / "goqueue-bench" / "kafka"
FETCH_SECONDS_MAX = 600
PROJECT = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>goqueue</groupId>
  <artifactId>bench</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def class_path() -> str:
    """Return the class path of a Kafka server, fetching the jars when they are not here yet."""
    jars = CACHE / KAFKA_VERSION
    complete = jars / ".complete"
    if not complete.exists():
        _fetch(jars)
        complete.touch()
    return f"{jars}/*"


def _fetch(jars: Path) -> None:
    maven = program("mvn", package="maven")
    CACHE.mkdir(parents=True, exist_ok=True)
    project = CACHE / "pom.xml"
    project.write_text(PROJECT)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    try:
        subprocess.run(
            [maven, "--batch-mode", "--quiet", "--file", str(project), *goal],
            check=True,
            capture_output=True,
            timeout=FETCH_SECONDS_MAX,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise SkippedError(f"its jars could not be fetched by Maven: {error}") from error
