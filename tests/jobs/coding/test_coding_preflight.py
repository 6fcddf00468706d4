"""What the preflight of a coding plan looks up, and what it says of each thing that is missing."""

import re
from typing import Any

import pytest

from proctor.testing import make_git_repository

PLAN = """\
budget: 5
matrix:
  - {prompt: [a, again], model: scripted/lost}
  - {prompt: b, model: openai/gpt-4o}
  - {prompt: c, model: openai/of-no-price}
  - {repo: shop, prompt: d, command: "true", baseBranch: lost}
  - {repo: plain, prompt: e, command: "true"}
  - {repo: shop, prompt: f, command: "true", scriptCommand: none --x}
  - {repo: shop, prompt: g, command: "true", scriptCommand: later --y, setup: "true"}
  - repo: shop
    prompt: h
    command: "true"
    env: {A: "${NOT_SET}", B: "${HOME}", API_KEY: 0123456789abcdef, TOKEN: short, NAME: 0123456789abcdef}
  - {repo: shop, prompt: i, agent: amp, model: gpt-9}
"""


def test_everything_that_is_missing_is_told_at_its_place_with_a_remedy(proctor: Any) -> None:
    make_git_repository(proctor.folder / "shop", {"a.py": "1\n"})
    (proctor.folder / "plain").mkdir()
    (proctor.folder / "amp").write_text("#!/bin/sh\necho Usage\n")
    (proctor.folder / "amp").chmod(0o755)
    proctor.environment["PATH"] += f":{proctor.folder}"
    (proctor.folder / "plan.yaml").write_text(PLAN)

    done = proctor("batch", "plan.yaml", "--dry-run")

    assert done.returncode == 2
    text = done.stderr.removeprefix("proctor: ").replace(f"{proctor.folder}", "FOLDER")
    problems = [re.sub(r"\n +\d+ \|.*", "", each).strip() for each in text.split("\n\n")]
    no_key = "needs a key, and OPENAI_API_KEY is not set\nSet it: export OPENAI_API_KEY=…"
    assert problems[0].startswith("plan.yaml:3:33: there is no script `lost` in FOLDER")
    plain = problems.pop(5)
    assert plain.startswith("plan.yaml:7:12: FOLDER/plain is not a git repository: fatal: ")
    assert plain.endswith("\nGive the path of a git repository.")
    assert problems[1:] == [
        f"plan.yaml:4:24: openai/gpt-4o {no_key}",
        f"plan.yaml:5:24: openai/of-no-price {no_key}",
        "plan.yaml:5:24: no price is known for openai/of-no-price, so the budget cannot be enforced\n"
        "Declare it:  prices: {openai/of-no-price: {input: 1.0, output: 2.0}}  (USD per million tokens).",
        "plan.yaml:6:58: FOLDER/shop has no branch, tag or commit `lost`\nBranches: main",
        "plan.yaml:8:61: there is no program `none`, with which `none --x` begins\n"
        "Install none, or add a `setup` command that does.",
        "plan.yaml:13:10: `A` refers to NOT_SET, which is not set\nSet it: export NOT_SET=…",
        "plan.yaml:13:10: `API_KEY` looks like a secret that is written out\n"
        "What a plan holds is stored. Write `API_KEY: ${API_KEY}` and set it outside.",
        "plan.yaml:14:36: the agent amp cannot be used here: AMP_API_KEY is not set\n"
        "Set AMP_API_KEY to an access token from Amp's settings page.",
        "plan.yaml:14:48: the installed amp cannot be asked for `gpt-9`: it chooses models by its mode\n"
        "Remove `model`, or set it to a mode of this version: none.",
    ]


@pytest.mark.parametrize("budget", ["", "budget: 5\n"])
def test_a_price_is_needed_for_a_budget_alone_and_a_setup_may_install_a_program(proctor, budget):
    make_git_repository(proctor.folder / "shop", {"a.py": "1\n"})
    later = "{repo: shop, prompt: a, command: 'true', scriptCommand: later --y, setup: 'true'}"
    (proctor.folder / "plan.yaml").write_text(
        f"{budget}matrix: [{{prompt: c, model: openai/of-no-price}}, {later}]\n"
    )

    done = proctor("batch", "plan.yaml", "--dry-run", environment={"OPENAI_API_KEY": "k"})

    assert ("no price is known" in done.stderr, done.returncode) == ((True, 2) if budget else (False, 0))
    installs = "there is no program `later`, with which `later --y` begins; `setup` must install it"
    assert (installs in done.stderr) is not bool(budget)


def test_a_problem_under_an_override_is_at_the_setting_of_its_item(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "defaults: {model: [scripted/ok, scripted/echo]}\n"
        "matrix:\n"
        "  - {prompt: p}\n"
        "  - {prompt: q, model: nope/missing}\n"
    )

    refused = proctor("batch", "plan.yaml", "--dry-run", "--model", "scripted/ok")

    assert "plan.yaml:4:24: there is no provider `nope`" in refused.stderr
