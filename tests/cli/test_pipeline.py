"""``goqueue pipeline`` without Spark: files, states, and what is said when something is missing."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from goqueue.cli.pipeline_screen import MESSAGE, columns_text
from goqueue.spark.connector.columns import SPARK_SCHEMA
from goqueue.spark.pipelines.state import QueryState, RunState, StateFolder
from tests.cli.running import BrokerProcess, Run, run_process

SHOP = """
sources: {orders: {topic: orders, schema: amount INT}}
expectations: {orders: [{name: positive, that: amount > 0, else: quarantine}]}
transforms: {large: {sql: SELECT * FROM orders WHERE amount > 100}}
sinks: {out: {from: large, topic: large}, lake: {from: orders, lake: ./lake}}
"""


@pytest.fixture
def shop(home: Path) -> Path:
    file = home / "shop.yaml"
    file.write_text(SHOP)
    return file


def test_templates_are_listed_and_filled(run: Run) -> None:
    """What there is to start from, and what was mistyped."""
    listed = run("pipeline", "new")
    filled = run("pipeline", "new", "archive", "--set", "topics=a,b")

    assert "archive      topics to a Parquet lake" in listed.out
    assert 'topics: ["a", "b"]' in filled.out
    assert "did you mean 'archive'" in run("pipeline", "new", "archiv").err
    assert run("pipeline", "new", "archive", "--set", "topics").code == 2
    assert set(run("pipeline", "new", "-o", "json").data) >= {"archive", "replay", "backfill"}


def test_a_plan_is_drawn(run: Run, shop: Path) -> None:
    """From the sinks to the sources, with the rules; as data, too."""
    drawn = run("pipeline", "plan", str(shop), "--quick")
    data = run("pipeline", "plan", str(shop), "--quick", "-o", "json").data

    assert drawn.code == 0
    assert "◆ out  topic large" in drawn.out
    assert "○ large  sql SELECT * FROM orders WHERE amount > 100  stream" in drawn.out
    assert "● orders  topic orders  stream  (see above)" in drawn.out
    assert "✓ positive: amount > 0  else quarantine" in drawn.out
    assert [part["name"] for part in data["parts"]] == ["orders", "large"]
    assert data["sinks"][1] == {"name": "lake", "from": "orders", "what": "lake ./lake"}


def test_what_is_wrong_is_said_before_spark_starts(cli: Run, shop: Path) -> None:
    """The file, the mode, the topics: all of it in a moment."""
    broken = shop.with_name("broken.yaml")
    broken.write_text(
        "sources: {a: {topik: x}, f: {json: ./nowhere}}\n"
        "sinks: {b: {from: c, topic: d, colour: red}, e: {from: f, topic: d},"
        " g: {from: a, topic: d}}"
    )
    problems = cli("pipeline", "plan", str(broken))
    missing = cli("pipeline", "run", str(shop))
    as_json = cli("pipeline", "run", str(shop), "-o", "json")

    assert problems.code == 1
    assert "pipeline broken has 9 problems:" in problems.err
    assert "sources.a.topik: there is no field 'topik' (did you mean 'topic'?)" in problems.err
    assert "sources.a: there is no topic 'x'" in problems.err
    assert "sources.f: there is nothing at" in problems.err
    assert "sinks.b.from: there is no source or transform 'c'" in problems.err
    assert "sinks.e: f is no stream" in problems.err
    assert "sinks.b.colour: there is no field 'colour'" in problems.err
    assert missing.code == 1
    assert "sources.orders: there is no topic 'orders'" in missing.err
    assert "sinks.out: there is no topic 'large'" in missing.err
    assert "starting Spark" not in missing.err
    assert as_json.error["code"] == "invalid_config"
    assert cli("pipeline", "run", str(shop), "--mode", "often").code == 2
    assert "no such file" in cli("pipeline", "plan", "nowhere.yaml").err


def test_a_second_run_says_so_at_once(cli: Run, shop: Path) -> None:
    """Before Spark starts, and without touching the log of the first one."""
    shop.write_text("sources: {files: {json: ./files}}\nsinks: {lake: {from: files, lake: ./lake}}")
    (shop.parent / "files").mkdir()
    cli("topic", "create", "shop-again")
    folder = StateFolder(Path("pipelines-state"), "shop")
    with folder.lock():
        (folder.path / "spark.log").write_text("what the first one says")
        refused = cli("pipeline", "run", str(shop), "--mode", "batch")
        replayed = cli("pipeline", "replay", "./lake", "shop-again", "--name", "shop")

        assert (refused.code, replayed.code) == (1, 1)
        assert "shop runs already" in replayed.err
        assert f"shop runs already: process {os.getpid()} on " in refused.err
        assert " UTC (pipeline_running)\nhint: `goqueue pipeline status` tells" in refused.err
        assert "starting Spark" not in refused.err
        assert (folder.path / "spark.log").read_text() == "what the first one says"


def test_typed_columns_are_drawn_first() -> None:
    """What a schema adds to messages is seen; the columns that all have are one word."""
    message = dict.fromkeys(SPARK_SCHEMA.fieldNames(), "string")
    typed = {**message, "id": "bigint", "items": "array<struct<a:int>>", "_corrupt": "string"}
    many = {f"c{number}": "int" for number in range(120)}

    assert tuple(message) == MESSAGE
    assert columns_text(typed) == (
        "id bigint, items array<struct<a:int>>, _corrupt string, the columns of a message"
    )
    assert columns_text(message) == "the columns of a message"
    assert columns_text({"key": "binary", "n": "int"}) == "key binary, n int"
    assert columns_text(many).endswith("c99 int, … 20 more")


def test_a_broker_that_is_down_is_said_at_once(run: Run, shop: Path) -> None:
    """Exit code 3, without starting Spark."""
    refused = run("pipeline", "run", str(shop), "--server", "127.0.0.1:1")

    assert refused.code == 3
    assert "cannot reach a broker at 127.0.0.1:1" in refused.err
    assert "starting Spark" not in refused.err


def test_spark_that_is_missing_is_said(
    cli: Run, shop: Path, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra that brings it is named."""
    del broker
    shop.write_text("sources: {a: {text: shop.yaml, stream: true}}\nsinks: {b: {from: a, lake: l}}")
    monkeypatch.setattr(import_module("goqueue.spark.session"), "find_spec", lambda _: None)
    refused = cli("pipeline", "run", str(shop), "-o", "json")

    assert refused.code == 1
    assert refused.err.splitlines()[0] == "starting Spark …"
    assert '"code": "spark_missing"' in refused.err
    assert "goqueue[spark]" in refused.err


def test_spark_that_does_not_start_is_said(shop: Path, broker: BrokerProcess) -> None:
    """In Java's own words, with what to look at."""
    del broker
    shop.write_text("sources: {a: {text: shop.yaml, stream: true}}\nsinks: {b: {from: a, lake: l}}")
    refused = run_process("pipeline", "run", str(shop), "--conf", "spark.driver.memory=plenty")

    assert refused.code == 1
    assert "plenty" in refused.err
    assert "Spark's Java process ended before it was ready" in refused.err
    assert "look at --conf" in refused.err


def test_the_command_line_does_not_load_spark() -> None:
    """Whoever runs another command does not wait for PySpark, nor does the plan of a file."""
    check = (
        "import sys; from goqueue.cli.main import run; run(['pipeline', 'new', 'orders']);"
        "run(['pipeline', 'list']); run(['pipeline', 'plan', 'nowhere.yaml', '--quick']);"
        "assert 'goqueue.spark.pipelines.load' in sys.modules;"
        "assert not [one for one in sys.modules if one.partition('.')[0] == 'pyspark']"
    )

    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


def test_states_are_told_and_reset(run: Run, home: Path) -> None:
    """How a pipeline stands, whether it was killed, and how it begins anew."""
    folder = StateFolder(home / "pipelines-state", "shop")
    query = QueryState(state="running", rows=1_200, rows_per_second=350.5, batches=3, lag_rows=7)
    state = RunState(
        name="shop", mode="continuous", queries={"out": query}, violations={"orders: positive": 1}
    )
    with folder.lock():
        folder.write(state)
        folder.checkpoint("out").mkdir(parents=True)
        running = run("pipeline", "status", "shop")
        busy = run("pipeline", "reset", "shop", "--yes")
    killed = run("pipeline", "status", "shop", "-o", "json").data
    listed = run("pipeline", "list")
    refused = run("pipeline", "reset", "shop", stdin=b"no\n")
    unknown = run("pipeline", "reset", "shop", "--sink", "oud")
    reset = run("pipeline", "reset", "shop", "--yes")

    assert "pipeline shop (continuous): running" in running.out
    assert "1,200" in running.out
    assert "orders: positive: 1 row broke it" in running.out
    assert "shop runs already" in busy.err
    assert (killed["state"], killed["queries"]["out"]["lag_rows"]) == ("killed", 7)
    assert listed.out.splitlines()[1].split()[:3] == ["shop", "killed", "continuous"]
    assert refused.code == 1
    assert "there are out" in unknown.err
    assert reset.out == "1 checkpoint of shop forgotten\n"
    assert not folder.checkpoint("out").exists()
    assert run("pipeline", "stop", "shop").err.startswith("error: shop does not run")
    assert run("pipeline", "status", "nobody").code == 1
    assert run("pipeline", "status", "../..").code == 1
    assert run("pipeline", "list", "--state", "elsewhere").err == "no pipeline has run here\n"


def test_lakes_are_compacted_by_hand(run: Run, home: Path) -> None:
    """Only what is a lake."""
    assert "there is no lake at" in run("pipeline", "compact", str(home / "lake")).err
