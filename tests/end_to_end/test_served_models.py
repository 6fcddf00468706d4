"""Who answered: the model a provider names, its configuration, what it was sent, kept with every call."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from conversations import read, split

from proctor.testing.model_server import ModelServer, ServerReply, reply

CALLS = (
    'SELECT "servedModel", "fingerprint", "requestId", "finishReason", "parametersJson" FROM "model_calls" '
    'ORDER BY "sessionId", "position"'
)


def served(*snapshots: str):
    """Answers of these snapshots in turn, as OpenAI sends them."""
    numbers = iter(range(1000))

    def answer(request: dict) -> ServerReply:
        number = next(numbers)
        whole = reply(f"Words {number}.")
        name = snapshots[number % len(snapshots)]
        body = {**whole.body, "model": name, "system_fingerprint": "fp_1"}
        return ServerReply(body=body, headers={"x-request-id": f"req-{number}"})

    return answer


def calls_in(folder: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(folder / "proctor-home" / "proctor.db")) as database:
        return database.execute(CALLS).fetchall()


async def run(proctor, server: ModelServer, words: str, **more):
    known = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}
    return await asyncio.to_thread(proctor, *split(words), environment=known, **more)


async def test_the_model_that_answered_is_kept_with_each_call_and_shown_wherever_results_are(
    proctor, talking_desk
) -> None:
    (talking_desk / "c.yaml").write_text(
        "num_runs: 2\nmax_turns: 1\nmax_workers: 1\nseed: 3\n"
        "model_type: OPENAI\nmodel_name: gpt-4o\ntemperature: 0.7\n"
    )
    async with ModelServer(served("gpt-4o-2024-05-13", "gpt-4o-2024-08-06")) as server:
        done = await run(proctor, server, "simulate --config c.yaml --output-dir out")

    assert done.returncode == 0, done.stderr
    model, fingerprint, request_id, reason, parameters = calls_in(talking_desk)[0]
    assert model in ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06")
    assert (fingerprint, request_id[:4], reason) == ("fp_1", "req-", "stop")
    assert json.loads(parameters)["temperature"] == 0.7 and "seed" in json.loads(parameters)
    both = {"openai/gpt-4o": {"gpt-4o-2024-05-13": 1, "gpt-4o-2024-08-06": 1}}
    assert read(talking_desk / "out" / "patientPsi_CBT_run0.json")["record"]["served_models"] == both
    run_id = read(talking_desk / "out" / "batch_summary.json")["batch_id"]
    assert "several models answered as openai/gpt-4o: gpt-4o-2024-05-13, gpt-4o-2024-08-06" in done.stderr
    text = (await asyncio.to_thread(proctor, "report", "--run", run_id)).stdout
    assert "Several models answered under one name" in text
