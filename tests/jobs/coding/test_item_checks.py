"""What the preflight of a coding plan looks up, and what it says of each thing that is missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.item import Item
from proctor.jobs.coding import job
from proctor.jobs.coding.job import ItemCheck, inspect
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
            result = inspect(plan, overrides, context())
        assert len(seen) == 1 and result.items == 1
        return [f"{each.at.line}: {each.problem} | {each.remedy}" for each in result.problems]

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
