"""The manual says what the product is: each name in the one is in the other."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor import __version__, config
from proctor.agent import Assignment
from proctor.agents import agent_names
from proctor.agents.command import OWN_EVENTS
from proctor.agents.scripted import KINDS
from proctor.cli.main import COMMANDS
from proctor.config import read_config
from proctor.dialogue import steps
from proctor.evaluators.criteria import rubric_names
from proctor.job import plan_schema
from proctor.jobs.coding.job import JOB as CODING
from proctor.jobs.coding.job import read_plan
from proctor.jobs.dialogue.plan import read_simulation
from proctor.jobs.dialogue.roles import RoleFile, Roles
from proctor.jobs.dialogue.schema import CONFIG_KEYS
from proctor.jobs.evaluation import state as evaluation
from proctor.jobs.evaluation.request import EvaluationPlan, EvaluationRequest, read_dataset, read_evaluation
from proctor.metric import METRICS
from proctor.models.providers import PROVIDERS
from proctor.models.scripted import parse_script
from proctor.plan.validate import names_of
from proctor.stats.results import PAIRINGS
from proctor.store.tables import COLUMNS
from project_tools import load_tool

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
RUNNERS = sorted(
    path.stem
    for path in (ROOT / "src/proctor/runners").glob("[!_]*.py")
    if f"class {path.stem.capitalize()}Runner" in path.read_text(encoding="utf-8")
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _fenced(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_command_manual_is_what_the_commands_say_now() -> None:
    for path, text in load_tool("write_command_manual").generated().items():
        assert path.read_text(encoding="utf-8") == text, "run: make docs"


def _plan_keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in parts:
        yield from _plan_keys(part)


def _reasons() -> list[str]:
    """Every reason that the code itself gives for the end of an attempt."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "proctor").rglob("*.py"))
    given = re.findall(r'\bOutcome\(status=\w+, reason="(\w+)"', source)
    return given + re.findall(r'^    reason = "(\w+)"', source, re.MULTILINE)


def _part(page: str, start: str, end: str) -> str:
    """What stands on a page between two texts."""
    return _text(page).partition(start)[2].partition(end)[0]


def _extras() -> set[str]:
    return set(tomllib.loads(_text("pyproject.toml"))["project"]["optional-dependencies"]) - {"dev"}


SETTINGS = {
    **{name: tuple(config.SETTINGS[f"{name}.*"]) for name in ("providers", "prices", "limits")},
    "limits]": tuple(config.SETTINGS["limits"]),
    "serve": (*config.SETTINGS["serve"], *config.SETTINGS["serve.tokens.*"]),
    "[watch]": tuple(config.SETTINGS["watch"]),
    **{name: tuple(config.SETTINGS[name]) for name in ("evaluation", "encryption", "budget")},
}
DIALOGUE_NAMES = (*CONFIG_KEYS, *RoleFile.model_fields, *steps.KINDS, *Roles().names(), *rubric_names())
STATES = (*evaluation.TERMINAL, evaluation.PENDING, evaluation.IN_PROGRESS)
MENTIONED: dict[str, tuple[Callable[[], Iterable[str]], str, Callable[[], str]]] = {
    "commands": (lambda: COMMANDS, "## proctor {}\n", lambda: _text("docs/commands.md")),
    "keys of a plan": (lambda: _plan_keys(plan_schema(CODING)), "`{}`", lambda: _text("docs/plans.md")),
    "reasons": (_reasons, "`{}`", lambda: _text("docs/record.md")),
    "runners": (lambda: RUNNERS, "`{}`", lambda: _part("docs/record.md", "\n| `runner` |", "\n")),
    "extras": (_extras, "`{}`", lambda: _part("README.md", "## Install", "\n## ")),
    "agents": (
        lambda: [name for name in agent_names() if ":" not in name],
        "| `{}` |",
        lambda: _text("docs/agents.md"),
    ),
    "steps of a script": (lambda: KINDS, "| `{}: ", lambda: _text("docs/agents.md")),
    "names of dialogues": (lambda: DIALOGUE_NAMES, "`{}`", lambda: _text("docs/dialogues.md")),
    "keys of an evaluation": (lambda: names_of(EvaluationPlan), "`{}`", lambda: _text("docs/evaluation.md")),
    "states of an evaluation": (lambda: STATES, "| `{}` |", lambda: _text("docs/evaluation.md")),
    "metrics and pairings": (lambda: (*METRICS, *PAIRINGS), "`{}`", lambda: _text("docs/comparing.md")),
}
"""Names in the code, how they are written, and the text that has them."""


@pytest.mark.parametrize("names", MENTIONED)
def test_each_name_of_the_code_is_in_the_manual(names: str) -> None:
    find, form, text = MENTIONED[names]
    found = sorted(set(find()))
    assert found
    assert [name for name in found if form.format(name) not in text()] == []


def test_each_command_is_in_the_readme() -> None:
    readme = _text("README.md")
    assert [name for name in COMMANDS if not re.search(rf"`(proctor )?{name}\b", readme)] == []


def test_each_table_and_column_is_in_the_record() -> None:
    record = _text("docs/record.md")
    assert COLUMNS
    for table, columns in COLUMNS.items():
        own = re.search(rf"^## ({table}: .*?)(^## |\Z)", record, re.MULTILINE | re.DOTALL)
        described = own[1] if own else record

        missing = [column for column in columns if f"`{column}`" not in described]

        assert f"`{table}`" in record or own, table
        assert missing == [], table


@pytest.mark.parametrize("section", SETTINGS)
def test_each_section_of_the_settings_file_is_in_one_table(section: str) -> None:
    table = _part("docs/models.md", "| section | setting |", "\n\n")
    rows = table.partition(f"| `[{section}")[2].partition("\n| `[")[0]

    assert [name for name in SETTINGS[section] if f"`{name}`" not in rows] == []


def test_each_provider_is_in_the_manual_with_the_variables_it_reads() -> None:
    for name, provider in PROVIDERS.items():
        row = _part("docs/models.md", f"\n| `{name}` |", "\n")
        assert row, name
        variables = (*provider.key_variables, *provider.base_variables)
        assert [variable for variable in variables if f"`{variable}`" not in row] == []


@pytest.mark.parametrize("page", NAMES)
def test_plans_in_the_manual_can_be_read(page: str, tmp_path: Path) -> None:
    for number, plan in enumerate(_fenced(_text(page), "yaml plan"), 1):
        read = read_plan(plan, file=f"{page}#{number}", folder=tmp_path, home=tmp_path)
        assert read.item_count > 0


def test_the_grid_in_the_manual_comes_to_the_items_it_says(tmp_path: Path) -> None:
    text = _text("docs/plans.md")
    grid = next(plan for plan in _fenced(text, "yaml plan") if "exclude:" in plan)

    read = read_plan(grid, file="grid", folder=tmp_path, home=tmp_path)

    assert f"so {read.item_count} items" in text


def test_the_scripted_model_in_the_manual_answers() -> None:
    (script,) = _fenced(_text("docs/models.md"), "yaml")
    assert len(parse_script("scripted/manual", yaml.safe_load(script)).rules) == 3


def test_the_settings_file_in_the_manual_can_be_read(tmp_path: Path) -> None:
    (settings,) = _fenced(_text("docs/models.md"), "toml")
    (tmp_path / "proctor.toml").write_text(settings)

    read = read_config([tmp_path], {"ACME_TOKEN": "a key"})

    assert read.variables == {
        "ACME_BASE_URL": "https://models.acme.example/v1",
        "ACME_KEY_VARIABLE": "ACME_TOKEN",
    }
    assert read.prices["acme/large"] == {"input": 2.0, "cached": 0.5, "output": 8.0}
    assert read.limits == {"acme": 8}


async def test_the_agent_in_the_manual_works(tmp_path: Path) -> None:
    (source,) = _fenced(_text("docs/agents.md"), "python")
    module: dict[str, Any] = {"__name__": "parrot"}
    exec(compile(source, "docs/agents.md", "exec"), module)
    said: list[Any] = []
    assignment = Assignment(
        prompt="hello", folder=tmp_path, home=tmp_path, environment={}, attempt="1", model=""
    )

    done = await module["Parrot"](voice="loud").work(assignment, said.append)

    assert done.exit_code == 0
    assert said[0].content == "loud: hello"
    assert (tmp_path / "SAID.md").read_text() == "hello"


def test_event_lines_in_the_manual_are_the_ones_that_are_read() -> None:
    (lines,) = _fenced(_text("docs/agents.md"), "json")
    assert [json.loads(line)["type"] for line in lines.splitlines()] == list(OWN_EVENTS)


@pytest.mark.parametrize("page", NAMES)
def test_every_link_leads_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", _text(page), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        assert not path.startswith("http"), f"{target}: the manual needs no network"
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), f"{page}: {target}"
        if heading:
            assert heading in _headings(found.read_text(encoding="utf-8")), f"{page}: {target}"


def _headings(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    index = _text("docs/README.md")
    pages = [name for name in NAMES if name.startswith("docs/") and "README" not in name]

    assert pages
    assert [page for page in pages if f"({Path(page).relative_to('docs')})" not in index] == []


def test_the_version_is_the_same_everywhere() -> None:
    assert yaml.safe_load(_text("CITATION.cff"))["version"] == __version__
    assert tomllib.loads(_text("pyproject.toml"))["project"]["version"] == __version__


def test_the_simulations_in_the_manual_can_be_read(tmp_path: Path) -> None:
    plans = _fenced(_text("docs/dialogues.md"), "yaml")
    config, judged = (next(text for text in plans if part in text) for part in ("clients:", "passes_at"))

    def read(text: str) -> Any:
        return read_simulation(text, {}, file="page", folder=tmp_path, roles=Roles())

    assert read(config).item_count == 40
    assert len(read(judged).evaluators) == 9
    names = [each["name"] for each in read(judged).evaluators_by_name]
    assert names == ["Builtin.Helpfulness", "manners:thanks", "evaluators/warmth.yaml"]


def test_the_evaluation_and_the_dataset_in_the_manual_can_be_read() -> None:
    plan, dataset = _fenced(_text("docs/evaluation.md"), "yaml")

    request = EvaluationRequest.from_document(read_evaluation(plan, file="manual"))

    assert (request.name, request.votes, request.retries) == ("nightly", 3, 1)
    assert read_dataset(dataset, file="manual").name == "travel@3"
