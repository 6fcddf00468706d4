"""What the preflight of a coding plan looks up, and what it says of each thing that is missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import PlanError, UsageError
from proctor.item import Item
from proctor.jobs.coding import job
from proctor.jobs.coding.job import ItemCheck
from proctor.jobs.coding.plan import NO_OVERRIDES, Overrides, read_plan
from proctor.testing import make_git_repository


class Models:
    """Knows one model, without a price."""

    def check(self, model: str) -> None:
        if model != "scripted/ok":
            raise UsageError(f"there is no {model}")

    def missing_key(self, model: str) -> str:
        return ""

    def has_price(self, model: str) -> bool:
        return False


def context(**environment: str) -> Any:
    return SimpleNamespace(models=Models(), environment={"PATH": "/usr/bin:/bin", **environment})


def found(method: str, *given: Any, **environment: str) -> list[Any]:
    check = ItemCheck(context(**environment), has_budget=False)
    return list(getattr(check, method)(*given))


def test_a_budget_needs_a_price_and_a_plan_without_one_does_not(tmp_path: Path) -> None:
    def problems(text: str, overrides: Overrides = NO_OVERRIDES) -> list[str]:
        plan = read_plan(
            f"{text}matrix: [{{prompt: hi, model: openai/gpt-4o-unpriced}}]\n",
            file="plan.yaml",
            folder=tmp_path,
        )
        seen: list[Any] = []

        def check_model(model: str, models: object, *, needs_price: bool) -> list[tuple[str, str]]:
            seen.append(needs_price)
            return [("no price", "Add one.")] if needs_price else []

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "check_model", check_model)
            given = context()
            settings = SimpleNamespace(user_environment=given.environment, confinement=None)
            ctx: Any = SimpleNamespace(settings=settings, find_agent=None)
            try:
                job.CodingJobPlan(plan, overrides, "plan.yaml", (tmp_path,)).check(given.models, ctx)
                found = []
            except PlanError as error:
                found = [f"{each.at.line}: {each.problem} | {each.remedy}" for each in error.problems]
        assert len(seen) == 1
        return found

    assert problems("") == []
    assert problems("budget: 5\n") == ["2: no price | Add one."]
    assert problems("", Overrides(budget_usd=1)) == ["1: no price | Add one."]


def test_a_program_is_missing_unless_a_setup_installs_it() -> None:
    assert found("_command", "scriptCommand", "no-such-program --x", False) == [
        (
            "scriptCommand",
            "there is no program `no-such-program`, with which `no-such-program --x` begins",
            "Install no-such-program, or add a `setup` command that does.",
        )
    ]
    assert found("_command", "setup", "sh -c true", False) == []
    check = ItemCheck(context(), has_budget=False)
    assert list(check._command("scriptCommand", "no-such-program", True)) == []
    assert check.remarks == {
        "there is no program `no-such-program`, with which `no-such-program` begins; `setup` must install it"
    }


def test_variables_are_set_and_secrets_are_not_written_out() -> None:
    assert found("_variables", (("A", "${HOME_OF_A}"),)) == [
        ("env", "`A` refers to HOME_OF_A, which is not set", "Set it: export HOME_OF_A=…")
    ]
    assert found("_variables", (("A", "${HOME_OF_A}"),), HOME_OF_A="x") == []
    assert found("_variables", (("API_KEY", "0123456789abcdef"),)) == [
        (
            "env",
            "`API_KEY` looks like a secret that is written out",
            "What a plan holds is stored. Write `API_KEY: ${API_KEY}` and set it outside.",
        )
    ]
    assert found("_variables", (("API_KEY", "short"), ("NAME", "0123456789abcdef"))) == []
    assert found("_variables", (("API_KEY", "prefix ${MINE} suffix"),), MINE="x") == []


def test_a_repository_and_its_branch_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_git_repository(tmp_path / "shop", {"a.py": "1\n"})
    assert found("_repository", str(repository), "main") == []
    ((key, problem, remedy),) = found("_repository", str(tmp_path), "main")
    assert (key, remedy) == ("repo", "Give the path of a git repository.") and str(tmp_path) in problem
    ((key, problem, remedy),) = found("_repository", str(repository), "lost")
    assert key == "baseBranch" and "lost" in problem and "main" in remedy
    from proctor.workspace import source_repository

    asked: list[Any] = []
    monkeypatch.setattr(
        source_repository,
        "address_problem",
        lambda repo, environment, base: (
            asked.append((repo, base)) or ("it has no lost" if base == "lost" else "")
        ),
    )
    address = "https://example.org/shop.git"
    assert found("_repository", address, "main") == []
    assert found("_repository", address, "lost") == [
        ("repo", "it has no lost", "Check the address, and that git can read it without a question.")
    ]
    assert asked == [(address, "main"), (address, "lost")]


def test_each_thing_is_looked_up_once() -> None:
    check = ItemCheck(context(), has_budget=False)
    item = Item(runner="prompt", prompt="hi", model="scripted/lost", details={"env": {"A": "${UNSET}"}})
    first = list(check.at(item))
    assert [key for key, *_ in first] == ["model", "env"]
    assert list(check.at(item)) == []
    other = Item(runner="prompt", prompt="hi", model="scripted/other")
    assert [key for key, *_ in check.at(other)] == ["model"]


@pytest.mark.parametrize("level", ["defaults:", "matrix:\n-"])
def test_a_setting_that_is_invalid_is_not_checked_further(tmp_path: Path, level: str) -> None:
    def problems(expect: str) -> list[str]:
        text = f"{level}\n  expect: {expect}\n" + (
            "" if level.startswith("matrix") else "matrix: [{prompt: a}]\n"
        )
        text = text.replace("-\n  expect", "- prompt: a\n  expect")
        with pytest.raises(PlanError) as error:
            read_plan(text, file="plan.yaml", folder=tmp_path)
        return [each.problem for each in error.value.problems]

    (schema,) = problems("{json_schema: {type: 3}}")
    assert "is not a valid JSON schema" in schema
    (shape,) = problems("{regex: 5, json_schema: {type: 3}}")
    assert "should be text, not the number 5" in shape


def test_a_problem_of_an_item_stands_at_the_value_that_it_has(tmp_path: Path) -> None:
    text = """\
defaults:
  model: [m/a, m/b]
  tags: [x]
matrix:
- prompt: [one, two]
- {prompt: three, model: m/c, retries: 3}
"""
    plan = read_plan(text, file="plan.yaml", folder=tmp_path)

    def place(position: int, key: str, overrides: Overrides = NO_OVERRIDES) -> tuple[int, int]:
        found = plan.place(position, key, overrides)
        return found.line, found.column

    prompts = [item.prompt for item in plan.items()]
    models = [item.model for item in plan.items()]
    for position in range(4):
        column = {"one": 12, "two": 17}[prompts[position]]
        assert place(position, "prompt") == (5, column)
        assert place(position, "model") == (2, {"m/a": 11, "m/b": 16}[models[position]])
    assert (prompts[4], models[4]) == ("three", "m/c")
    assert place(4, "prompt") == (6, 12) and place(4, "model") == (6, 26)
    assert place(4, "retries") == (6, 40) and place(0, "retries") == (5, 3)
    assert place(0, "tags") == (3, 9)
    assert place(0, "model", Overrides(model="m/z")) == (5, 3)
