"""A coding plan: what it may say, what it comes to, and how it is refused."""

import itertools
import textwrap
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import PlanError
from proctor.item import Item
from proctor.job import plan_schema
from proctor.jobs.coding.job import JOB, CodingPlan, read_plan
from proctor.jobs.coding.plan import Overrides
from proctor.jobs.coding.schema import Entry
from proctor.plan.validate import names_of

SCHEMA_EXAMPLE = """
    runId: optional-string        # made up if missing
    concurrency: 2
    defaults:
      baseBranch: main
      scriptCommand: "pnpm -w test"
      model: gpt-5
      jsonLogs: true
      timeoutSec: 900
      retries: 1
      mergeOnPass: false
    matrix:
      - repo: /abs/path/repoA
        prompt: "Implement feature A"
      - repo: /abs/path/repoB
        prompt: "Refactor module B"
        baseBranch: develop
        scriptCommand: "npm test"
        model: gpt-4o
        mergeOnPass: true
    """


def plan(text: str, folder: Path = Path("/plans"), **more) -> CodingPlan:
    return read_plan(
        textwrap.dedent(text).lstrip(), file="plan.yaml", folder=folder, home=Path("/me"), **more
    )


def items(text: str, folder: Path = Path("/plans"), **overrides) -> list[Item]:
    return list(plan(text, folder).under(Overrides(**overrides)).items())


def wrong(text: str, folder: Path = Path("/plans")) -> list[str]:
    with pytest.raises(PlanError) as caught:
        items(text, folder)
    return [str(problem) for problem in caught.value.problems]


# The documented plans


def test_the_schema_example_comes_to_two_items_with_their_own_settings():
    read = plan(SCHEMA_EXAMPLE)
    assert (read.setting("runId"), read.concurrency, read.item_count) == ("optional-string", 2, 2)
    first, second = read.items()
    assert first == Item(
        runner="worktree",
        agent="amp",
        model="gpt-5",
        prompt="Implement feature A",
        details={"repository": "repoA", "baseBranch": "main", "scriptCommand": "pnpm -w test"},
        settings={
            "repo": "/abs/path/repoA",
            "timeoutSec": 900,
            "retries": 1,
            "retryOn": ["error", "timeout"],
            "mergeOnPass": False,
            "keep": "on_failure",
            "tags": [],
            "jsonLogs": True,
        },
        factors={"model": "gpt-5", "agent": "amp", "repository": "repoA", "task": "Implement feature A"},
    )
    assert (second.model, second.details["baseBranch"]) == ("gpt-4o", "develop")
    assert second.settings["mergeOnPass"] is True


# Ids


def test_an_id_is_the_same_on_every_machine_and_in_every_order():
    here = items("matrix: [{repo: /a/api, prompt: x}, {repo: /a/web, prompt: y}]")
    there = items("matrix: [{repo: web, prompt: y}, {prompt: x, repo: ~/code/api, timeoutSec: 5}]")
    assert {item.id for item in here} == {item.id for item in there}


def test_an_id_does_not_change_when_nothing_is_asked_differently():
    [item] = items("matrix: [{repo: /a/api, prompt: x, model: m}]")
    assert item.inputs == {
        "runner": "worktree",
        "agent": "amp",
        "model": "m",
        "prompt": "x",
        "repository": "api",
        "baseBranch": "main",
    }
    # Written down once: should this line ever have to change, every earlier batch starts over.
    assert item.id == "419654da19e2e9c2"


def test_repositories_have_a_name_and_a_path_from_the_plans_folder():
    def repositories(*paths):
        return [item.details["repository"] for item in items(f"matrix: [{{repo: {list(paths)}, prompt: p}}]")]

    assert repositories("/x/a/api", "/x/b/api", "/x/web") == ["a/api", "b/api", "web"]
    assert len(set(repositories("/api", "/x/api"))) == 2, "one may lie inside another of its name"
    found = items("matrix: [{repo: [api, ../b, ~/c, /d/./e], prompt: p}]", folder=Path("/plans"))
    assert [item.settings["repo"] for item in found] == ["/plans/api", "/b", "/me/c", "/d/e"]


def test_items_that_differ_only_in_what_their_agent_does_not_use_are_equal():
    found = items("""
        defaults: {command: [make]}
        matrix:
          - {repo: a, prompt: x, agent: amp}
          - {repo: a, prompt: x, agent: amp, command: null}
          - {repo: a, prompt: x, agent: [amp, command], command: [[one], [two]]}
        """)
    assert len({item.id for item in found}) == len(found) == 5
    assert [item.repeat for item in found if item.agent == "amp"] == [1, 2, 3]
    assert [item.details.get("command") for item in found if item.agent == "command"] == [["one"], ["two"]]


# Defaults, entries, overrides


def test_an_entry_beats_an_override_and_an_override_beats_the_defaults():
    text = """
        concurrency: 2
        defaults: {model: [d, e], retries: 1}
        matrix: [{repo: a, prompt: x}, {repo: a, prompt: y, model: own, timeoutSec: 5}]
        """
    given = Overrides(concurrency=9, model="o", timeout_sec=7, retries=3, merge_on_pass=True, json_logs=False)
    read = plan(text)
    first, second = read.under(given).items()
    assert [first.model, second.model] == ["o", "own"]
    assert [first.settings["timeoutSec"], second.settings["timeoutSec"]] == [7, 5]
    assert [first.settings[name] for name in ("retries", "mergeOnPass", "jsonLogs")] == [3, True, False]
    assert (read.concurrency, read.under(given).concurrency) == (2, 9)
    held = read.under(given).defaults_json()
    assert (held["concurrency"], held["model"], held["timeoutSec"], held["baseBranch"]) == (9, "o", 7, "main")
    assert read.defaults_json()["model"] == ["d", "e"]
    read = plan("budget: 3\nmatrix: [{repo: a, prompt: x}, {repo: a, prompt: y, agent: own}]")
    given = Overrides(agent="codex", budget=9)
    assert [item.agent for item in read.under(given).items()] == ["codex", "own"]
    assert (read.budget, read.under(given).budget) == (3, 9)
    assert read.under(given).defaults_json()["agent"] == "codex"


def test_null_takes_a_default_away():
    text = """
        defaults: {model: m, scriptCommand: check, timeoutSec: 5, env: {A: a}, budget: 1}
        matrix:
          - {repo: a, prompt: x, model: null, scriptCommand: null, timeoutSec: null, env: null, budget: ~}
        """
    [item] = items(text, model="o")
    assert item.model == "" and item.settings["timeoutSec"] == 900
    assert not {"scriptCommand", "env"} & set(item.details) and "budget" not in item.settings


def test_env_and_settings_are_joined_name_by_name():
    [item] = items("""
        defaults: {env: {A: a, B: b, C: c}, settings: {x: 1, y: {z: 1}}}
        matrix: [{repo: a, prompt: x, env: {B: "${B}", C: null}, settings: {y: 2}}]
        """)
    assert item.details["env"] == {"A": "a", "B": "${B}"}
    assert item.details["settings"] == {"x": 1, "y": 2}


def test_everything_an_item_may_say_reaches_it():
    [item] = items("""
        matrix:
          - repo: a
            prompt: "\\n  First line\\nSecond"
            agent: command
            command: [sh, -c, "true"]
            setup: make
            tags: [t]
            seed: 4
            budget: 0.5
            retryOn: [fail]
            keep: never
            expect: {contains: [x, y], regex: "a+"}
            settings: {effort: high}
        """)
    assert item.details == {
        "repository": "a",
        "baseBranch": "main",
        "command": ["sh", "-c", "true"],
        "setup": "make",
        "seed": 4,
        "expect": {"contains": ["x", "y"], "regex": "a+"},
        "settings": {"effort": "high"},
    }
    assert item.factors["task"] == "First line"
    settings = {name: item.settings[name] for name in ("tags", "budget", "retryOn", "keep")}
    assert settings == {"tags": ["t"], "budget": 0.5, "retryOn": ["fail"], "keep": "never"}


def test_what_the_plan_says_of_the_whole_batch():
    read = plan("""
        budget: 12.5
        seed: 7
        notify: desktop
        prices: {m: {input: 1, output: 2.5, cached: null}}
        matrix: [{repo: a, prompt: x}]
        """)
    assert [read.setting(name) for name in ("budget", "seed", "notify", "runId")] == [
        12.5,
        7,
        "desktop",
        None,
    ]
    assert read.model_options().prices == {"m": {"input": 1, "output": 2.5}}
    assert read.concurrency == 4
    assert len(read.digest) == 64 and read.digest != plan("matrix: [{repo: a, prompt: y}]").digest


# Plain prompts


def test_an_item_without_a_repository_is_a_plain_prompt():
    [item] = items("""
        defaults: {agent: amp, setup: make, scriptCommand: check, env: {A: a}, mergeOnPass: true, model: m}
        matrix:
          - {prompt: 2+2?, system: Be brief., expect: {equals: "4"}, seed: 1, settings: {temperature: 0}}
        """)
    assert (item.runner, item.agent, item.model) == ("prompt", "", "m")
    assert item.details == {
        "system": "Be brief.",
        "expect": {"equals": "4"},
        "seed": 1,
        "settings": {"temperature": 0},
    }
    assert set(item.settings) == {"timeoutSec", "retries", "retryOn", "tags", "jsonLogs"}
    assert item.factors == {"model": "m", "task": "2+2?"}


def test_a_plain_prompt_needs_a_model_from_somewhere():
    text = "matrix: [{prompt: x}]"
    assert "item 1 has no `model`" in wrong(text)[0]
    assert [item.model for item in items(text, model="o")] == ["o"]
    with pytest.raises(PlanError):
        plan(text, overrides=Overrides())
    assert plan(text, overrides=Overrides(model="o")).item_count == 1


@pytest.mark.parametrize(
    "setting", ["agent: a", "setup: s", "command: c", "scriptCommand: s", "mergeOnPass: true", "env: {A: a}"]
)
def test_a_plain_prompt_has_no_use_for_what_needs_a_repository(setting):
    [found] = wrong(f"matrix:\n  - prompt: x\n    model: m\n    {setting}\n")
    assert found.startswith("plan.yaml:4:5: item 1 has") and "no `repo`" in found.splitlines()[0]


# Agents


def test_a_command_or_a_script_names_the_agent():
    found = items("""
        defaults: {agent: amp}
        matrix:
          - {repo: a, prompt: x}
          - {repo: a, prompt: x, command: make it}
          - {repo: a, prompt: x, script: [{say: hello}]}
        """)
    assert [item.agent for item in found] == ["amp", "command", "scripted"]
    assert found[2].details["script"] == [{"say": "hello"}]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("agent: amp, command: make", "its agent is `amp`"),
        ("agent: amp, script: [x]", "its agent is `amp`"),
        ("command: make, script: [x]", "a `command` and a `script`"),
        ("agent: command", "no `command`"),
        ("agent: [amp, scripted]", "no `script`"),
        ("system: x", "its own system prompt"),
        ("expect: {}", "is empty"),
        ("expect: {json_schema: {type: nonsense}}", "not a valid JSON schema"),
        ("expect: {regex: '('}", "not a valid regular expression"),
        ("command: []", "command line"),
        ("command: [[a], 3]", "command line"),
        ("settings: {x: .nan}", "not finite"),
        ("env: {'a=b': c}", "no environment variable"),
        ("runs: 0", "at least 1"),
        ("budget: 0", "more than 0"),
        ("keep: sometimes", "one of `always`, `on_failure`, `never`"),
        ("model: []", "should not be empty"),
        ("runs: 2000000", "2,000,000 items"),
        ("timeoutSec: true", "should be a number, not true"),
        ("retries: 1.5", "whole number, not the number 1.5"),
        ("tags: x", "should be a list"),
        ("settings: x", "should be a mapping"),
    ],
)
def test_settings_that_cannot_be_are_refused(entry, words):
    [found] = wrong(f"matrix: [{{repo: a, prompt: x, {entry}}}]")
    assert words in found.splitlines()[0]


def test_a_script_file_is_read_with_the_plan_and_its_content_decides_the_id(tmp_path):
    text = "matrix: [{repo: a, prompt: x, script: steps.yaml}]"
    (tmp_path / "steps.yaml").write_text("- say: hello\n")
    [before] = items(text, tmp_path)
    (tmp_path / "steps.yaml").write_text("- say: goodbye\n")
    [after] = items(text, tmp_path)
    assert before.details["script"] == [{"say": "hello"}]
    assert before.id != after.id


def test_a_script_that_cannot_be_read_is_a_problem_at_its_place(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: 1\na: 2\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "words.yaml").write_text("say hello")
    found = wrong(
        """
        matrix:
          - {repo: a, prompt: x, script: missing.yaml}
          - {repo: a, prompt: x, script: bad.yaml}
          - {repo: a, prompt: x, script: empty.yaml}
          - {repo: a, prompt: x, script: words.yaml}
          - {repo: a, prompt: x, script: .}
        """,
        tmp_path,
    )
    assert found[0].startswith(f"{tmp_path}/bad.yaml:2:1: `a` is given twice")
    assert found[1].startswith(f"{tmp_path}/empty.yaml:1:1: a script is a list of steps")
    assert found[2].startswith(f"{tmp_path}/words.yaml:1:1: a script is a list of steps")
    assert found[3].startswith(
        "plan.yaml:2:34: the script missing.yaml cannot be read: there is no such file"
    )
    assert found[4].startswith("plan.yaml:6:34: the script . cannot be read")


# How a plan is refused


def test_an_unknown_setting_is_shown_with_the_one_that_was_meant():
    found = wrong("""
        matrix:
          - repo: a
            prompt: x
            timeout_secs: 900
        """)
    assert found == [
        "plan.yaml:4:5: item 1 has no setting `timeout_secs`\n"
        "   4 |     timeout_secs: 900\n"
        "Did you mean `timeoutSec`? An item may have: prompt, repo, exclude, baseBranch, scriptCommand, "
        "model, jsonLogs, timeoutSec, setupTimeoutSec, checkTimeoutSec, login, cache, baseline, retries, "
        "mergeOnPass, agent, command, script, setup, setupOnce, setupOnceFiles, env, tags, runs, seed, "
        "budget, retryOn, keep, settings, system, expect, sandbox, resources."
    ]


def test_everything_wrong_with_a_plan_is_reported_together():
    found = wrong("""
        runId: -x
        concurrency: two
        concurrency: 2
        defaults:
          jsonLogs: yes
          agent: amp
        matrix:
          - repo: a
          - repo: a
            prompt: 4
          - prompt: x
            setup: make
          - repo: a
            prompt: x
            agent: command
        prices:
          m: {input: 1}
        """)
    places = [problem.split(": ")[0].removeprefix("plan.yaml:") for problem in found]
    assert places == ["1:8", "2:14", "3:1", "5:13", "8:5", "10:13", "12:5", "15:12", "17:6"]


def test_a_setting_of_the_wrong_shape_does_not_bring_others_into_disrepute():
    found = wrong("""
        matrix:
          - {repo: 3, prompt: x, setup: make}
          - {repo: a, prompt: x, agent: command, command: 4}
          - {repo: a, prompt: x, agent: scripted, script: 5, env: none}
        """)
    assert [problem.split(" ")[1] for problem in found] == ["`repo`", "`command`", "`script`", "`env`"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the plan should be a mapping of names to values, not nothing"),
        ("- a", "not a list"),
        ("concurrency: 2", "the plan has no `matrix`"),
        ("matrix: []", "`matrix` of the plan should not be empty"),
        ("matrix: [x]", "item 1 should be a mapping"),
        ("matrix: {a: b}", "`matrix` of the plan should be a list"),
        ("defaults: 3\nmatrix: [{prompt: x}]", "`defaults` should be a mapping"),
        ("matrix: [{repo: a, prompt: ' '}]", "`prompt` of item 1 should not be empty"),
        ("matrix: [{repo: a, prompt: [x, '']}]", "`prompt[2]` of item 1 should not be empty"),
    ],
)
def test_what_is_no_plan_is_refused(text, words):
    assert words in wrong(text)[0].splitlines()[0]


def test_a_wrong_secret_is_not_shown():
    found = wrong("""
        defaults: {env: {DATABASE: 4711}}
        matrix:
          - {repo: a, prompt: x, env: {DATABASE: [hunter2]}, apiKey: hunter2}
        """)
    assert len(found) == 3
    assert "4711" not in "".join(found) and "hunter2" not in "".join(found)


values = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 2.5, "", "a", "command", "scripted", "${A}", float("inf"), 2**80]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "repo", "A", "regex", "json_schema", "type"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
levels = st.dictionaries(st.sampled_from([*names_of(Entry), "nope"]), values, max_size=6)
plans = st.fixed_dictionaries(
    {
        "matrix": st.lists(
            st.fixed_dictionaries({"prompt": st.just("p")}).flatmap(lambda p: levels.map(lambda e: p | e))
            | values,
            max_size=3,
        )
        | values
    },
    optional={
        "defaults": levels | values,
        "exclude": st.lists(levels, max_size=2) | values,
        "prices": values,
    },
)


@settings(max_examples=100)
@given(plans)
def test_no_plan_makes_anything_worse_than_a_plan_error(data):
    try:
        read = plan(yaml.safe_dump(data))
        found = list(itertools.islice(read.items(), 100))
    except PlanError as error:
        found = error.problems
    assert found


# For editors and for those who check further


def test_the_json_schema_takes_what_the_plan_takes():
    schema = plan_schema(JOB)
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    checker.validate(plan(SCHEMA_EXAMPLE).source.data)
    grid = "matrix: [{repo: [a, b], prompt: x, timeoutSec: [1, 2], command: [[a], b], env: {A: null}}]"
    checker.validate(plan(grid).source.data)
    for wrong_one in ({"matrix": []}, {"matrix": [{"prompt": "x", "modle": "m"}]}, {"matrix": [{}]}):
        assert not checker.is_valid(wrong_one)


def test_the_place_of_a_setting_is_the_entrys_else_the_defaults_else_the_entry():
    read = plan("""
        defaults:
          model: [d, e]
          agent: amp
        matrix:
          - repo: a
            prompt: x
            runs: 2
          - repo: b
            prompt: [y, z]
            model: own
        """)
    assert [item.model for item in read.items()] == ["d", "d", "e", "e", "own", "own"]
    assert str(read.place(0, "model")) == "plan.yaml:2:11"
    assert str(read.place(3, "model")) == "plan.yaml:2:14"
    assert str(read.place(5, "model")) == "plan.yaml:10:12"
    assert str(read.place(5, "prompt")) == "plan.yaml:9:17"
    assert str(read.place(4, "agent")) == "plan.yaml:3:10"
    assert str(read.place(4, "setup")) == "plan.yaml:8:5"
    assert str(read.under(Overrides(model="o")).place(0, "model")) == "plan.yaml:5:5"
    problem = read.problem(5, "model", "there is no model `own`", "Run `proctor models`.")
    assert str(problem) == (
        "plan.yaml:10:12: there is no model `own`\n  10 |     model: own\nRun `proctor models`."
    )
