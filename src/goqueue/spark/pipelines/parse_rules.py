"""The expectations of a pipeline file."""

from collections.abc import Mapping

from goqueue.base.limits import PIPELINE_NAME_CHARACTERS_MAX, PIPELINE_RULES_MAX
from goqueue.spark.pipelines.fields import Fields, kind_of
from goqueue.spark.pipelines.parse_sources import check_topic
from goqueue.spark.pipelines.spec import Expectation, Otherwise


def parse_expectations(fields: Fields) -> dict[str, tuple[Expectation, ...]]:
    """Return the rules by the part they are about."""
    raw = fields.raw("expectations")
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        fields.problems.add("expectations", f"must be a mapping of names, not {kind_of(raw)}")
        return {}
    return {str(name): _rules(fields, str(name), rules) for name, rules in raw.items()}


def _rules(fields: Fields, name: str, raw: object) -> tuple[Expectation, ...]:
    path = f"expectations.{name[:80]}"
    if not isinstance(raw, list):
        fields.problems.add(path, f"must be a list of rules, not {kind_of(raw)}")
        return ()
    if not 1 <= len(raw) <= PIPELINE_RULES_MAX:
        fields.problems.add(path, f"has {len(raw)} rules; there may be 1 to {PIPELINE_RULES_MAX}")
        return ()
    rules = [
        _rule(Fields(one, f"{path}[{place}]", fields.problems)) for place, one in enumerate(raw)
    ]
    names = [rule.name for rule in rules if rule is not None]
    for twice in sorted({one for one in names if names.count(one) > 1}):
        fields.problems.add(path, f"two rules are called {twice!a}")
    return tuple(rule for rule in rules if rule is not None)


def _rule(fields: Fields) -> Expectation | None:
    if not fields.is_usable:
        return None
    rule = fields.sql("that", required=True)
    name = fields.text("name", most=PIPELINE_NAME_CHARACTERS_MAX)
    topic = fields.text("topic")
    if topic:
        check_topic(topic, fields.at("topic"), fields.problems)
    otherwise = fields.choice("else", Otherwise, Otherwise.DROP)
    if topic and otherwise is not Otherwise.QUARANTINE:
        fields.problems.add(fields.at("topic"), "is only for else: quarantine")
    fields.finish()
    shown = name or rule[:PIPELINE_NAME_CHARACTERS_MAX]
    return Expectation(name=shown, rule=rule, otherwise=otherwise, topic=topic)
