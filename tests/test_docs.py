"""The manual says what the product is: each name in the one is in the other."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.agents import agent_names
from proctor.agents.scripted import KINDS
from proctor.cli.main import COMMANDS
from proctor.config import ENCRYPTION, EVALUATION, SECTIONS, SERVE, TOKEN, WATCH
from proctor.dialogue import steps
from proctor.evaluators.judging import rubric_names
from proctor.jobs.coding.plan import read_plan
from proctor.jobs.coding.schema import json_schema
from proctor.jobs.dialogue.plan import read_simulation
from proctor.jobs.dialogue.roles import ROLE_KEYS, Roles
from proctor.jobs.dialogue.schema import CONFIG_KEYS
from proctor.jobs.evaluation import state as evaluation
from proctor.jobs.evaluation.ground_truth import read_dataset
from proctor.jobs.evaluation.request import EvaluationPlan, EvaluationRequest, read_evaluation
from proctor.metric import METRICS
from proctor.models.providers import PROVIDERS
from proctor.plan.validate import names_of
from proctor.stats.results import PAIRINGS
from proctor.store.tables import COLUMNS

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


def _manual() -> Any:
    spec = importlib.util.spec_from_file_location("manual", ROOT / "tools" / "write_command_manual.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_manual_is_what_the_commands_say_now() -> None:
    for path, text in _manual().generated().items():
        assert path.read_text(encoding="utf-8") == text, "run: make docs"


def test_each_command_is_in_the_manual_and_in_the_readme() -> None:
    manual, readme = _text("docs/commands.md"), _text("README.md")

    assert COMMANDS
    assert [name for name in COMMANDS if f"## proctor {name}\n" not in manual] == []
    assert [name for name in COMMANDS if not re.search(rf"`(proctor )?{name}\b", readme)] == []


def _plan_keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _plan_keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _plan_keys(part)


def test_each_key_of_a_plan_is_in_its_reference() -> None:
    reference, keys = _text("docs/plans.md"), sorted(set(_plan_keys(json_schema())))

    assert keys
    assert [key for key in keys if f"`{key}`" not in reference] == []


def test_each_table_and_column_is_in_the_record() -> None:
    record = _text("docs/record.md")
    assert COLUMNS
    for table, columns in COLUMNS.items():
        own = re.search(rf"^## ({table}: .*?)(^## |\Z)", record, re.MULTILINE | re.DOTALL)
        described = own[1] if own else record

        missing = [column for column in columns if f"`{column}`" not in described]

        assert f"`{table}`" in record or own, table
        assert missing == [], table


def _reasons() -> Iterator[str]:
    """Every reason that the code itself gives for the end of an attempt."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "proctor").rglob("*.py"))
    yield from re.findall(r'\bOutcome\(status=\w+, reason="(\w+)"', source)
    yield from re.findall(r'^    reason = "(\w+)"', source, re.MULTILINE)


def test_each_reason_an_item_ends_for_is_in_the_record() -> None:
    record, reasons = _text("docs/record.md"), sorted(set(_reasons()))

    assert reasons
    assert [reason for reason in reasons if f"`{reason}`" not in record] == []


def test_each_runner_is_in_the_record() -> None:
    row = re.search(r"^\| `runner` \|.*", _text("docs/record.md"), re.MULTILINE)[0]
    assert RUNNERS and [runner for runner in RUNNERS if f"`{runner}`" not in row] == []


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        *SECTIONS.items(),
        ("serve", (*SERVE, "access_keys", "tokens", *TOKEN)),
        ("evaluation", EVALUATION),
        ("[watch]", WATCH),
        ("encryption", ENCRYPTION),
        ("budget", ("usd",)),
    ],
)
def test_each_section_of_the_settings_file_is_in_one_table(section: str, settings: tuple[str, ...]) -> None:
    table = _text("docs/models.md").partition("| section | setting |")[2].partition("\n\n")[0]
    rows = table.partition(f"| `[{section}")[2].partition("\n| `[")[0]

    assert [name for name in settings if f"`{name}`" not in rows] == []


def test_each_extra_that_users_may_install_is_in_the_readme() -> None:
    extras = tomllib.loads(_text("pyproject.toml"))["project"]["optional-dependencies"]
    install = _text("README.md").partition("## Install")[2].partition("\n## ")[0]

    assert [name for name in extras if name != "dev" and f"`{name}`" not in install] == []


def test_each_agent_is_in_the_manual() -> None:
    manual, agents = _text("docs/agents.md"), [name for name in agent_names() if ":" not in name]

    assert agents
    assert [agent for agent in agents if f"| `{agent}` |" not in manual] == []


def test_each_step_of_a_script_is_in_the_manual() -> None:
    manual = _text("docs/agents.md")
    assert [step for step in KINDS if f"| `{step}: " not in manual] == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_is_in_the_manual_with_the_variables_it_reads(provider: str) -> None:
    row = re.search(rf"^\| `{provider}` \|.*$", _text("docs/models.md"), re.MULTILINE)

    assert row is not None
    for variable in (*PROVIDERS[provider].key_variables, *PROVIDERS[provider].base_variables):
        assert f"`{variable}`" in row[0]


@pytest.mark.parametrize("page", NAMES)
def test_plans_in_the_manual_can_be_read(page: str, tmp_path: Path) -> None:
    for number, plan in enumerate(_fenced(_text(page), "yaml plan"), 1):
        read = read_plan(plan, file=f"{page}#{number}", folder=tmp_path, home=tmp_path)
        assert read.item_count() > 0


def test_the_grid_in_the_manual_comes_to_the_items_it_says(tmp_path: Path) -> None:
    text = _text("docs/plans.md")
    grid = next(plan for plan in _fenced(text, "yaml plan") if "exclude:" in plan)

    read = read_plan(grid, file="grid", folder=tmp_path, home=tmp_path)

    assert f"so {read.item_count()} items" in text


def test_the_scripted_model_in_the_manual_answers() -> None:
    import yaml

    from proctor.models.scripted import parse_script

    (script,) = _fenced(_text("docs/models.md"), "yaml")
    assert len(parse_script("scripted/manual", yaml.safe_load(script)).rules) == 3


def test_the_settings_file_in_the_manual_can_be_read(tmp_path: Path) -> None:
    from proctor.config import read_config

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
    from proctor.agent import Assignment

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
    from proctor.agents.command import OWN_EVENTS

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
    import yaml

    from proctor import __version__

    assert yaml.safe_load(_text("CITATION.cff"))["version"] == __version__
    assert tomllib.loads(_text("pyproject.toml"))["project"]["version"] == __version__


def test_each_name_of_dialogues_is_on_their_page() -> None:
    page = _text("docs/dialogues.md")
    for names in (CONFIG_KEYS, ROLE_KEYS, steps.KINDS, Roles().names(), rubric_names()):
        assert names
        assert [name for name in names if f"`{name}`" not in page] == []


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


def test_each_name_of_evaluations_and_comparisons_is_in_the_manual() -> None:
    manual, comparing = _text("docs/evaluation.md"), _text("docs/comparing.md")
    states = [*evaluation.TERMINAL, evaluation.PENDING, evaluation.IN_PROGRESS]
    assert [key for key in names_of(EvaluationPlan) if f"`{key}`" not in manual] == []
    assert [state for state in states if f"| `{state}` |" not in manual] == []
    assert [name for name in (*METRICS, *PAIRINGS) if f"`{name}`" not in comparing] == []
