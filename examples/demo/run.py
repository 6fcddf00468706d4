"""The demo that `make demo` runs: scripted (mock) agents on three repositories, and a real small model.

Everything happens in the folder `demo/`, which each run replaces: copies of the repositories, the plans,
Proctor's home, and the report. No key, no container; no network once the model is installed. Where it cannot
be installed, the demo says so and does the rest. Uses only the command `proctor`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

HERE = Path(__file__).resolve().parent
RUN = "demo"
PASSED, SOME_DID_NOT, CTRL_C = 0, 1, 130
"""Exit codes of a batch: completed, completed with failures, interrupted."""
METRICS = ("--metric", "success", "--metric", "tokens")
CHANGES = {
    "runId: questions": "runId: questions-short",
    "system: You are a helpful assistant.": "system: Answer with one word.",
}
"""What questions-short.yaml has in place of lines of questions.yaml."""
INTERRUPTED = threading.Event()
"""Ctrl-C was pressed."""


def main() -> int:
    """Run the demo in `demo/`, or in the folder given on the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1] / "demo").resolve()
    # The command that runs gets Ctrl-C as well; the demo ends when it has ended its work.
    signal.signal(signal.SIGINT, lambda *_: INTERRUPTED.set())
    try:
        lay_out(folder)
        return run(folder)
    except FileExistsError as error:
        print(error, file=sys.stderr)
        return 2
    except DemoFailed as failure:
        return failure.code


def run(folder: Path) -> int:
    """Everything after the folder is there."""
    programs, home = quote(str(Path(sys.executable).parent)), quote(str(folder / "home"))
    say(
        "To type the commands that Proctor proposes below:  "
        f"export PATH={programs}:$PATH PROCTOR_HOME={home}\n"
    )
    say(f"1. Three repositories with failing tests × two scripted (mock) agents, in {shown(folder)}/\n")
    code = proctor(folder, "batch", shown(folder / "plan.yaml"))
    if code not in (PASSED, SOME_DID_NOT):
        return code
    report = folder / "report.html"
    if code := proctor(folder, "report", "--run", RUN, "--format", "html", "--out", shown(report)):
        return code
    asked = ask_the_model(folder)
    if not asked:
        say("\n2. A comparison: does `hasty` do as well as `careful`?\n")
        proctor(folder, "compare", RUN, "--by", "model", *METRICS)
    say(farewell(folder, report, asked=asked))
    return 0


class DemoFailed(Exception):
    """A command of the demo ended with a code that it should not have."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def ask_the_model(folder: Path) -> bool:
    """Ask the small model and let it talk to itself; False where it cannot run."""
    first, second = folder / "questions.yaml", folder / "questions-short.yaml"
    say("\n2. Ten questions for a real small model on this machine (local/smollm2), half a minute\n")
    if not install_model(folder):
        say("The demo goes on without the small model.")
        return False
    run_batch(folder, first)
    say('\n   The same questions with the system prompt "Answer with one word."\n')
    run_batch(folder, second)
    say("\n3. A comparison: did the new prompt break anything?\n")
    proctor(folder, "compare", "questions", "questions-short", *METRICS)
    say("\n4. A dialogue: the model plays a customer and a support agent, half a minute\n")
    words = ("--config", shown(folder / "dialogue.yaml"), "--output-dir", shown(folder / "dialogue"))
    if (code := proctor(folder, "simulate", *words)) not in (PASSED, SOME_DID_NOT):
        raise DemoFailed(code)
    return True


def run_batch(folder: Path, plan: Path) -> None:
    if (code := proctor(folder, "batch", shown(plan))) not in (PASSED, SOME_DID_NOT):
        raise DemoFailed(code)


def say(text: str) -> None:
    # At once, in order with what the commands print.
    print(text, flush=True)


def lay_out(folder: Path) -> None:
    """Replace the folder of an earlier demo; raise if it contains anything else."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file, and the demo needs a folder; rename it")
    if folder.exists() and any(folder.iterdir()) and not is_ours(folder):
        raise FileExistsError(f"{folder} contains something else; rename it")
    # The plan goes last: it says that the folder is ours, also if this is interrupted.
    for path in (
        sorted(folder.iterdir(), key=lambda path: path.name == "plan.yaml") if folder.exists() else ()
    ):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("plan.yaml", "careful.yaml", "hasty.yaml", "questions.yaml", "dialogue.yaml"):
        shutil.copy(HERE / name, folder)
    questions = (folder / "questions.yaml").read_text()
    for old, new in CHANGES.items():
        questions = questions.replace(old, new)
    (folder / "questions-short.yaml").write_text(questions)
    for files in sorted((HERE / "repos").iterdir()):
        make_repository(files, folder / "repos" / files.name)


def is_ours(folder: Path) -> bool:
    """Whether this script created the folder: it contains the demo's plan, comments aside."""
    plan = folder / "plan.yaml"
    return plan.is_file() and without_comments(plan) == without_comments(HERE / "plan.yaml")


def without_comments(plan: Path) -> list[str]:
    """The lines of a plan without comments, so that an earlier version's folder is recognized."""
    lines = [line.partition("#")[0].rstrip() for line in plan.read_text(errors="replace").splitlines()]
    return [line for line in lines if line]


def make_repository(files: Path, folder: Path) -> None:
    """Copy files and commit them as a new repository."""
    shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("__pycache__/\n")
    identity = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, *identity, "commit", "--quiet", "--no-verify", "--message", f"{files.name}: as it is")


def git(folder: Path, *words: str) -> None:
    if code := subprocess.run(("git", *words), cwd=folder, check=False).returncode:
        raise DemoFailed(code)


def proctor(folder: Path, *words: str) -> int:
    """Run a Proctor command as a user would; return its exit code."""
    return not_interrupted(subprocess.run(command(words), env=environment(folder), check=False).returncode)


def not_interrupted(code: int) -> int:
    """The exit code of a command; ends the demo after Ctrl-C."""
    if INTERRUPTED.is_set() or code in (CTRL_C, -signal.SIGINT):
        raise DemoFailed(CTRL_C)
    return code


def install_model(folder: Path) -> bool:
    """Download the weights of the small model, once; False, with the reason printed, where it cannot run."""
    words = command(("models", "install", "local/smollm2"))
    # The download takes a while: what it says is printed as it comes.
    with subprocess.Popen(words, env=environment(folder), stderr=subprocess.PIPE, text=True) as program:
        for line in program.stderr or ():
            say(line.rstrip())
    return not_interrupted(program.returncode) == 0


def ask_proctor(folder: Path, *words: str) -> Any:
    """The JSON output of a Proctor command."""
    done = subprocess.run(
        command((*words, "--json")), env=environment(folder), check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "proctor", *words]


def environment(folder: Path) -> Mapping[str, str]:
    """The user's environment, with Proctor's home in the demo's folder."""
    inherited = {name: value for name, value in os.environ.items() if name != "PROCTOR_STORE"}
    return {**inherited, "PROCTOR_HOME": str(folder / "home")}


def farewell(folder: Path, report: Path, *, asked: bool) -> str:
    """The closing message: what happened, and commands to explore the results."""
    items = ask_proctor(folder, "show", RUN)["items"]
    good = next(item for item in items if item["status"] == "success")
    bad = next(item for item in items if item["status"] == "fail")
    branch = ask_proctor(folder, "show", good["sessionId"])["branch"]
    dialogue = ask_proctor(folder, "runs")["runs"][0]["runId"] if asked else ""
    program = quote(shown(Path(sys.executable).parent / "proctor"))
    here = f"PROCTOR_HOME={quote(shown(folder / 'home'))} {program}"
    return f"""
`careful` fixed all three repositories. `hasty` reported success, but the tests fail. The batch therefore
ended with exit code 1 (finished; some items did not succeed). The demo itself succeeded.

Open the report:            {shown(report)}
All of it in the browser:   {here} serve
The run, item by item:      {here} show {RUN}
What one agent did:         {here} show {bad["sessionId"]}
What another one changed:   git -C {shown(Path(good["repo"]))} diff main...{branch}
All tables, as files:       {here} export --run {RUN} --out {shown(folder / "tables")}
""" + (f"The dialogue:               {here} show {session_of(folder, dialogue)}\n" if asked else "")


def session_of(folder: Path, run: str) -> str:
    """The session of a run's first item."""
    return str(ask_proctor(folder, "show", run)["items"][0]["sessionId"])


def shown(path: Path) -> str:
    """The path relative to the working folder, if possible."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


if __name__ == "__main__":
    sys.exit(main())
