"""Functions and programs of the user's own judge sessions in processes apart."""

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from judged_sessions import Judge, weather

from proctor.errors import EvaluatorError
from proctor.evaluators.code import FunctionJob, FunctionProcess, ProcessDied
from proctor.evaluators.registry import EvaluationSettings, evaluator_of, find_evaluator
from proctor.processes.warden import every_process, is_alive
from proctor.sandbox import Sandbox, problem_of
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS


def settings(folder, **more):
    return EvaluationSettings(folder=folder, environment={"PATH": os.environ["PATH"]}, **more)


def coded(folder, config, *, level="SESSION", sandbox=None, **identity):
    """The evaluator of a definition with code."""
    document = {"evaluatorName": "mine", "level": level, "evaluatorConfig": {"codeBased": config}, **identity}
    more = {"sandbox": sandbox} if sandbox else {}
    return evaluator_of(document, models=Judge(""), settings=settings(folder, **more))


def function(tmp_path, source, *, level="session", **config):
    (tmp_path / "graders.py").write_text(source)
    if not config:
        at = "" if level == "session" else f"@{level}"
        return find_evaluator(f"graders:grade{at}", models=Judge(""), settings=settings(tmp_path))
    return coded(tmp_path, {"function": "graders:grade", **config}, level=level.upper())


def program(tmp_path, source, **config):
    (tmp_path / "judge.py").write_text(source)
    return coded(tmp_path, {"command": [sys.executable, "judge.py"], **config})


@pytest.mark.parametrize(
    ("parameters", "returned", "label"),
    [
        ("event, context", "event['session']['turns'][1]['answer']", "It is booked."),
        ("event, context", "repr(context)", "None"),
        ("event, context='own'", "context", "own"),
        ("event, *rest, **more", "repr((rest, more))", "((), {})"),
        ("event, *, x='3'", "x", "3"),
    ],
)
async def test_a_function_gets_an_event_and_perhaps_a_context_as_in_the_cloud(
    tmp_path, parameters, returned, label
):
    (score,) = await function(tmp_path, f"def grade({parameters}):\n    return {returned}\n").judge(weather())

    assert score.label == label


@pytest.mark.parametrize(
    ("returned", "value", "label", "error"),
    [
        ("{'label': 'blue', 'value': 3}", 3.0, "blue", ""),
        ("float('nan')", None, "", "InvalidResult"),
        ("{'value': 10 ** 400}", None, "", "InvalidResult"),
        ("'x' * 2_000_000", None, "", "ValueError"),
        ("object()", None, "", "TypeError"),
        ("1 / 0", None, "", "ZeroDivisionError"),
        ("__import__('os')._exit(3)", None, "", "ProcessEnded"),
        ("bytearray(10 ** 12)", None, "", "MemoryError"),
    ],
)
async def test_whatever_a_function_returns_or_does_is_a_score_or_an_error(
    tmp_path, returned, value, label, error
):
    judging = function(tmp_path, f"def grade(event):\n    return {returned}\n")

    (score,) = await judging.judge(weather())

    assert (score.value, score.label, score.error_code) == (value, label, error)


async def test_a_function_that_hangs_is_ended_and_only_its_target_errs(tmp_path):
    judging = function(
        tmp_path,
        "import subprocess, time\n"
        "def grade(event):\n"
        "    if event['evaluationTarget']['traceIds'] == ['turn-1']:\n"
        "        subprocess.Popen(['sleep', '3661.7'])\n"
        "        time.sleep(3600)\n"
        "    return 1.0\n",
        level="trace",
        timeoutSeconds=0.5,
    )
    began = time.monotonic()

    first, second = await judging.judge(weather())

    assert (first.error_code, second.value) == ("Timeout", 1.0)
    assert time.monotonic() - began < TIME_LIMIT_SECONDS
    assert not any("3661.7" in command_of(pid) for pid in every_process() if is_alive(pid))


PID = "import os\ndef grade(event):\n    return float(os.getpid())\n"


async def test_one_process_serves_many_sessions_and_a_few_serve_those_judged_at_once(tmp_path):
    # Evaluators made anew share it.
    pids = {(await function(tmp_path, PID).judge(weather()))[0].value for _ in range(3)}
    scores = await asyncio.gather(*(function(tmp_path, PID).judge(weather()) for _ in range(12)))

    assert len(pids) == 1 and pids != {float(os.getpid())}
    assert len({score.value for (score,) in scores}) <= 4


def test_processes_end_with_the_event_loop(tmp_path):
    async def once():
        judging = function(tmp_path, PID)
        (score,) = await judging.judge(weather())
        return int(score.value)

    pid = asyncio.run(once())

    eventually(lambda: not is_alive(pid))


async def test_what_a_function_changes_or_prints_disturbs_no_later_call(tmp_path):
    judging = function(
        tmp_path,
        "def grade(event):\n"
        "    print('x' * 3_000_000)\n"
        "    event['session']['turns'].clear()\n"
        "    return 1.0\n",
        level="trace",
    )

    first, second = await judging.judge(weather())
    (third, _) = await judging.judge(weather())

    assert (first.value, second.value, third.value) == (1.0, 1.0, 1.0)


async def test_a_function_may_be_a_coroutine_in_a_package(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "deep.py").write_text("async def grade(event):\n    return 'fine'\n")

    judging = find_evaluator("pack.deep:grade", models=Judge(""), settings=settings(tmp_path))
    (score,) = await judging.judge(weather())

    assert score.label == "fine"


async def test_temporary_folders_may_have_long_paths(tmp_path, monkeypatch):
    temporary = tmp_path / ("t" * 120)
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    (score,) = await function(tmp_path, "def grade(event):\n    return True\n").judge(weather())

    assert score.value == 1


async def test_functions_and_programs_see_no_variable_they_were_not_given(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    asked = "','.join(sorted(os.environ))"
    judging = function(tmp_path, f"import os\ndef grade(event):\n    return {asked}\n")
    other = program(tmp_path, f"import json, os\nprint(json.dumps({asked}))\n")

    (score,), (printed,) = await judging.judge(weather()), await other.judge(weather())

    assert "OPENAI_API_KEY" not in score.label + printed.label
    assert "PATH" in score.label and "PATH" in printed.label


async def test_a_function_that_was_changed_is_loaded_anew(tmp_path):
    scores = []
    for number in (1, 2):
        judging = function(tmp_path, f"def grade(event):\n    return {number}\n")
        scores += await judging.judge(weather())

    assert [score.value for score in scores] == [1.0, 2.0]


@pytest.mark.parametrize(("identity", "said"), [({}, "mine"), ({"evaluatorId": "m-1"}, "m-1")])
async def test_an_event_names_the_evaluator_by_its_id_or_its_name(tmp_path, identity, said):
    (tmp_path / "graders.py").write_text("def grade(event):\n    return event['evaluatorId']\n")

    (score,) = await coded(tmp_path, {"function": "graders:grade"}, **identity).judge(weather())

    assert (score.evaluator, score.label) == ("mine", said)


@pytest.mark.parametrize(("more", "error"), [(19, ""), (20, "InvalidResult")])
async def test_a_score_may_stand_above_19_lines_of_other_output(tmp_path, more, error):
    (score,) = await program(tmp_path, f"print('0.5')\nprint('bye\\n' * {more}, end='')").judge(weather())

    assert (score.value, score.error_code) == (None if error else 0.5, error)


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("import sys; sys.exit('the disk is full')", "ExitCode", "the disk is full"),
        ("print('hello')", "InvalidResult", "did not print JSON"),
        ("pass", "InvalidResult", "nothing"),
        ("import time; time.sleep(60)", "Timeout", "longer than"),
    ],
)
async def test_a_program_that_fails_is_an_error_that_says_why(tmp_path, source, error, said):
    limit = 0.5 if error == "Timeout" else 60
    (score,) = await program(tmp_path, source, timeoutSeconds=limit).judge(weather())

    assert score.error_code == error and said in score.error


async def test_a_program_that_is_not_there_is_an_error_of_each_target(tmp_path):
    judging = coded(tmp_path, {"command": ["no-such-program"]}, level="TRACE")

    assert [score.error_code for score in await judging.judge(weather())] == ["CouldNotStart"] * 2


def test_a_programs_digest_follows_the_files_it_names(tmp_path):
    before = program(tmp_path, "print(1)").digest

    assert program(tmp_path, "print(2)").digest != before


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


TRIES = """
import json, os, pathlib, socket, sys

def grade(event):
    reached = []
    for name in {files}:
        try:
            pathlib.Path(name).read_text()
            reached.append(name)
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=3)
        reached.append("network")
    except OSError:
        pass
    try:
        pathlib.Path(__file__).with_name("changed").write_text("")
        reached.append("its own folder")
    except OSError:
        pass
    pathlib.Path(os.environ["HOME"], "own").write_text("possible")
    return {{"value": len(reached), "label": " ".join(reached) or "nothing"}}

if __name__ == "__main__":
    print(json.dumps(grade(json.load(sys.stdin))))
"""


@pytest.mark.parametrize("run", [{"function": "graders:grade"}, {"command": [sys.executable, "graders.py"]}])
@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_code_of_evaluators_reaches_neither_the_users_files_nor_the_network(folder_on_disk, kind, run):
    if problem := problem_of(kind):
        pytest.skip(problem)
    files = [folder_on_disk / "user" / "id_ed25519", folder_on_disk / "proctor" / "proctor.db"]
    for file in files:
        file.parent.mkdir()
        file.write_text("secret")
    sandbox = Sandbox(
        settings=kind,
        hidden=(folder_on_disk / "proctor", folder_on_disk / "user"),
        user_home=folder_on_disk / "user",
    )
    (folder_on_disk / "plan").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = TRIES.format(files=[str(file) for file in files], port=server.getsockname()[1])
        (folder_on_disk / "plan" / "graders.py").write_text(source)
        (score,) = await coded(folder_on_disk / "plan", run, sandbox=sandbox).judge(weather())

    assert (score.value, score.label) == (0.0, "nothing"), score


async def test_a_process_that_cannot_start_says_why(tmp_path):
    job = FunctionJob(
        function="marks:score",
        folder=tmp_path / "missing",
        environment=(("PATH", os.environ["PATH"]),),
        attempt="a",
        megabytes=100,
    )
    process = FunctionProcess(job)
    with pytest.raises(EvaluatorError, match=r"starting marks:score: .*No such file") as refused:
        await process.connect()
    assert not isinstance(refused.value, ProcessDied)
    assert not process.is_alive
