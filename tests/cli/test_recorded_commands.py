"""Commands with all that they print, as recorded in `recorded/*.txt`.

A line that begins with `$ proctor` is a command; below it are its standard output (a JSON document as
`recorded_files` writes it), its standard error behind `! `, and its exit code unless that is 0. Add a command
and record with PROCTOR_RECORD_SNAPSHOTS=1, then read the difference. In `started*.txt` are commands that run
something: durations and widths of columns differ.
"""

import io
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import proctor
from commands import clean_environment
from filled import NOW, add_batch, filled_store, items
from proctor.cli.main import main
from proctor.store import RetrySelection
from proctor.store.writer import this_process
from recorded_files import check_transcript, mapped, written

RECORDED = Path(__file__).parent / "recorded"
EXAMPLES = Path(__file__).parents[2] / "examples"
JUDGE = """
rules:
  - match: "I will not"
    reply: '{"reasoning": "it says no", "score": "Yes"}'
  - reply: '{"reasoning": "it helps", "score": "No"}'
"""
ANSWERS = ("I will not.", "Here it is.", "I will not!", "Gladly.")
LABELS = ("Yes,ana", "No,ana", "yes,ana", "Yes,ben", "Yess,ana")
FILES = {
    "judge.yaml": JUDGE,
    "plan.yaml": "defaults: {model: scripted/echo}\nmatrix: [{prompt: I will not.}, {prompt: Gladly.}]\n",
    "tasks.yaml": "defaults: {model: scripted/ok}\ntasks: examples/benchmark/tasks\n",
    "quick.yaml": "{tasks: questions.csv, template: '{answer}', expectColumn: answer, model: scripted/echo}",
    "bench.yaml": "models: [{name: echo, provider: scripted}, {name: judge, provider: scripted}]\n"
    "batch_settings: {verbose: true}\n",
    "garbled.yaml": JUDGE.replace('{"reasoning": "it says no"', "no"),
    "task.md": "# Do it\n\nDo it well.\n",
    "online.yaml": "batchEvaluationName: x\nevaluators: [Builtin.Refusal]\njudge: scripted/judge\n"
    "dataSourceConfig: {onlineEvaluationConfigSource: {onlineEvaluationConfigArn: a}}\n",
    "small.yaml": "experiment_name: Small\nbase_scenario: examples/scenarios/harbour-fee\n"
    "runs_per_variation: 3\nmax_parallel: 1\nseed: 7\noutput_dir: small\nvariations:\n"
    "- {type: actor_model, actor: port, values: [scripted/models/patient, scripted/models/stubborn]}\n"
    "- {type: scenario_parameter, parameter: turns, values: [2, 3]}\n",
    "jury.yaml": "num_runs: 1\nmodel_name: scripted/echo\nevaluators: [Builtin.Helpfulnes]\n",
    "foreign.yaml": "clients: [patientPsi]\nevaluators: [safety]\nnum_runs: 1\nmodel_name: scripted/echo\n",
    "unknown.yaml": "experiment_name: Unknown\nbase_scenario: examples/scenarios/harbour-fee\n"
    "output_dir: unknown\nvariations:\n- {type: actor_model, actor: mayor, values: [scripted/w]}\n"
    "- {type: scenario_parameter, parameter: actors.port.hat, values: [a]}\n",
    "never.yaml": "stop_when: {by: therapist}\n",
    "port/scenario.yaml": "name: Harbor\ninitial_world_state: Spring\nturns: 2\n"
    "world_state_model: scripted/w\nodd_key: 1\n",
    "port/actors/port.yaml": "name: P\ncontrol: human\n",
    "truth.yaml": "expectedTrajectory: [look]\nassertions: [it looked]\n",
    "labels.csv": "session,target,label,rater\n"
    + "".join(f"s{number % 4}.json,turn-1,{label}\n" for number, label in enumerate(LABELS)),
    "turns.csv": "session,target,label,rater\nlong.json,turn-1,No,ana\nlong.json,turn-2,Yes,ana\n"
    "long.json,turn-3,Yes,ana\n",
    "values.csv": "session,target,value,rater\ns0.json,turn-1,1,ana\ns1.json,turn-1,0,ana\n",
    "wrong.csv": "session,label,value\ns0.json,,high\n",
    "more.csv": "task,model,score\nt0,a,1\nt9,a,0\nt1,b,1\n",
    "questions.csv": "id,question,answer\none,What is 1+1?,2\ntwo,What is 2+2?,4\n",
    "results.csv": "task,model,score\n"
    + "".join(
        f"t{n},{model},{int(n % step > 0)}\n" for n in range(8) for model, step in (("a", 2), ("b", 4))
    ),
}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with examples and a store that has items with results of all kinds."""
    folder = tmp_path_factory.mktemp("contents")
    home = folder / "proctor-home"
    home.mkdir()
    with filled_store(home) as store:
        add_batch(store, "going", items()[:2])
        store.resume_batch("going", this_process(), RetrySelection(), NOW)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for number, answer in enumerate(ANSWERS):
        turn = {"prompt": "Please.", "answer": answer, "events": [{"tool": "look", "result": "x"}]}
        (folder / f"s{number}.json").write_text(json.dumps({"sessionId": f"s{number}", "turns": [turn]}))
    turns = [{"prompt": "Please.", "answer": answer} for answer in ("Gladly, here it is.", "I will not.")]
    (folder / "long.json").write_text(json.dumps({"sessionId": "long", "turns": turns}))
    shutil.copytree(EXAMPLES, folder / "examples")
    return folder


@pytest.fixture
def folder(contents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that commands may change; they run in it."""
    folder = tmp_path / "work"
    shutil.copytree(contents, folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.chdir(folder)
    return folder


@contextmanager
def clean_variables(folder: Path) -> Iterator[None]:
    """The environment of a machine where nobody has configured anything, only while a command runs."""
    own = dict(os.environ)
    variables = clean_environment(folder)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(own)


MASKS = (
    (r"(?!2026-03-01)20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+]00:00)?", "<moment>"),
    (r"20\d{6}[T_-]\d{6}(-[0-9a-f]{4}|_\d+)?", "<moment>"),
    (r"\b[0-9.]+ (kB|MB)\b", "<size>"),
    (r"(?<=confined by ).*", "…"),
    (r"(?<=in process )\d+", "<id>"),
    (r"\b(first|again)-[A-Za-z0-9]{10}\b", r"\1-…"),
    (r"\b01[0-9a-f]{18}\b", "<session>"),
    (r"(\] (?:success|error) +)[0-9a-f]{8}", r"\1<item>"),
    (r"\blocal:[0-9a-f]{16}\b", "local:<key>"),
    (r"[ \t]+$", ""),
)


TIMES = r"\b(\d+ min )?[\d.]+ (s|ms)\b"
"""Those that differ between runs of a command that runs something."""
TIME_NAMES = r".*(Sec|nds|_ms|.Ms|ime)"


def masked(text: str, folder: Path) -> str:
    """Without what differs between runs and machines."""
    text = text.replace(str(folder), "FOLDER").replace(str(Path(proctor.__file__).parent), "PROCTOR")
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return re.sub(r"\b\d+\.\d{10,}\b", lambda match: f"{float(match.group()):.9g}", text)


def without_times(text: str) -> str:
    return re.sub("  +", "  ", re.sub(TIMES, "<time>", text))


def output_of(text: str, folder: Path, is_timed: bool) -> str:
    """What is printed or written: a JSON document as such, other text as it is."""

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return without_times(masked(value, folder)) if is_timed else masked(value, folder)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if name.endswith("ytes"):
                return "<size>"
            if is_timed and re.fullmatch(TIME_NAMES, name):
                return "<time>"
        return float(f"{value:.9g}") if isinstance(value, float) else value

    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        text = masked(text, folder)
        return without_times(text) if is_timed else text
    return written(mapped(document, plain)) + "\n"


def transcript(command: str, folder: Path, capsys: pytest.CaptureFixture[str], is_timed: bool) -> str:
    """What a command prints; `cat FILE` and `head FILE N` print a file that an earlier one has written."""
    program, *words = shlex.split(command)
    if program in ("cat", "head"):
        lines = Path(words[0]).read_text(encoding="utf-8").rstrip("\n").split("\n")
        text = "\n".join(lines[: int(words[1]) if program == "head" else None]) + "\n"
        return output_of(text, folder, is_timed)
    with clean_variables(folder):
        code = main(words)
    printed = capsys.readouterr()
    notes = "".join(f"! {line}\n" for line in printed.err.splitlines())
    notes += f"exit code {code}\n" if code else ""
    output = output_of(printed.out, folder, is_timed)
    return (output if output.endswith("\n") or not output else output + "\n") + output_of(
        notes, folder, is_timed
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.txt")))
def test_commands_print_what_they_printed_before(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_timed = name.startswith("started")
    check_transcript(
        RECORDED / f"{name}.txt", "proctor|cat|head", lambda each: transcript(each, folder, capsys, is_timed)
    )
