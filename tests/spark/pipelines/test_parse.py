"""Pipeline files: what they mean, and everything that is wrong with them at once. No Spark."""

from pathlib import Path
from textwrap import dedent

import pytest

from goqueue.base.limits import PIPELINE_FILE_BYTES_MAX, PIPELINE_RULES_MAX
from goqueue.spark.pipelines.graph import plan
from goqueue.spark.pipelines.load import load, parse_text
from goqueue.spark.pipelines.problems import PipelineError
from goqueue.spark.pipelines.spec import (
    DedupStep,
    FileSource,
    LakeSink,
    Mode,
    Otherwise,
    PythonStep,
    SqlStep,
    TopicSink,
    TopicSource,
    WindowStep,
)
from goqueue.spark.pipelines.sql import tables_in

SHOP = """
name: shop
description: Orders, checked and counted
trigger: 5s
conf: {spark.sql.shuffle.partitions: 2}
sources:
  orders:
    topic: orders
    schema: id BIGINT, customer STRING, amount DOUBLE
    start: {orders: {0: 17, 1: -2}}
    rows_max: 10000
    watermark: {column: timestamp, delay: 10m}
  customers: {parquet: ./customers}
expectations:
  orders:
    - {name: positive, that: amount > 0, else: quarantine}
    - {that: id IS NOT NULL, else: fail}
transforms:
  unique: {from: orders, dedup: {by: [id]}}
  enriched:
    sql: |
      SELECT u.*, c.country -- not FROM nowhere
      FROM unique u JOIN customers AS c ON u.customer = c.id AND 'FROM elsewhere' <> c.name
  per_minute:
    from: enriched
    window: {column: timestamp, size: 1 minute, by: [country], aggregate: {orders: count(*)}}
  scored: {python: steps.py:score, from: [enriched]}
sinks:
  lake: {from: enriched, lake: ./lake, partition_by: [country]}
  minutes: {from: per_minute, topic: minutes, key: country, partitions: 3}
  scored: {from: scored, console: true}
"""


def problems_of(text: str, *, mode: Mode = Mode.AVAILABLE_NOW) -> list[str]:
    """Return what is wrong, as people are told."""
    with pytest.raises(PipelineError) as caught:
        plan(parse_text(dedent(text)), mode)
    return [str(problem) for problem in caught.value.problems]


def test_a_file_becomes_a_pipeline() -> None:
    """Every part with its fields; what a query reads from is found in its text."""
    pipeline = parse_text(SHOP)
    orders, unique = pipeline.sources["orders"], pipeline.steps["unique"]
    enriched, scored = pipeline.steps["enriched"], pipeline.steps["scored"]

    assert (pipeline.name, pipeline.trigger) == ("shop", "5 seconds")
    assert pipeline.conf == {"spark.sql.shuffle.partitions": "2"}
    assert isinstance(orders, TopicSource)
    assert orders.start == '{"orders": {"0": 17, "1": -2}}'
    assert orders.watermark is not None
    assert orders.watermark.delay == "10 minutes"
    assert isinstance(pipeline.sources["customers"], FileSource)
    assert isinstance(unique, DedupStep)
    assert isinstance(enriched, SqlStep)
    assert enriched.inputs == ("unique", "customers")
    assert isinstance(pipeline.steps["per_minute"], WindowStep)
    assert isinstance(scored, PythonStep)
    rules = pipeline.expectations["orders"]
    assert [(rule.name, rule.otherwise) for rule in rules] == [
        ("positive", Otherwise.QUARANTINE),
        ("id IS NOT NULL", Otherwise.FAIL),
    ]
    assert isinstance(pipeline.sinks["lake"], LakeSink)
    assert isinstance(pipeline.sinks["minutes"], TopicSink)


def test_the_graph_is_in_order_and_knows_its_streams() -> None:
    """Inputs come first; what descends from a stream is one; batches have none."""
    pipeline = parse_text(SHOP)
    graph = plan(pipeline, Mode.CONTINUOUS)

    assert graph.order == ("orders", "unique", "customers", "enriched", "per_minute", "scored")
    assert graph.streams == {"orders", "unique", "enriched", "per_minute", "scored"}
    assert graph.unused == ()
    assert [one.name for one in graph.topics_behind("scored")] == ["orders"]
    assert plan(pipeline, Mode.BATCH).streams == frozenset()


def test_everything_wrong_is_said_at_once() -> None:
    """Each problem with its path, and the name that was probably meant."""
    found = problems_of(
        """
        name: a/b
        trigger: soon
        colour: red
        sources:
          orders: {topik: orders}
          late: {topic: "bad name", watermark: {column: t, delay: eventually}, stream: 1}
          both: {topic: a, parquet: b}
          9lives: {topic: a}
          cut: {topic: a, start: middle, options: {startingOffsets: latest}}
        transforms:
          Orders: {sql: SELECT 1}
          w: {from: late, window: {column: t, size: 5 lightyears}}
          p: {python: "steps.py:not a name", from: late}
        expectations:
          late: [{that: a > 1, else: quarantaine}, {that: b, topic: x}]
          none: []
        sinks:
          out: {from: late, topic: a, colums: [key], delivery: twice}
          lake: {from: late, lake: ./x, output: update}
          show: {from: late, console: yes please}
        """
    )

    assert found == [
        "name: 'a/b' must be 1 to 64 letters, digits, - or _ (it is the name of a folder)",
        "sources.orders.topik: there is no field 'topik' (did you mean 'topic'?)",
        (
            "sources.late.topic: topic name 'bad name' may only contain letters, digits, '.', '_'"
            " and '-', and may not be '.' or '..'"
        ),
        "sources.late.stream: must be true or false, not a number",
        (
            "sources.late.watermark.delay: 'eventually' is no duration (for example \"10 minutes\""
            ' or "10m")'
        ),
        "sources.both: a source has one of topic, parquet, not several",
        "sources.9lives: must be called by letters, digits and _ (SQL refers to it, so no dashes)",
        "sources.cut.options.startingOffsets: has a field of its own (see docs/pipelines.md)",
        (
            "sources.cut.start: must be earliest, latest or offsets by topic and partition"
            " (for example {orders: {0: 17, 1: -2}})"
        ),
        "transforms.Orders.sql: reads from no source or transform (or name its inputs with from:)",
        "transforms.w.window.aggregate: is required (for example {orders: count(*)})",
        (
            "transforms.w.window.size: '5 lightyears' is no duration"
            ' (for example "10 minutes" or "10m")'
        ),
        "transforms.p.python: must name a function (for example steps.py:enrich)",
        (
            "sinks.out.delivery: must be one of exactly-once, at-least-once"
            " (there are at-least-once, exactly-once)"
        ),
        "sinks.out.colums: there is no field 'colums' (did you mean 'columns'?)",
        "sinks.lake.output: a lake only grows (use a table: to keep one row)",
        "sinks.show.console: must be true",
        "transforms.Orders: has the name of sources.orders (capitals do not count)",
        'trigger: \'soon\' is no duration (for example "10 minutes" or "10m")',
        (
            "expectations.late[0].else: must be one of drop, fail, quarantine"
            " (did you mean 'quarantine'?)"
        ),
        "expectations.late[1].topic: is only for else: quarantine",
        f"expectations.none: has 0 rules; there may be 1 to {PIPELINE_RULES_MAX}",
        (
            "colour: there is no field 'colour' (there are conf, description, expectations, name,"
            " servers, sinks, sources, transforms, trigger)"
        ),
        (
            "expectations.none: there is no source or transform 'none'"
            " (there are 9lives, Orders, both, cut, late, orders, p, w)"
        ),
    ]


def test_what_does_not_fit_is_said_with_what_is_mistyped(tmp_path: Path) -> None:
    """Fields, names, circles and functions in one wave; what follows from one is not said again."""
    file = tmp_path / "shop.yaml"
    file.write_text(
        dedent(
            """
            sorces: {orders: {topik: orders, rows_max: -1}, lost: {}}
            transforms:
              a: {sql: SELECT * FROM b}
              b: {sql: SELECT * FROM c}
              c: {sql: SELECT * FROM a JOIN orders}
              late: {from: c, dedup: {by: id}}
              more: {python: steps.py:more, from: lost}
              typo: {sql: SELECT 1, from: oders}
              self: {sql: SELECT 1, from: self}
            expectations:
              typo: [{that: x, else: quarantine}]
            sinks:
              out: {form: late, topic: out}
              more: {from: moer, topic: out}
              typo: {from: typo, topic: out}
            """
        )
    )
    with pytest.raises(PipelineError) as caught:
        load(file)

    assert [str(one) for one in caught.value.problems] == [
        "sorces: there is no field 'sorces' (did you mean 'sources'?)",
        "sources.orders.topik: there is no field 'topik' (did you mean 'topic'?)",
        "sources.orders.rows_max: must be between 0 and 1000000000, not -1",
        (
            "sources.lost: a source needs one of topic, topics, pattern, lake, parquet, json,"
            " csv, text"
        ),
        "sinks.out.form: there is no field 'form' (did you mean 'from'?)",
        f"transforms.more.python: {tmp_path}/steps.py: is no Python file",
        ("transforms.typo.from: there is no source or transform 'oders' (did you mean 'orders'?)"),
        "sinks.more.from: there is no source or transform 'moer' (did you mean 'more'?)",
        "transforms.a: reads from itself: a <- b <- c <- a",
        "transforms.self: reads from itself: self <- self",
    ]


@pytest.mark.parametrize(
    ("transforms", "circles"),
    [
        (
            "x: {sql: S, from: [y, orders]}, y: {sql: S, from: x}, z: {sql: S, from: [z, y]}",
            {"x <- y <- x", "z <- z"},
        ),
        (
            "x: {sql: S, from: [y, z]}, y: {sql: S, from: x}, z: {sql: S, from: x}",
            {"x <- y <- x", "x <- z <- x"},
        ),
    ],
)
def test_every_circle_is_named(transforms: str, circles: set[str]) -> None:
    """Also several, those that share a part, and those that no sink reads from."""
    found = problems_of(
        f"""
        sources: {{orders: {{topic: orders}}}}
        transforms: {{{transforms}}}
        sinks: {{out: {{from: orders, topic: out}}}}
        """
    )

    assert {one.partition("itself: ")[2] for one in found} == circles


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "a pipeline is a mapping with sources and sinks, not a list"),
        ("{}", "sources: is required"),
        ("sources: 5", "sources: must be a mapping of names, not a number"),
        ("a: {a: 1, a: 2}", "is no YAML: 'a' is there twice"),
        ("a: [", "is no YAML"),
        ("? [a]\n: b", "is no YAML"),
        ("a: \x00", "is no YAML"),
        ("!!python/object/apply:os.getcwd []", "is no YAML: could not determine a constructor"),
        ("sources: {a: {topic: [b]}}", "sources.a.topic: must be text, not a list"),
        ("sources: {a: {topics: 7}}", "sources.a.topics: must be a list of texts"),
        ("sources: {a: {topic: t, rows_max: -1}}", "must be between 0 and 1000000000, not -1"),
        ("sources: {a: {lake: l, since: never, stream: true}}", "sources.a.since: "),
        ("sources: {a: {lake: l, until: 2026-01-31T12:00:00Z}}", "are of streams"),
        (f"sources: {{{'a' * 65}: {{topic: t}}}}", "has 65 characters; the limit is 64"),
        (f"sources: {{a: {{parquet: {'p' * 5000}}}}}", "has 5000 characters; the limit is 4096"),
        (
            "sources: {" + ", ".join(f"s{n}: {{topic: t}}" for n in range(201)) + "}",
            "sources: has 201 entries; the limit is 200",
        ),
        ("sources: {a: {topic: t}, A: {topic: t}}", "has the name of sources.a"),
    ],
)
def test_hostile_files_are_refused(text: str, problem: str) -> None:
    """Whatever the file contains, it is a problem with a name."""
    assert any(problem in one for one in problems_of(text)), problems_of(text)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (
            "transforms: {x: {sql: SELECT * FROM oders, from: oders}}",
            "transforms.x.from: there is no source or transform 'oders' (did you mean 'orders'?)",
        ),
        (
            (
                "transforms: {x: {sql: SELECT 1, from: y}, y: {sql: SELECT 1, from: x}}\n"
                "expectations: {x: [{that: a, else: quarantine}]}"
            ),
            "transforms.x: reads from itself: x <- y <- x",
        ),
        ("expectations: {odrers: [{that: a}]}", "(did you mean 'orders'?)"),
        (
            "transforms: {d: {from: orders, dedup: {by: id}}}",
            "transforms.d.watermark: is required in a stream",
        ),
        (
            (
                "transforms:\n"
                "  a: {sql: SELECT * FROM orders, watermark: {column: t, delay: 1m}}\n"
                "  x: {sql: SELECT * FROM a, watermark: {column: t, delay: 1h}}"
            ),
            "transforms.x.watermark: a has one already, and a stream has one",
        ),
        (
            "expectations: {files: [{that: a, else: quarantine}]}",
            "expectations.files[0].else: there are no dead letters to go to",
        ),
    ],
)
def test_parts_that_do_not_fit_together(parts: str, problem: str) -> None:
    """Names that are not there, circles, and steps a stream cannot do."""
    sink = "d" if "dedup" in parts else "x" if "x:" in parts else "orders"
    text = (
        "sources: {orders: {topic: orders}, files: {json: ./f}}\n"
        f"{parts}\nsinks: {{out: {{from: {sink}, topic: out}}}}"
    )

    assert any(problem in one for one in problems_of(text)), problems_of(text)


def test_a_sink_of_files_is_a_matter_of_batches() -> None:
    """Without a stream there is nothing to go on with; a batch needs none."""
    text = "sources: {f: {json: ./f}}\nsinks: {out: {from: f, topic: out}}"

    assert problems_of(text) == [
        "sinks.out: f is no stream (add stream: true to a source of it, or run with --mode batch)"
    ]
    assert plan(parse_text(text), Mode.BATCH).order == ("f",)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a", ("a",)),
        ("select x from A, `b` as y, c z where a.b in (select q from d)", ("a", "b", "c", "d")),
        ("SELECT a, b FROM c LEFT JOIN (SELECT * FROM d) e USING (a)", ("c", "d")),
        ("SELECT 'FROM a', \"FROM b\" /* FROM c */ -- FROM d\n FROM e", ("e",)),
        ("WITH x AS (SELECT * FROM a), y AS (SELECT 1 FROM x) SELECT * FROM y, b", ("a", "b")),
        ("SELECT extract(hour FROM a) FROM b", ("a", "b")),
        ("SELECT 1", ()),
        ("SELECT 'it''s' , a FROM b JOIN c", ("b", "c")),
    ],
)
def test_the_tables_of_a_query_are_found(sql: str, tables: tuple[str, ...]) -> None:
    """What stands behind FROM and JOIN, not what is in strings, comments or columns."""
    assert tables_in(sql, ["a", "b", "c", "d", "e"]) == tables


def test_a_pipeline_in_python(tmp_path: Path) -> None:
    """Decorated functions read what their parameters are called."""
    file = tmp_path / "shop.py"
    file.write_text(
        dedent(
            """
            from goqueue.spark.pipelines import Definition

            pipeline = Definition(trigger="5s")
            pipeline.source("orders", topic="orders")
            pipeline.expect("orders", "amount > 0", otherwise="quarantine", name="positive")

            @pipeline.transform
            def large(orders):
                return orders

            @pipeline.transform(name="larger", inputs=["large"])
            def _(rows):
                return rows

            pipeline.sql("largest", "SELECT * FROM larger")
            pipeline.sink("out", source="largest", topic="out")
            """
        )
    )
    loaded = load(file)

    assert loaded.pipeline.name == "shop"
    assert set(loaded.functions) == {"large", "larger"}
    assert plan(loaded.pipeline, Mode.BATCH).order == ("orders", "large", "larger", "largest")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt", "", "must end in .yaml, .yml, .py"),
        ("a.py", "1 +", "cannot be run: SyntaxError"),
        ("a.py", "raise SystemError('no')", "cannot be run: SystemError: no"),
        ("a.py", "", "has 0 pipelines; there must be one Definition"),
        ("a.yaml", "x" * (PIPELINE_FILE_BYTES_MAX + 1), "is larger than"),
        (
            "a.yaml",
            (
                "{sources: {a: {topic: a}}, transforms: {b: {python: a.py:b, from: a}},"
                " sinks: {c: {from: b, console: true}}}"
            ),
            "transforms.b.python: ",
        ),
        (
            "a.yaml",
            (
                "{sources: {a: {topic: a}}, transforms: {b: {python: other.py:lod, from: a}},"
                " sinks: {c: {from: b, console: true}}}"
            ),
            "other.py: has no function 'lod' (did you mean 'load'?)",
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str, problem: str) -> None:
    """A problem with the path of the file."""
    (tmp_path / name).write_text(content)
    (tmp_path / "other.py").write_text("def load(a): return a\n")

    with pytest.raises(PipelineError, match="has a problem") as caught:
        load(tmp_path / name)
    assert problem in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Said with its path."""
    with pytest.raises(PipelineError, match=r"nowhere\.yaml: no such file or directory"):
        load(tmp_path / "nowhere.yaml")
