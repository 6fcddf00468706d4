# ruff: noqa: E501
"""What is unusual or wrong in each file of a scenario, with its place and its remedy."""

from pathlib import Path

import pytest
from scenario_folders import EVENTS, FERRY, METRICS, PORT, SCENARIO, WORLD, write_scenario

from proctor.errors import PlanError
from proctor.jobs.scenario.reader import LoadedScenario, read_scenario
from proctor.jobs.scenario.reader_rules import as_text, as_texts, conditions_of
from recorded_files import check

SHORT = {
    "scenario": "scenario.yaml",
    "port": "actors/port.yaml",
    "ferry": "actors/ferry.yaml",
    "metrics": "metrics.yaml",
    "events": "exogenous-events.yaml",
    "rules": "validation-rules.yaml",
}


def load(folder: Path, **changed: str | None) -> LoadedScenario:
    return read_scenario(write_scenario(folder, {SHORT[name]: text for name, text in changed.items()}))


def refused(folder: Path, **changed: str | None) -> list[str]:
    """The problems, each in one line with its remedy."""
    with pytest.raises(PlanError) as error:
        load(folder, **changed)
    problems = error.value.problems
    root = f"{folder}/"
    return [f"{each.at}: {each.problem} | {each.remedy}".replace(root, "") for each in problems]


def remarks(folder: Path, **changed: str) -> list[str]:
    return [remark.replace(f"{folder}/", "") for remark in load(folder, **changed).remarks]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"scenario": "- 1\n"}, ["scenario.yaml:1:1: this should be a mapping of names to values | "]),
        ({"port": None, "ferry": None, "scenario": SCENARIO.replace("actors: [port, ferry]\n", "")}, ["scenario.yaml:1:1: the scenario has no actors | Add actors/NAME.yaml beside it.", "scenario.yaml:1:1: `actors` should not be empty, not a mapping | "]),
        ({"ferry": FERRY.replace('"ferry"', "port")}, ["actors/port.yaml:2:13: there is already an actor `port`, in ferry.yaml | ", "scenario.yaml:14:16: `ferry` is listed twice | "]),
        ({"ferry": FERRY.replace("Ferry Line", "Port Authority")}, ["actors/port.yaml:1:7: `Port Authority` is also the name of ferry | Files and costs tell actors apart by name."]),
        ({"ferry": FERRY + "control: [1]\nlogo: 3\n"}, ["actors/ferry.yaml:4:10: `actors.ferry.control` should be one of `ai`, `human`, not a list | "]),
        ({"port": PORT.replace('"port"', "5")}, ["actors/port.yaml:2:13: `5` is no short name | Use small letters, digits and dashes: it becomes part of file names.", "actors/port.yaml:2:13: `actors.5.short_name` should be text, not the number 5 | Put it in quotes."]),
        ({"scenario": SCENARIO.replace("[port, ferry]", "port")}, ["scenario.yaml:14:9: `actors` should be a list of short names | "]),
        ({"scenario": SCENARIO.replace("[port, ferry]", "[port, ferry, port]")}, ["scenario.yaml:14:23: `port` is listed twice | "]),
        ({"scenario": SCENARIO.replace("[port, ferry]", "[port, ferry, mayor]")}, ["scenario.yaml:14:23: there is no actor `mayor` | There are: ferry, port."]),
        ({"scenario": SCENARIO.replace("[port, ferry]", "[port, ferry, frry]")}, ["scenario.yaml:14:23: there is no actor `frry` | Did you mean `ferry`?"]),
        ({"scenario": SCENARIO + "scenario_length: [3]\n"}, ["scenario.yaml:15:18: `scenario_length` is a mapping | "]),
        ({"scenario": SCENARIO + "scenario_length: true\n"}, ["scenario.yaml:15:18: `scenario_length` is a mapping | "]),
        ({"scenario": SCENARIO.replace("turns: 3\n", "scenario_length: {turns: soon}\n")}, ["scenario.yaml:8:26: `turns` should be a whole number, not the text 'soon' | "]),
        ({"scenario": SCENARIO + "features: {communications: 3}\n"}, ["scenario.yaml:15:28: `communications` is a mapping, or true or false | "]),
        ({"scenario": SCENARIO + "features: {communications: {max_per_turn: x}}\n"}, ["scenario.yaml:15:43: `max_communications_per_turn` should be a whole number, not the text 'x' | "]),
        ({"scenario": SCENARIO + "features: {context_management: {max_context_tokens: x}}\n"}, ["scenario.yaml:15:53: `max_context_tokens` should be a whole number, not the text 'x' | "]),
        ({"scenario": SCENARIO + "variables: {fee: {initial: {port: 1}, per_actor: true}}\n"}, ["scenario.yaml:15:28: `initial` has no value of ferry | "]),
        ({"scenario": SCENARIO + "variables: {fee: {initial: {port: 1, ferry: x}, per_actor: true}}\n"}, ["scenario.yaml:15:28: `fee` cannot be x at the beginning | "]),
        ({"scenario": SCENARIO + "variables: {fee: {initial: 1, visible_to: [prt]}}\n"}, ["scenario.yaml:15:43: there is no actor `prt` | Did you mean `port`?"]),
        ({"scenario": SCENARIO + "variables: {a-b: 1, turn: 2}\n"}, ["scenario.yaml:15:18: `a-b` cannot be the name of a variable | Use letters, digits and `_`.", "scenario.yaml:15:27: `turn` cannot be the name of a variable | Use letters, digits and `_`."]),
        ({"scenario": SCENARIO + "variables: {fee: {initial: 1, set_by: [port, ferry]}}\n"}, ["scenario.yaml:15:39: several actors cannot set one value of `fee` | Add `per_actor: true`: then each has a value of its own."]),
        ({"scenario": SCENARIO + "groups: {players: [port, mayor]}\n"}, ["scenario.yaml:15:19: there is no actor `mayor` | There are: port, ferry."]),
        ({"scenario": SCENARIO + "variables: {fee: 1}\ngroups: {players: [port]}\nrules:\n  - for each actor in playrs: fee += 1\n"}, ["scenario.yaml:18:5: rule 1: there is no group `playrs`, at character 19 of `for each actor in playrs: fee += 1` | There are: all, players."]),
        ({"scenario": SCENARIO + "rooms: {hall: {members: [port, mayor]}}\n"}, ["scenario.yaml:15:25: there is no actor `mayor` | There are: port, ferry."]),
        ({"scenario": SCENARIO + "rooms: {hall: {members: [port, ferry], size: 3}}\n"}, ["scenario.yaml:15:46: there is no `rooms.hall.size` | "]),
        ({"metrics": None, "events": "exogenous_events: [{name: a, type: conditional, conditions: {trust: '> 1'}}]\n"}, ["exogenous-events.yaml:1:69: there is no metric `trust` | metrics.yaml defines metrics."]),
        ({"metrics": "metrics: 3\n", "events": None}, ["metrics.yaml:1:10: `metrics` should be a mapping or a list | "]),
        ({"metrics": "metrics: [3, {name: ' '}, {type: int}]\n", "events": None}, [f"metrics.yaml:1:{column}: a metric is a mapping with a name | " for column in (11, 14, 27)]),
        ({"metrics": "metrics: [{name: a}, {name: a}]\n", "events": None}, ["metrics.yaml:1:22: there are two metrics called `a` | "]),
        ({"metrics": METRICS + "export_format: XML\n"}, ["metrics.yaml:9:16: `export_format` cannot be `xml` | There are: json, csv, both."]),
        ({"metrics": METRICS + "thresholds: {trust: {warning: 1}}\n"}, ["metrics.yaml:9:14: there is no metric `trust` | "]),
        ({"metrics": METRICS.replace("regex", "keyword")}, ["metrics.yaml:4:5: the metric `cooperation_level` has no `keywords` | Add `keywords`."]),
        ({"metrics": METRICS.replace("regex", "rgex")}, ["metrics.yaml:6:24: `method` of the metric `cooperation_level` cannot be `rgex` | Did you mean `regex`?"]),
        ({"metrics": METRICS.replace("regex", "telepathy")}, ["metrics.yaml:6:24: `method` of the metric `cooperation_level` cannot be `telepathy` | There are: keyword, keywords, llm, manual, model, pattern, regex."]),
        ({"events": EVENTS + "  - 7\n"}, ["exogenous-events.yaml:6:5: an event is a mapping | "]),
        ({"events": EVENTS + "  - {type: random, probability: 1, name: Storm}\n"}, ["exogenous-events.yaml:6:5: there are two events called `Storm` | "]),
        ({"events": "trends: {name: a}\n"}, ["exogenous-events.yaml:1:9: `trends` should be a list | ", "exogenous-events.yaml:1:9: an event is a mapping | "]),
        ({"events": EVENTS + "  - {type: sometimes, name: A}\n"}, ["exogenous-events.yaml:6:12: the event `A` has no type `sometimes` | There are: trend, random, conditional, scheduled."]),
        ({"events": "random_events: [{name: A}]\n"}, ["exogenous-events.yaml:1:17: the random event `A` has no `probability` | Add `probability`."]),
        ({"events": "conditional_events: [{name: A}]\n"}, ["exogenous-events.yaml:1:22: the conditional event `A` has no `conditions` | Add `conditions`."]),
        ({"events": "scheduled_events: [{name: A, schedule: 3}]\n"}, ["exogenous-events.yaml:1:20: the scheduled event `A` has no `turn` | Add `turn`.", "exogenous-events.yaml:1:40: `schedule` is a mapping: `{turns: [3, 6]}` | "]),
        ({"events": "scheduled_events: [{name: A, schedule: {turn: x}}]\n"}, ["exogenous-events.yaml:1:47: `events.A.turn` should be a whole number, not the text 'x' | "]),
        ({"events": "conditional_events: [{name: A, conditions: [{type: metric, metric: 3, value: 1}]}]\n"}, ["exogenous-events.yaml:1:45: a condition of type `metrics` has `metric`, `operator` and `value` | "]),
        ({"events": "conditional_events: [{name: A, conditions: [{type: mtrics, metric: 3, value: 1}]}]\n"}, ["exogenous-events.yaml:1:52: there is no condition of type `mtrics` | Did you mean `metrics`?"]),
        ({"events": "conditional_events: [{name: A, conditions: [5]}]\n"}, ["exogenous-events.yaml:1:45: a condition is a text or a mapping | "]),
        ({"events": "conditional_events: [{name: A, conditions: [{type: world_state_contains, pattern: '('}]}]\n"}, ["exogenous-events.yaml:1:83: `events.A.world_state_contains.0.pattern` is not a valid regular expression: missing ), unterminated subpattern at position 0 | "]),
        ({"scenario": SCENARIO + "enable_black_swans: true\nblack_swans: [3, {name: Q, probability: 0}, {name: Q, probability: 0}]\n"}, ["scenario.yaml:16:15: an event is a mapping | ", "scenario.yaml:16:45: there are two events called `Q` | "]),
        ({"rules": "checks: [a]\n"}, ["validation-rules.yaml:1:9: `checks` should be a mapping | "]),
        ({"rules": "include_in_costs: false\n"}, ["validation-rules.yaml:1:19: what checks cost is always counted | Remove it: a limit that left something out would be none."]),
        ({"rules": "checks: {custom: {tone: {severity: grave}}}\n"}, ["validation-rules.yaml:1:36: `validation.checks.tone.severity` should be one of `low`, `medium`, `high`, `critical`, not the text 'grave' | "]),
    ],
)  # fmt: skip
def test_a_problem_has_its_place_and_its_remedy(tmp_path, changed, expected):
    assert refused(tmp_path, **changed) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"port": PORT + "goal: Win\n"}, ["actors/port.yaml:10:1: `goal` is told to the actor as a note. Did you mean `goals`?"]),
        ({"ferry": "name: Ferry Line\n"}, ["actors/ferry.yaml: no model is named; it is openai/gpt-4o-mini"]),
        ({"ferry": "name: Ferry Line\ncontrol: human\n"}, []),
        ({"scenario": SCENARIO + "features: {communications: {max_per_trn: 3}}\n"}, ["scenario.yaml:15:29: the feature `communications` has no `max_per_trn`; it is not used. Did you mean `max_per_turn`?"]),
        ({"scenario": SCENARIO + "features: {quality_assurance: true, weather: 1}\n"}, ["scenario.yaml:15:37: `features` has no `weather`; it is not used."]),
        ({"scenario": SCENARIO + "zeppelins: 3\nnotes: x\n"}, ["scenario.yaml:15:1: a scenario has no `zeppelins`; it is not used."]),
        ({"events": EVENTS + "  - {type: trend, name: A, probabilty: 0.5}\n"}, ["exogenous-events.yaml:6:28: an event has no `probabilty`; it is not used. Did you mean `probability`?"]),
        ({"events": "scheduled_events: [{name: A, schedule: {turn: 2, day: 3}}]\n"}, ["exogenous-events.yaml:1:50: `schedule` has no `day`; it is not used."]),
        ({"metrics": METRICS + "    color: red\n"}, ["metrics.yaml:9:5: a metric has no `color`; it is not used."]),
        ({"metrics": METRICS + "color: red\n"}, ["metrics.yaml:9:1: metrics.yaml has no `color`; it is not used."]),
        ({"rules": "checks: {tone: {name: x, sevrity: low}}\n"}, ["validation-rules.yaml:1:26: a check has no `sevrity`; it is not used. Did you mean `severity`?"]),
        ({"rules": "reporting: {color: red}\n"}, ["validation-rules.yaml:1:13: `reporting` has no `color`; it is not used."]),
    ],
)  # fmt: skip
def test_what_is_unusual_is_a_remark(tmp_path: Path, changed: dict[str, str], expected: list[str]) -> None:
    assert remarks(tmp_path, **changed) == expected


def test_a_prompt_of_an_unknown_name_is_not_used(tmp_path: Path) -> None:
    folder = write_scenario(tmp_path, {"prompts/weather.j2": "{{"})

    loaded = read_scenario(folder)

    assert loaded.remarks == (f"{tmp_path}/prompts/weather.j2: there is no prompt `weather`; it is not used",)
    assert loaded.plain["prompts"] == {}


def test_features_and_length_are_read_when_the_scenario_file_says_nothing(tmp_path: Path) -> None:
    bare = SCENARIO.replace("enable_bilateral_communication: true\n", "").replace("turns: 3\n", "")
    bare = bare.replace("context_window_size: 3\n", "author: Ada\n")
    for talks, expected in (("false", False), ("true", True), ("{}", True), ("{enabled: false}", False)):
        text = f"{bare}turns: 2\nfeatures: {{communications: {talks}}}\n"
        assert load(tmp_path, scenario=text).plain["enable_bilateral_communication"] is expected
    by_condition = bare + "scenario_length: {condition: cooperation_level >= 8}\n"
    window = "features: {context_management: {enabled: false, max_context_tokens: 8}}\n"
    plain = load(tmp_path, scenario=by_condition + window).plain
    assert (plain["turns"], plain["stop_when"]) == (50, {"cooperation_level": ">= 8"})
    assert plain["context_window_size"] == 50 and "max_context_tokens" not in plain
    assert plain["about"] == {"author": "Ada"}
    assert load(tmp_path, scenario=bare + "scenario_length: {max_turns: 7}\n").plain["turns"] == 7


def test_features_switch_files_off(tmp_path: Path) -> None:
    for feature, name, empty in (
        ("metrics_extraction", "metrics", {}),
        ("exogenous_events", "events", {}),
        ("quality_assurance", "validation", None),
    ):
        for off in ("false", "{enabled: false}"):
            text = SCENARIO + f"features: {{{feature}: {off}}}\n"
            no_conditions = EVENTS.replace('conditional, conditions: {cooperation_level: ">= 8"}', "trend")
            plain = load(tmp_path, scenario=text, events=no_conditions, rules="checks: {}\n").plain
            assert plain.get(name) == empty, feature
        for on in ("true", "{enabled: true}", "{}"):
            text = SCENARIO + f"features: {{{feature}: {on}}}\n"
            assert load(tmp_path, scenario=text, rules="checks: {}\n").plain[name], feature


VARIABLES = """\
variables:
  whole: 3
  part: 0.5
  open: true
  word: calm
  each: {initial: {port: 1, ferry: 2}, per_actor: true}
  vote: {values: [yes, no, later]}
  level: {type: int, initial: 2, visible_to: port, set_by: ferry}
  answer: {type: choice, values: [no, 'x'], initial: no}
rules: [whole += 1]
"""
SWANS = """\
enable_black_swans: true
black_swans: [{name: War, description: War breaks out., probability: 0.01, effects: [No ships]}]
"""
FEATURES = """\
max_communications_per_turn: 4
summarization_model: scripted/own
scenario_length: {turns: 9, max_turns: 10}
features:
  communications: {enabled: false, max_per_turn: 2}
  context_management: {summarization_model: scripted/other}
"""
TIMES = """\
events:
  - {type: trend, start_turn: 2}
  - {type: random, chance: 0.5, end_turn: 4, once: true}
  - {type: trend, probability_per_turn: 0.4, name: B}
  - {type: trend, start_turn: 2, turn_range: [5, 6], interval: 3, name: C, description: Slow.}
  - {type: scheduled, trigger_turn: 2, name: D, effect: " Two\\n berths "}
  - {type: scheduled, schedule: {turns: 3}, name: E, effects: [Rain, Wind]}
  - {type: scheduled, schedule: {turns: [3, 4]}, name: F, effects: Rain, once: null}
"""
EFFECTS = """\
trends:
  - name: A
    effects:
      - Rain
      - {turn: 3, impact: Wind!}
      - {start_turn: 2, description: "Hail  falls", effect: Cold}
      - {end_turn: 5, price_of_fuel: [1, {a: 2}], mood: null}
      - {turn_range: [1, 2], turn: 7, description: "Why?", impact: "So:", effect: "then;"}
"""
CONDITIONS = """\
conditional_events:
  - {name: A, conditions: [{metric: cooperation_level, operator: "=", value: 3}]}
  - {name: B, conditions: [{type: metric, metric: cooperation_level, value: 3}]}
  - {name: C, conditions: [{cooperation_level: "> 1"}, cooperation_level < 4]}
  - {name: D, conditions: [{type: world_state_contains, pattern: toll}]}
  - {name: E, conditions: [{type: world_state_contains, pattern: toll}, cooperation_level < 4]}
"""
KINDS = """\
extraction_model: scripted/ok
metrics:
  a: {pattern: "(x)", type: PERCENTAGE}
  b: {keywords: "- calm\\n* kind", type: bool}
  c: {description: d}
  d: {extraction: {type: llm, prompt: p}, type: category, categories: []}
  e: {method: model, model: scripted/own, extraction_prompt: p, categories: {low: bad}, type: text}
  f: {method: manual, type: count}
  g: {extraction_type: pattern, pattern: l, data_type: continuous}
thresholds: {a: {warning: 3, critical: 1}, b: 7, c: {critical: 0}}
"""
CHECKS = """\
generate_summary_report: false
include_in_costs: true
report_format: MD
scenario_specific_rules: [No wars, No ghosts]
reporting: {include_low: null}
checks:
  tone: false
  style: {name: x, severity: low}
  custom: {ghosts: {severity: high}, wars: {enabled: true}}
"""


def test_what_is_read_of_each_file_is_as_recorded(tmp_path: Path) -> None:
    first = load(tmp_path / "usual")
    usual = first.plain
    assert first.remarks == ()
    port = PORT + "favorite_saying: Time is money\ninformation_access: {private: [harbour log]}\n"
    cases: dict[str, dict[str, str | None]] = {
        "types of variables follow from their values": {"scenario": SCENARIO + VARIABLES},
        "variables, rules and rooms": {"scenario": SCENARIO.replace("turns: 3\n", "") + WORLD},
        "rare events are played when they are switched on": {"scenario": SCENARIO + SWANS},
        "what an author adds about an actor is a note": {"port": port},
        "an actor has its short name or that of its file": {"ferry": FERRY.replace('"ferry"', '"line"')},
        "the scenario comes before its features": {"scenario": SCENARIO + FEATURES},
        "events have a name, a type and turns": {"events": TIMES},
        "effects are limited to turns": {"events": EFFECTS},
        "conditions are texts, mappings or lists": {"events": CONDITIONS},
        "metrics have a type and a method": {"metrics": KINDS, "events": None},
        "metrics may be a list": {
            "metrics": "metrics: [{name: a, type: float, method: manual}]\n",
            "events": None,
        },
        "checks are mappings or false": {"rules": CHECKS},
        "a check may have the name of a setting": {"rules": "checks: {custom: {severity: high}}\n"},
    }
    read = {}
    for number, (name, changed) in enumerate(cases.items()):
        plain = load(tmp_path / str(number), **changed).plain
        read[name] = {key: value for key, value in plain.items() if value != usual.get(key)}
    check(Path(__file__).parent / "recorded" / "scenario-files.txt", {"usual": usual, **read})


def test_a_condition_may_be_a_text() -> None:
    assert conditions_of(None) == {}
    assert conditions_of({"a": "> 1"}) == {"a": "> 1"}
    compared = conditions_of("a>=1 AND b <= 2 and c==3 and d != 4 and e>5 and f <6 and a < 9 and g")
    expected = {"b": "<= 2", "c": "== 3", "d": "!= 4", "e": "> 5", "f": "< 6"}
    assert compared == {"a": ">= 1 and < 9", **expected, "g": ""}


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", False), ("json", False), ("CSV", True), ("both", True), ("csv\nauto_export: false", False)],
)
def test_metrics_are_a_table_too_if_the_format_says_so(tmp_path: Path, more: str, expected: bool) -> None:
    plain = load(tmp_path, metrics=f"{METRICS}export_format: {more}\n").plain
    assert plain.get("metrics_csv", False) is expected


def test_thresholds_of_a_metric_come_before_those_beside_the_metrics(tmp_path: Path) -> None:
    text = METRICS.replace("    type: int\n", "    type: int\n    warning_threshold: 5\n")
    metrics = load(tmp_path, metrics=text + "thresholds: {cooperation_level: {warning: 3, critical: 1}}\n")
    metric = metrics.scenario.metrics["cooperation_level"]
    assert (metric.warning_threshold, metric.critical_threshold) == (5, 1)


def test_texts_are_lists_and_lists_are_texts() -> None:
    assert as_texts("- a\n\n * b\n• c") == ["a", "b", "c"]
    assert as_texts({"a": [1, 2], "b": {"c": 3}}) == ["a: 1, 2", "b: c 3"]
    assert as_texts(["x", {"a": 1, "b": 2}, 3]) == ["x", "a: 1", "b: 2", 3]
    assert as_texts(7) == as_text(7) == 7
    assert as_text(["a", "b"]) == "- a\n- b"
    assert as_text(["a", 1]) == ["a", 1]
    assert as_text({"a": [1, 2], "b": "c"}) == "a: 1, 2\nb: c"
