"""`proctor init`, and what it proposes next, leads to a first result in each kind of repository."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.testing import make_git_repository

PYTEST = """
import pathlib, runpy
for file in sorted(pathlib.Path("tests").glob("test_*.py")) if __name__ == "__main__" else ():
    for name, test in runpy.run_path(str(file)).items():
        if name.startswith("test_"):
            test()
"""
REPOSITORIES: dict[str, dict[str, str]] = {
    "python3": {
        "pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n[tool.pytest.ini_options]\n',
        "src/shop.py": "def total(prices): return sum(prices)\n",
        "tests/test_shop.py": "import shop\ndef test_total(): assert shop.total([1, 2]) == 3\n",
        ".gitignore": ".venv\n",
    },
    "npm": {
        "package.json": json.dumps(
            {"name": "shop", "scripts": {"test": "node --test"}, "dependencies": {"sums": "file:./sums"}}
        ),
        "sums/package.json": json.dumps({"name": "sums", "version": "1.0.0"}),
        "sums/index.js": "module.exports = (prices) => prices.reduce((a, b) => a + b, 0);\n",
        "test/shop.test.js": """
            const sum = require("sums");
            require("node:test")("total", () => require("assert").equal(sum([1, 2]), 3));
        """,
        ".gitignore": "node_modules\n",
    },
    "cargo": {
        "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "#[test]\nfn adds() { assert_eq!([1, 2].iter().sum::<i32>(), 3); }\n",
        ".gitignore": "target\n",
    },
    "go": {
        "go.mod": "module shop\n\ngo 1.19\n",
        "shop.go": "package shop\n\nfunc Total(a, b int) int { return a + b }\n",
        "shop_test.go": """
            package shop
            import "testing"
            func TestTotal(t *testing.T) { if Total(1, 2) != 3 { t.Fatal() } }
        """,
    },
    "make": {"Makefile": "test:\n\ttest -f total.sh\n", "total.sh": "echo 3\n"},
}
CHECKS = {
    "python3": "env PYTHONPATH=src {folder}/.venv/bin/python -m pytest -q",
    "npm": "node --test",
    "cargo": "cargo test",
    "go": "go test ./...",
    "make": "make test",
}


def give_environment(repository: Path, programs: Path) -> None:
    """A virtual environment with pytest, which the Python on the PATH lacks."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repository / ".venv"], check=True)
    (packages,) = (repository / ".venv").glob("lib/python*/site-packages")
    (packages / "pytest.py").write_text(PYTEST)
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S "$@"\n')
    (programs / "python3").chmod(0o755)


@pytest.mark.parametrize("tool", REPOSITORIES)
def test_a_first_plan_leads_to_a_first_result_without_a_key(proctor: Any, tmp_path: Path, tool: str) -> None:
    if shutil.which(tool, path=proctor.environment["PATH"]) is None:
        pytest.skip(f"{tool} is not installed")
    proctor.folder = repository = make_git_repository(tmp_path / "shop", REPOSITORIES[tool])
    if tool == "python3":
        give_environment(repository, tmp_path / "bin")
        proctor.environment["PATH"] = f"{tmp_path / 'bin'}:{proctor.environment['PATH']}"

    # The home of a test has no toolchains.
    proctor.environment |= {"RUSTUP_HOME": str(Path("~/.rustup").expanduser())} if tool == "cargo" else {}

    made = proctor("init", "--yes")
    dry = proctor("batch", "proctor-plan.yaml", "--dry-run")
    run = proctor("batch", "proctor-plan.yaml", "--json")

    plan = yaml.safe_load((repository / "proctor-plan.yaml").read_text())
    assert plan["defaults"]["scriptCommand"] == CHECKS[tool].format(folder=repository)
    assert ("setup" in plan["defaults"]) == (tool == "npm")
    assert "note: the plan uses the mock `scripted`" in made.stderr
    assert "does not run yet" not in made.stderr
    assert (made.returncode, dry.returncode) == (0, 0), made.stderr + dry.stderr
    assert json.loads(run.stdout)["successCount"] == 2, run.stdout + run.stderr


def test_agents_of_a_first_plan_have_models_whose_keys_are_set(proctor: Any, tmp_path: Path) -> None:
    proctor.folder = repository = make_git_repository(tmp_path / "shop", REPOSITORIES["make"])
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("claude", "codex", "gemini"):
        (programs / name).write_text("#!/bin/sh\necho 1.0\n")
        (programs / name).chmod(0o755)
    proctor.environment |= {
        "PATH": f"{programs}:{proctor.environment['PATH']}",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_API_KEY": "k",
    }

    made = proctor("init", "--yes")
    dry = proctor("batch", "proctor-plan.yaml", "--dry-run")

    entries = yaml.safe_load((repository / "proctor-plan.yaml").read_text())["matrix"]
    models = {agent: entry["model"] for entry in entries for agent in entry["agent"]}
    assert {name: models[name] for name in ("claude", "codex", "gemini")} == {
        "claude": "anthropic/claude-sonnet-4-5",
        "codex": "openai/gpt-5",
        "gemini": "openai/gpt-5",
    }
    assert (made.returncode, dry.returncode) == (0, 0), made.stderr + dry.stderr


def test_what_a_first_plan_lacks_here_is_said_at_once(proctor: Any, tmp_path: Path) -> None:
    proctor.folder = make_git_repository(tmp_path / "shop", REPOSITORIES["make"])

    made = proctor("init", "--yes", "--models", "openai/gpt-5")

    assert made.returncode == 0
    assert "note: the plan does not run yet:" in made.stderr
    assert "OPENAI_API_KEY is not set" in made.stderr


def test_a_first_prompt_gets_a_first_answer_without_a_key(proctor: Any, tmp_path: Path) -> None:
    made = proctor("init", "--yes")
    run = proctor("batch", "proctor-plan.yaml", "--json")

    assert made.returncode == 0, made.stderr
    assert json.loads(run.stdout)["successCount"] == 3, run.stdout + run.stderr
