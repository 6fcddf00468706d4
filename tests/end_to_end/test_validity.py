"""Failures that look like success are counted, warned of, asked for again, and excluded by a rule."""

import asyncio
import csv
import json
from pathlib import Path

from conversations import read, split
from harbours import reply, write_config, write_harbour

from proctor.testing.model_server import ModelServer, ServerReply

REFUSAL = "I'm sorry, but I can't continue with this."


async def run(proctor, server: ModelServer, words: str):
    known = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}
    return await asyncio.to_thread(proctor, *split(words), environment=known)


def refused() -> ServerReply:
    """As OpenAI refuses: without content, in a member of its own."""
    body = reply("").body
    message = {"role": "assistant", "content": None, "refusal": REFUSAL}
    return ServerReply(body={**body, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def session(folder: Path, name: str = "patientPsi_CBT_run0.json") -> dict:
    return read(folder / "out" / name)


async def test_a_role_that_runs_on_defaults_is_counted_and_excluded_by_a_rule(proctor, talking_desk) -> None:
    (talking_desk / "c.yaml").write_text(
        "clients: [consistentMI, patientPsi]\nnum_runs: 1\nmax_turns: 2\nmodel_name: openai/gpt-4o\n"
        "exclude_when: {defaulted_states: '> 0'}\n"
    )
    async with ModelServer(lambda request: reply("Words.")) as server:
        done = await run(proctor, server, "simulate --config c.yaml --output-dir out")
    analyzed = await asyncio.to_thread(proctor, "analyze", "out")

    assert done.returncode == 0, done.stderr
    counted = session(talking_desk, "consistentMI_CBT_run0.json")["validity"]
    assert counted["defaulted_states"] > 1 and counted["regenerated_answers"] >= counted["defaulted_states"]
    assert session(talking_desk)["validity"] == {}
    assert f"{counted['defaulted_states']} defaulted states in 1 session" in done.stderr
    assert read(talking_desk / "out" / "batch_summary.json")["validity"]["defaulted_states"]["sessions"] == 1
    assert "1 of 2 excluded by exclude_when (more than 0 defaulted states), 1 analyzed" in analyzed.stdout


async def test_a_refusal_is_asked_for_again_and_never_what_a_patient_says(proctor, talking_desk) -> None:
    answers = [refused(), reply("One."), reply("Two."), refused(), refused()]
    async with ModelServer(answers) as server:
        done = await run(
            proctor,
            server,
            "simulate --num-runs 2 --max-turns 1 --max-workers 1 --model openai/gpt-4o --output-dir out",
        )

    first, second = session(talking_desk), session(talking_desk, "patientPsi_CBT_run1.json")
    assert done.returncode == 1
    assert [message["content"] for message in first["messages"]] == ["One.", "Two."]
    assert first["validity"] == {"refusals": 1, "regenerated_answers": 1}
    assert (second["reason"], second["caused_by"], second["messages"]) == ("refused", "infrastructure", [])


async def test_a_filtered_answer_is_no_silence_of_the_role_under_test(proctor, talking_desk) -> None:
    async with ModelServer(lambda request: reply("", finish_reason="content_filter")) as server:
        await run(
            proctor, server, "simulate --num-runs 1 --max-turns 1 --model openai/gpt-4o --output-dir out"
        )

    failed = session(talking_desk)
    assert (failed["reason"], failed["caused_by"]) == ("content_filter", "infrastructure")
    assert failed["validity"]["filtered"] == 2


async def test_unreadable_verdicts_keep_their_column_and_are_asked_for_again(proctor, talking_desk) -> None:
    (talking_desk / "c.yaml").write_text(
        "num_runs: 1\nmax_turns: 1\nmodel_name: openai/gpt-4o\nseed: 1\njudge_model: openai/judge\n"
        "evaluators: [{name: warmth, instructions: Is it warm?, scale: binary}]\n"
    )
    verdict = ["I would rather not say."]

    def answer(request: dict) -> ServerReply:
        return reply(verdict[0] if request["model"] == "judge" else "Words.")

    async with ModelServer(answer) as server:
        first = await run(proctor, server, "simulate --config c.yaml --output-dir out")
        before = session(talking_desk)
        verdict[0] = '{"reasoning": "It is.", "verdict": "yes"}'
        asked = len(server.requests)
        again = await run(proctor, server, "simulate --config c.yaml --output-dir out --resume")
        new = server.requests[asked:]

    assert "1 unreadable verdict in 1 session" in first.stderr
    assert before["validity"]["unreadable_verdicts"] == 1
    assert {request["model"] for request in new} == {"judge"}, again.stderr
    assert "unreadable_verdicts" not in session(talking_desk)["validity"]


WORLD = """\
name: Vote
initial_world_state: "Spring."
turns: 2
turn_duration: 2 weeks
world_state_model: openai/narrator
actors: [port, ferry]
variables: {vote: {type: choice, values: [yes, no], initial: "yes", per_actor: true, set_by: all}}
"""


async def test_decisions_that_cannot_be_read_are_counted_and_their_runs_excluded(proctor) -> None:
    write_harbour(proctor.folder, scenario=WORLD)
    config = write_config(proctor.folder, runs=2, more="exclude_when: {invalid_decisions: '>= 2'}\nseed: 1")
    calls = iter(range(1000))

    def answer(request: dict) -> ServerReply:
        if request["model"] == "narrator":
            return reply("UPDATED STATE: calm")
        # The ferry never decides in the first run: its four requests are the first.
        is_valid = request["model"] != "ferry" or next(calls) >= 4
        answered = reply(f"ACTION: wait\nSET: vote = {'no' if is_valid else 'perhaps'}")
        return ServerReply(body={**answered.body, "model": f"{request['model']}-{2024 + is_valid}"})

    async with ModelServer(answer) as server:
        done = await run(proctor, server, f"experiment {config}")

    folder = proctor.folder / "experiments" / "fees"
    states = [read(folder / "runs" / f"var-001-run-00{n}" / "scenario-state.json") for n in (1, 2)]
    assert done.returncode == 0, done.stderr
    assert states[0]["validity"] == {"regenerated_answers": 2, "invalid_decisions": 2}
    assert states[1]["validity"] == {}
    assert "2 invalid decisions in 1 session" in done.stderr
    analyzed = await asyncio.to_thread(proctor, "analyze", str(folder), "--report")
    assert "1 of 2 completed runs excluded by exclude_when, 1 analyzed" in analyzed.stdout
    rows = list(csv.DictReader((folder / "analysis" / "runs.csv").open()))
    assert [row["status"] for row in rows] == ["excluded", "completed"]
    assert [(row["invalid_decisions"], row["refusals"]) for row in rows] == [("2", "0"), ("0", "0")]
    assert "openai/ferry: ferry-2024;" in rows[0]["served_models"]
    assert "openai/ferry: ferry-2025;" in rows[1]["served_models"]
    report = (folder / "analysis" / "analysis-report.md").read_text()
    assert "openai/ferry: ferry-2024, ferry-2025;" in report
    assert "Completed runs had 2 invalid decisions in 1 session" in report


async def test_a_narrator_that_refuses_or_is_cut_off_does_not_become_the_world(proctor) -> None:
    write_harbour(proctor.folder)
    config = write_config(proctor.folder, more="seed: 1")
    states = iter([refused(), reply("UPDATED STATE: cooperation 4")])
    cut = reply("UPDATED ST", finish_reason="length")

    def answer(request: dict) -> ServerReply:
        return next(states, cut) if request["model"] == "narrator" else reply("ACTION: wait")

    async with ModelServer(answer) as server:
        done = await run(proctor, server, f"experiment {config}")

    state = read(proctor.folder / "experiments" / "fees" / "runs" / "var-001-run-001" / "scenario-state.json")
    assert done.returncode == 1
    assert state["completed_turns"] == [1]
    assert state["turns"][0]["invalid"] == {"refusals": 1, "regenerated_answers": 1}
    assert "cut off at its length limit" in json.dumps(state)


async def test_a_scenario_of_rounds_in_which_all_see_a_value_and_with_a_name_in_chinese(proctor) -> None:
    world = WORLD.replace("2 weeks", "1 round").replace("per_actor: true", "per_actor: true, visible_to: all")
    write_harbour(proctor.folder, scenario=world)
    config = Path(write_config(proctor.folder, more="seed: 1"))
    text = config.read_text().replace("Fee study", "港口费用").replace("output_dir: experiments/fees\n", "")
    config.write_text(text)

    def answer(request: dict) -> ServerReply:
        return reply("ACTION: wait\nSET: vote = no" if request["model"] != "narrator" else "calm")

    async with ModelServer(answer) as server:
        done = await run(proctor, server, f"experiment {config}")
        prompts = [request["messages"][-1]["content"] for request in server.requests]

    assert done.returncode == 0, done.stderr
    assert (proctor.folder / "experiments" / "港口费用" / "batch-summary.json").exists()
    assert any("vote.ferry: no" in prompt for prompt in prompts)


async def test_a_session_level_target_reaches_the_judge(proctor, talking_desk) -> None:
    (talking_desk / "c.yaml").write_text(
        "num_runs: 1\nmax_turns: 1\nmodel_name: openai/gpt-4o\njudge_model: openai/judge\n"
        "evaluators:\n- {name: warmth, instructions: Warm?, scale: binary, target: client}\n"
        "- {name: plain, instructions: Plain?, scale: binary}\n"
    )
    async with ModelServer(lambda request: reply('{"reasoning": "", "verdict": "yes"}')) as server:
        await run(proctor, server, "simulate --config c.yaml --output-dir out")
        judged = [
            request["messages"][-1]["content"] for request in server.requests if request["model"] == "judge"
        ]

    assert ["Judge only what the client says." in prompt for prompt in judged] == [True, False]


async def test_a_code_of_the_provider_says_that_the_context_is_too_long(proctor, talking_desk) -> None:
    error = {"message": "Reduce your input.", "code": "context_length_exceeded"}
    async with ModelServer(lambda request: ServerReply(status=400, body={"error": error})) as server:
        await run(proctor, server, "simulate --num-runs 1 --model openai/gpt-4o --output-dir out")

    assert session(talking_desk)["reason"] == "context_overflow"


async def test_a_replay_of_a_real_model_is_no_mock_and_one_of_a_script_is(proctor, talking_desk) -> None:
    simulate = "simulate --num-runs 1 --max-turns 1 --seed 1 --config {config} --output-dir {folder}"
    for model, mock in (("openai/gpt-4o", False), ("scripted/talking", True)):
        name = model.partition("/")[0]
        for way in ("record", "replay"):
            config = talking_desk / f"{name}-{way}.yaml"
            config.write_text(f"model_name: {model}\n{way}: {name}.ndjson\n")
            words = simulate.format(config=config, folder=f"{name}-{way}")
            async with ModelServer(lambda request: reply("Words.")) as server:
                done = await run(proctor, server, words)
            assert done.returncode == 0, done.stderr

        assert read(talking_desk / f"{name}-replay" / "patientPsi_CBT_run0.json")["stand_in"] is mock


def test_a_function_of_the_working_folder_is_a_model(proctor, talking_desk) -> None:
    (talking_desk / "study_models.py").write_text("def kind(request):\n    return 'So am I.'\n")

    done = proctor(
        *split("simulate --num-runs 1 --max-turns 1 --model python/study_models:kind --output-dir out")
    )

    assert done.returncode == 0, done.stderr
    assert session(talking_desk)["messages"][0]["content"] == "So am I."
