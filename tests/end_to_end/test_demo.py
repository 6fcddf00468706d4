"""`make demo`: what a newcomer sees first."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.request import Request, urlopen

import pytest

from command_server import CommandServer
from loopback import Posted, posted_to
from waiting import TIME_LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "examples" / "demo" / "run.py"), "demo"]


def answer(posted: Posted) -> dict[str, object]:
    """As the server of the small model: the sky is blue, whatever the question."""
    assert posted.document["model"] == "smollm2"
    said = {"role": "assistant", "content": "It is blue."}
    usage = {"prompt_tokens": 30, "completion_tokens": 4}
    return {"choices": [{"message": said, "finish_reason": "stop"}], "usage": usage}


@pytest.fixture(scope="module")
def small_model() -> Iterator[str]:
    with posted_to(answer) as server:
        yield f"{server.url}/v1"


def _run(
    command: list[str] | str, folder: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **variables}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        shell=isinstance(command, str),
    )


def _forks(folder: Path, command_server: CommandServer, *, more: str = "") -> dict[str, str]:
    """Variables with which `proctor` and `python -m proctor` are forks of a process that has loaded it."""
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"_, *words = sys.orig_argv\n{more}"
        "if words[:2] == ['-m', 'proctor'] or words[0].endswith('/proctor'):\n"
        f"    program = {command_server.program}\n"
        "    os.execv(program[0], [*program, *words[1 + (words[0] == '-m') :]])\n"
    )
    return {"PYTHONPATH": str(folder)}


Demo = tuple[Path, "subprocess.CompletedProcess[str]", dict[str, str]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, small_model: str, command_server: CommandServer) -> Demo:
    """The folder, what was printed, and the variables of the commands."""
    folder = tmp_path_factory.mktemp("demo")
    # What an earlier run left is replaced.
    (folder / "demo" / "home").mkdir(parents=True)
    (folder / "demo" / "home" / "left").touch()
    shutil.copy(ROOT / "examples" / "demo" / "plan.yaml", folder / "demo")
    shutil.copytree(ROOT / "examples" / "demo" / "repos", folder / "demo" / "repos")
    (folder / "demo" / "repos" / "slugs" / "left.py").touch()
    variables = _forks(tmp_path_factory.mktemp("forks"), command_server)
    done = _run(PROGRAM, folder, {**variables, "LOCAL_BASE_URL": small_model})
    assert done.returncode == 0, done.stderr
    assert not list(folder.rglob("left*"))
    return folder, done, variables


def test_the_demonstration_ends_well_and_says_why_the_batch_did_not(demo) -> None:
    folder, done, _ = demo

    assert "3 of 6 items succeeded, 3 failed" in done.stderr
    assert "exit code 1" in done.stdout
    assert done.stderr.count("1 of 10 items succeeded, 9 failed") == 2
    assert "customer_support: 1 of 1 successful" in done.stderr
    assert "Baseline: questions; paired by item; varies: system" in done.stdout + done.stderr
    report = (folder / "demo" / "report.html").read_text()
    assert "careful" in report and "hasty" in report and "scripted or replayed models" in report
    assert not re.search(r"(src|href)=[\"']https?:", report), "it needs nothing else"
    difference = re.search(r"git -C .+", done.stdout)
    assert difference is not None and "+" in _run(shlex.split(difference[0]), folder).stdout


def test_where_the_model_cannot_be_installed_it_says_so_and_goes_on(tmp_path, command_server):
    # As in an environment without the runtime of the model, whatever is installed here.
    missing = "if 'models' in words:\n    sys.modules['xllamacpp'], words = None, ['']\n"
    variables = _forks(tmp_path, command_server, more=missing)

    done = _run(PROGRAM, tmp_path, variables)

    assert done.returncode == 0, done.stderr
    assert "`local/smollm2` needs xllamacpp" in done.stdout
    assert "pip install 'proctor[local]'" in done.stdout
    assert "The demo goes on without the small model." in done.stdout
    assert "varies: model" in done.stdout + done.stderr
    assert "All of it in the browser" in done.stdout
    assert "The dialogue:" not in done.stdout


def test_it_touches_neither_the_checkouts_nor_their_branches(demo) -> None:
    folder, *_ = demo
    for repository in ("slugs", "shares", "dates"):
        checkout = folder / "demo" / "repos" / repository
        assert _run(["git", "status", "--porcelain"], checkout).stdout == ""
        assert _run(["git", "rev-parse", "--abbrev-ref", "HEAD"], checkout).stdout == "main\n"
        assert len(_run(["git", "log", "--format=%h", "main"], checkout).stdout.split()) == 1


def test_every_command_it_ends_with_works(demo) -> None:
    folder, done, variables = demo
    told = dict(re.findall(r"^(\S[^:\n]+):  +(.+)$", done.stdout, re.MULTILINE))
    report, served = told.pop("Open the report"), told.pop("All of it in the browser")
    exported = told.pop("To type the commands that Proctor proposes below")
    commands = [*told.values(), f"{exported}; proctor show demo"]

    assert (folder / report).is_file()
    assert served.endswith(" serve")
    assert len(commands) == 6
    for command in commands:
        shown = _run(command, folder, variables)
        assert shown.returncode == 0, (command, shown.stderr)
        # What an export wrote is a note; everything else prints what was asked for.
        assert shown.stderr if " export " in command else shown.stdout, command


def test_the_web_app_it_points_to_shows_the_run(demo) -> None:
    folder, done, variables = demo
    command = re.search(r"PROCTOR_HOME=.* serve$", done.stdout, re.MULTILINE)
    assert command is not None
    # Another program may listen at the usual port of the machine that tests this.
    words = ["env", *shlex.split(command[0]), "--port", "0"]
    with subprocess.Popen(
        words, cwd=folder, env=os.environ | variables, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            address = re.search(r"(http://[\d.]+:\d+)/\?token=(\S+)", server.stderr.readline())
            assert address is not None
            headers = {"Authorization": f"Bearer {address[2].rstrip('.')}"}
            with urlopen(
                Request(f"{address[1]}/api/runs/demo", headers=headers), timeout=TIME_LIMIT_SECONDS
            ) as answer:
                assert json.load(answer)["counts"]["success"] == 3
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo", "is a file, and the demo needs a folder"),
        ("demo/thesis.txt", "contains something else"),
    ],
)
def test_it_refuses_to_replace_what_is_not_its_own(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")

    done = _run(PROGRAM, tmp_path)

    assert (done.returncode, path.read_text()) == (2, "mine")
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("code", [130, 1])
def test_ctrl_c_ends_it_after_its_command_has_stopped(tmp_path: Path, code: int) -> None:
    # A command that takes Ctrl-C as Proctor does: it ends its work, and has exit code 130; or another one,
    # because Ctrl-C came before Proctor could handle it.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, time\n"
        "if sys.argv[:1] == ['-m']:\n"
        "    try:\n"
        "        print('started', flush=True)\n"
        "        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n"
        "        time.sleep(0.3)\n"
        "        print('stopped', flush=True)\n"
        f"        os._exit({code})\n"
    )
    program = subprocess.Popen(
        PROGRAM,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert any(line == "started\n" for line in program.stdout)
    os.killpg(program.pid, signal.SIGINT)
    output, errors = program.communicate(timeout=TIME_LIMIT_SECONDS)

    assert (program.returncode, output) == (130, "stopped\n")
    assert "Traceback" not in errors
