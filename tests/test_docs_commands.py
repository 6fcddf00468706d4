"""Commands in the manual work: all are run, but for a short list of those that cannot; these are parsed."""

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from command_server import CommandServer
from proctor.cli.main import COMMANDS, _normalized
from project_tools import load_tool
from waiting import TIME_LIMIT_SECONDS

ROOT = Path(__file__).parents[1]


TOOL = load_tool("run_docs")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer) -> Path:
    """A folder with a program `proctor` that loads nothing again."""
    folder: Path = TOOL.write_program(tmp_path_factory.mktemp("bin"), command_server.program)
    return folder


@pytest.fixture(scope="module")
def models() -> Iterator[str]:
    """The address of a server that answers for models."""
    with TOOL.models_on_loopback() as address:
        yield address


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in TOOL.PAGES])
def test_the_output_in_the_manual_is_what_its_commands_print(page, programs, models, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")

    renewed = TOOL.PageRunner(tmp_path, programs, models).run(text)

    assert TOOL.shape(renewed).splitlines() == TOOL.shape(text).splitlines(), "run: make docs"


def test_each_job_has_a_tutorial_and_each_question_a_page_that_is_run() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in TOOL.PAGES if ROOT / "docs" in page.parents}

    jobs = ("benchmark", "coding", "dialogue", "evaluation", "scenario")
    questions = ("best-agent", "ci", "cluster", "production-sessions", "prompt-change")
    assert {f"tutorials/{job}.md" for job in jobs} | {f"howto/{name}.md" for name in questions} <= pages


def test_the_shape_of_output_keeps_words_and_drops_times_and_ids() -> None:
    first = "[1/2] success  8b63f230  slugs  1.6 s  $0.0133\nrun-20261116-085503-a28b: 2 items\n"
    second = "[1/2] success  00000001  slugs  1 min 03 s  $0.1\nrun-20261201-000000-ffff: 2 items\n"

    assert TOOL.shape(first) == TOOL.shape(second)
    assert TOOL.shape(first) != TOOL.shape(first.replace("success", "fail"))


def test_a_command_that_ends_badly_is_no_example(programs: Path, tmp_path: Path) -> None:
    runner = TOOL.PageRunner(tmp_path, programs)

    with pytest.raises(TOOL.DocsFailed, match="exit code 2 of: proctor show"):
        runner.run("```console\n$ proctor show nothing --no-such-option\n```\n")


MANUAL = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md"))
    # Written from the help of the commands.
    if page.name != "commands.md"
)
NOT_RUN = "not run: "


def _blocks() -> Iterator[tuple[str, str, str, str]]:
    """Page, notes, language and text of every fenced block of the manual."""
    for page in MANUAL:
        for block in TOOL.BLOCK.finditer(page.read_text("utf-8")):
            if block["setup"] is None:
                yield str(page.relative_to(ROOT)), block["notes"] or "", block["info"], block["body"]


def _commands_of(body: str) -> Iterator[str]:
    """The `proctor` commands of a block, without the name."""
    for line in re.sub(r"\\\n\s*(> )?", "", body).splitlines():
        match = re.match(r"(?:\$ |> |- |run: )*(?:[A-Z_]+=\S+ )*(?:\S*/)?proctor ((?:\S.*)?)$", line.strip())
        if match is not None and match[1].split(" ")[0] in COMMANDS:
            yield match[1]


def _command_lines() -> Iterator[tuple[str, str]]:
    """Every `proctor` command of the manual that is not run, and the page that has it."""
    for page, notes, language, body in _blocks():
        if notes.startswith(NOT_RUN) or language.startswith("yaml"):
            yield from ((page, line) for line in _commands_of(body))


def _inline_commands() -> Iterator[tuple[str, str]]:
    """Every whole `proctor` command within the text of the manual, and the page that has it."""
    for page in sorted([*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")]):
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
        for line in re.findall(r"`proctor (\w[^`…]*)`", text):
            # A command by its name alone has no arguments to check; `start|stop` names several.
            if (
                page.name != "commands.md"
                and " " in line
                and "|" not in line
                and line.split(" ")[0] in COMMANDS
            ):
                yield str(page.relative_to(ROOT)), line


def _words(line: str) -> list[str]:
    """The words behind `proctor`, up to a comment or another command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = []
    for word in lexer:
        if set(word) <= set("|&;") or word in (">", "2>"):
            break
        words.append(word)
    return words


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words call, and the words behind its name."""
    name, *words = _normalized(words)
    command: Any = typer.main.get_command(import_module(f"proctor.cli.{COMMANDS[name][0]}").apps[name])
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    return command, words


def test_every_command_is_run_or_has_a_reason_why_not() -> None:
    unknown, reasons = [], Counter[str]()
    for page, notes, language, body in _blocks():
        if notes.startswith(NOT_RUN):
            reasons[notes.removeprefix(NOT_RUN)] += 1
            assert language == "sh", f"{page}: a block that is not run is `sh`"
        # Steps of workflows have tests of their own.
        elif language not in ("console", "sh") and not language.startswith("yaml"):
            unknown += [f"{page}: proctor {line}" for line in _commands_of(body)]

    assert unknown == []
    assert set(reasons) == set(TOOL.NOT_RUN)
    assert reasons.total() <= 25, reasons


def test_commands_that_are_not_run_can_be_parsed() -> None:
    lines = sorted(set(_command_lines()))
    assert lines
    for page, line in lines:
        command, words = _command(_words(line))
        try:
            command.make_context("proctor", words)
        except typer.Exit:
            pass
        except Exception as error:
            raise AssertionError(f"{page}: proctor {line}\n{error}") from error


def test_commands_within_the_text_have_subcommands_and_options_that_exist() -> None:
    unknown = []
    for page, line in _inline_commands():
        command, words = _command(line.replace("[", "").replace("]", "").split())
        options = {"--json", "--store", "--home", "--help"}.union(
            *([*param.opts, *param.secondary_opts] for param in command.params)
        )
        used = [word.partition("=")[0] for word in words if word.startswith("--")]
        needs_subcommand = hasattr(command, "commands") and not command.invoke_without_command
        if needs_subcommand or not options.issuperset(used):
            unknown.append(f"{page}: proctor {line}")
    assert unknown == []


def test_commands_within_the_text_that_need_only_the_examples_are_run(programs: Path, tmp_path: Path) -> None:
    in_blocks = {
        line
        for _, notes, language, body in _blocks()
        if language in ("console", "sh") and not notes.startswith(NOT_RUN)
        for line in _commands_of(body)
    }
    lines = {line for _, line in _inline_commands() if " examples/" in line}
    assert lines & in_blocks, "these are run with their pages"
    for number, line in enumerate(sorted(lines - in_blocks)):
        folder = tmp_path / str(number)
        folder.mkdir()
        page = TOOL.PageRunner(folder, programs).run(f"```console\n$ proctor {line}\n```\n")
        assert len(page.splitlines()) > 3


def _titled(title: str) -> str:
    """The text of the file of this title on the page about continuous integration."""
    text = (ROOT / "docs" / "howto" / "ci.md").read_text("utf-8")
    return re.search(rf'^```yaml title="{re.escape(title)}"\n(.*?)^```', text, re.M | re.S)[1]


def _run_steps(steps: list[str], folder: Path, programs: Path, variables: dict[str, str]) -> list[int]:
    """Exit codes of the steps, in a shell that stops at the first failure as runners do."""
    codes = []
    for step in steps:
        done = subprocess.run(
            ["bash", "-e", "-c", step],
            cwd=folder,
            env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", **variables},
            capture_output=True,
            timeout=TIME_LIMIT_SECONDS,
        )
        codes.append(done.returncode)
    return codes


def test_the_workflow_for_github_gates_a_pull_request(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(_titled("plan.yaml"))
    steps = {
        step.get("name"): step["run"]
        for step in yaml.safe_load(_titled(".github/workflows/agents.yml"))["jobs"]["compare"]["steps"]
        if "run" in step
    }
    summary = str(tmp_path / "summary.md")

    pushed = _run_steps([steps["Run"]], tmp_path, programs, {"RUN": "main-1"})
    variables = {"RUN": "pr-1", "BASELINE": "main-1", "GITHUB_STEP_SUMMARY": summary}
    same = _run_steps([steps["Run"], steps["Compare"]], tmp_path, programs, variables)
    (tmp_path / "plan.yaml").write_text(_titled("plan.yaml").replace('regex: "."', 'equals: "nothing"'))
    worse = _run_steps([steps["Run"], steps["Compare"]], tmp_path, programs, {**variables, "RUN": "pr-2"})

    assert (pushed, same) == ([0], [0, 4])
    assert worse == [0, 1], "a regression fails the job"
    assert "success" in Path(summary).read_text()


def test_the_job_for_gitlab_gates_a_merge_request(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(_titled("plan.yaml"))
    install, *script = yaml.safe_load(_titled(".gitlab-ci.yml"))["agents"]["script"]

    pushed = _run_steps(script, tmp_path, programs, {"RUN": "main-1"})
    merge = _run_steps(script, tmp_path, programs, {"RUN": "mr-1", "BASELINE": "main-1"})

    assert install == "pip install 'proctor[postgres]'"
    assert (pushed, merge) == ([0, 0], [0, 4])
    assert "<testsuite" in (tmp_path / "gates.xml").read_text()
