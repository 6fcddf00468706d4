"""Calls of judges have a limit on their answers, which is no part of what recordings know them by."""

import json
from pathlib import Path

import pytest

from proctor.evaluators.judging import Judge, JudgeUsage, ask_until_readable
from proctor.models import ModelRouter
from proctor.models.prices import output_limit
from proctor.models.recording import Recording
from proctor.testing.model_server import ModelServer, reply

MESSAGES = [{"role": "user", "content": "Was it good?"}]
DIGEST = "d46833ddcb627adf5520f9b7177eed52ec0e153a7d1cc5d5872370e937d344a1"
"""Of the request below, as versions without a limit have recorded it."""


async def ask(tape: Path, model: str = "openai/gpt-4o", **parameters: object) -> list[dict]:
    """The requests of a judge whose answer is never readable."""
    recording = Recording(tape)
    async with ModelServer(lambda request: reply("I would rather not say.")) as server:
        environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}
        models = ModelRouter(environment, recording=recording)
        judge = Judge(models=models.for_attempt(None, item_id="one"), model=model, parameters=parameters)
        await ask_until_readable(judge, MESSAGES, str, lambda _: False, JudgeUsage())
        await models.close()
    recording.close()
    return server.requests


@pytest.mark.parametrize(
    ("model", "parameters", "limits"),
    [
        ("openai/gpt-4o", {}, [4096, 16_384]),
        ("openai/gpt-5-mini", {}, [128_000, 128_000]),
        ("openai/gpt-4o", {"max_tokens": 300}, [300, 300]),
    ],
)
async def test_verdicts_have_a_limit_unless_the_judge_sets_one(tmp_path, model, parameters, limits):
    requests = await ask(tmp_path / "traffic.ndjson", model, **parameters)

    assert [output_limit(request) for request in requests] == limits


async def test_the_limit_is_no_part_of_the_digest_by_which_recordings_answer(tmp_path):
    await ask(tmp_path / "traffic.ndjson", temperature=0.0)

    lines = [json.loads(line) for line in (tmp_path / "traffic.ndjson").read_text().splitlines()]
    assert [line["digest"] for line in lines] == [DIGEST, DIGEST]
