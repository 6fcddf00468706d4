"""While a provider's rate limit makes calls wait, commands say so."""

import asyncio

import pytest

from proctor.testing.model_server import ModelServer, failure, reply

BATCH = "matrix: [{prompt: What is the capital of France?, model: openai/gpt-4o-mini}]\n"


@pytest.mark.parametrize("command", ["batch", "bench"])
async def test_a_line_says_for_how_long_a_rate_limit_pauses_the_calls(proctor, tmp_path, command):
    (tmp_path / "plan.yaml").write_text(BATCH)
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "Capital of France?", "answer": "Paris"}\n')
    words = {
        "batch": ("batch", "plan.yaml"),
        "bench": ("bench", "--task", "tasks.jsonl", "--agent", "answer", "--models", "openai/gpt-4o-mini"),
    }
    async with ModelServer() as server:
        server.answers = [failure(429, retry_after=6), reply("Paris")]
        variables = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        done = await asyncio.to_thread(proctor.process, *words[command], environment=variables)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("rate limited, calls paused for") == 1, done.stderr
