"""Programs nobody here wrote reach models through the gateway: recorded, priced, limited, replayed.

The program is a few lines of Python that know a base URL and a key and nothing of Proctor; the
provider is on loopback behind OPENAI_BASE_URL.
"""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from databases import query
from proctor.testing import eventually_async
from proctor.testing.model_server import ModelServer, ServerReply, failure, reply
from waiting import TIME_LIMIT_SECONDS

KEY = "sk-proj-T7pQ2vXw9LkR4mZs8JdN"
PROGRAM = """
import json, os, sys, urllib.request

def post(url, headers, body):
    headers = {"content-type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))

def chat(text):
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    body = {"model": "gpt-4o", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", headers, body)
    return answer["choices"][0]["message"]["content"]

def messages(text):
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    body = {"model": "gpt-4o", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    return post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", headers, body)["content"][0]["text"]

def keep(*said):
    open("said.txt", "w").write("\\n".join(said))

prompt, how = sys.stdin.read(), sys.argv[1]
if how == "both":
    keep(chat(prompt), messages("the same in other words"))
    # Backwards, so that nobody who blots keys out of texts can know it for one.
    print(json.dumps(dict(os.environ))[::-1])
elif how == "endlessly":
    while True:
        chat(prompt)
else:
    keep(*(chat(prompt + " " + str(number)) for number in range(int(how))))
"""


class Bureau:
    """A provider, a repository, the program, and the command to run batches of it."""

    def __init__(self, proctor: Any, program: Path, server: ModelServer) -> None:
        self.proctor, self.program, self.server = proctor, program, server
        proctor.environment |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}

    def plan(self, run_id: str, *entries: str, head: str = "") -> str:
        text = f"runId: {run_id}\n{head}\ndefaults: {{model: openai/gpt-4o}}\nmatrix:\n"
        (self.proctor.folder / f"{run_id}.yaml").write_text(
            text + "".join(f"  - {each}\n" for each in entries)
        )
        return f"{run_id}.yaml"

    def entry(self, how: str, prompt: str = '"go"', more: str = "") -> str:
        words = f"[python3, {self.program}, {how!r}]"
        settings = "settings: {gateway: true}, keep: never"
        return f"{{repo: shop, prompt: {prompt}, command: {words}, {settings}{more}}}"

    async def run(self, run_id: str, *entries: str, head: str = "", flags: Sequence[str] = ()) -> Any:
        """Run a plan; what it printed, as JSON, with its exit code."""
        plan = self.plan(run_id, *entries, head=head)
        done = await asyncio.to_thread(self.proctor, "batch", plan, "--json", *flags)
        assert done.stdout, done.stderr
        return json.loads(done.stdout) | {"exitCode": done.returncode}

    def query(self, statement: str, *values: str) -> list[dict[str, Any]]:
        with self.proctor.open_store() as store:
            return query(store, statement, values)

    def rows(self, table: str, run_id: str) -> list[dict[str, Any]]:
        """The rows of a table that belong to a run's sessions, in their order."""
        of_run = 'SELECT "id" FROM "sessions" WHERE "runId" = ?'
        order = 'ORDER BY "sessionId", "position"' if table != "iterations" else ""
        return self.query(f'SELECT * FROM "{table}" WHERE "sessionId" IN ({of_run}) {order}', run_id)

    def session(self, run_id: str) -> dict[str, Any]:
        (only,) = self.query('SELECT * FROM "sessions" WHERE "runId" = ?', run_id)
        return only

    def still_running(self, how: str) -> list[str]:
        """Programs that were started that way and have not ended."""
        wanted = f"{self.program}\0{how}".encode()
        found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [entry.name for entry in found if wanted in _command_line(entry)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def opened(proctor, repository, tmp_path) -> Callable[[Any], Bureau]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    return lambda server: Bureau(proctor, program, server)


@pytest.fixture
async def bureau(opened) -> AsyncIterator[Bureau]:
    async with ModelServer([reply(f"Paris. I was asked with {KEY}.", input_tokens=20)]) as server:
        yield opened(server)


# Recorded, priced, and no key anywhere


async def test_every_call_of_a_program_is_recorded_and_priced_and_the_key_is_only_with_the_provider(
    bureau, tmp_path
):
    ran = await bureau.run("both", bureau.entry("both"), head="record: traffic.ndjson")

    assert (ran["exitCode"], ran["successCount"], ran["tokensTotal"]) == (0, 1, 50)
    assert ran["costUsd"] == pytest.approx(2 * (20 * 2.5 + 5 * 10) / 1e6)
    calls = bureau.rows("model_calls", "both")
    assert [(call["provider"], call["model"], call["status"]) for call in calls] == [
        ("openai", "openai/gpt-4o", "ok")
    ] * 2
    for call in calls:
        assert (call["promptTokens"], call["completionTokens"]) == (20, 5)
        assert call["priceSource"].startswith("genai-prices")
        assert json.loads(call["price"])["input"] == 2.5
        assert call["latencyMs"] > 0
    said = [(row["role"], row["content"]) for row in bureau.rows("messages", "both")]
    assert ("user", "the same in other words") in said
    assert [role for role, _ in said].count("assistant") == 2
    assert bureau.session("both")["isMock"] == 0

    report = await asyncio.to_thread(bureau.proctor, "report", "--run", "both", "--format", "html")
    shown = await asyncio.to_thread(bureau.proctor, "show", bureau.session("both")["id"], "--json")

    assert {headers["Authorization"] for headers in bureau.server.headers} == {f"Bearer {KEY}"}
    (step,) = bureau.rows("iterations", "both")
    seen = json.loads(step["output"].strip()[::-1])
    assert "PROCTOR_MODEL" in seen, "the program's environment must be where we look"
    assert seen["OPENAI_API_KEY"].startswith("proctor-")
    assert KEY not in seen.values()
    assert "Paris" in shown.stdout and "Paris" in (tmp_path / "traffic.ndjson").read_text()
    assert KEY not in report.stdout + report.stderr + shown.stdout
    texts = [zlib.decompress(row["data"]) for row in bureau.query('SELECT * FROM "blobs"')]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(KEY.encode() in text for text in (*texts, *files))


# Limits


async def test_an_endless_program_is_cut_off_at_its_limit_and_the_other_items_go_on(bureau):
    prompts = json.dumps([f"task {number}" for number in range(5)])
    ran = await bureau.run(
        "six",
        bureau.entry("endlessly", more=", budget: 0.002"),
        bureau.entry("1", prompts),
        head="concurrency: 3",
    )

    assert (ran["itemCount"], ran["successCount"], ran["failCount"]) == (6, 5, 1), ran["failures"]
    (cut,) = ran["failures"]
    assert (cut["status"], cut["reason"]) == ("fail", "cost_limit")
    (row,) = bureau.query('SELECT * FROM "batch_items" WHERE "reason" = ?', "cost_limit")
    # A call costs 0.0001 and might cost a little more than 0.0006, and that must be left for it.
    assert row["costUsd"] == pytest.approx(0.0014)
    assert bureau.still_running("endlessly") == []


async def test_aborting_a_batch_closes_the_providers_connection(opened):
    async with ModelServer([reply("too late", delay_seconds=90)]) as server:
        bureau = opened(server)
        with bureau.proctor.start("batch", bureau.plan("stopped", bureau.entry("1"))) as process:
            await eventually_async(lambda: server.at_once == 1)
            aborted = await asyncio.to_thread(bureau.proctor, "abort-run", "stopped")
            await eventually_async(lambda: server.at_once == 0)
            await eventually_async(lambda: process.poll() is not None)

    assert (aborted.returncode, process.returncode) == (0, 3)
    (item,) = bureau.query('SELECT * FROM "batch_items"')
    assert (item["status"], item["reason"]) == ("error", "aborted")
    assert bureau.still_running("1") == []


async def test_programs_that_end_before_any_call_cost_nothing(opened):
    async with ModelServer(lambda _: reply("Paris.")) as server:
        bureau = opened(server)
        entries = [bureau.entry("not a number", f'"go {number}"') for number in range(8)]
        ended = await bureau.run(
            "crashes",
            *entries,
            bureau.entry("1", '"Capital?"'),
            head="budget: 0.02\nconcurrency: 1",
            flags=["--keep-going"],
        )

    assert (ended["status"], ended["successCount"], ended["unfinishedCount"]) == ("completed", 1, 0)
    (charged,) = bureau.query('SELECT SUM("spentUsd") AS "usd" FROM "ledger"')
    assert charged["usd"] == ended["costUsd"] > 0


async def test_two_processes_on_one_store_share_a_providers_limit(opened):
    most = 6

    def answer(body: Any) -> ServerReply:
        # Only the plain prompts are ever refused; the programs can know of it from the store alone.
        if server.at_once >= most and body["messages"][-1]["content"].endswith("?"):
            return failure(429, retry_after=0.5)
        return reply("Paris.", delay_seconds=0.3)

    async with ModelServer(answer) as server:
        bureau = opened(server)
        asked = "{prompt: [Capital?, Country?, River?, Lake?, City?], runs: 8}"
        plans = [
            bureau.plan("plain", asked, head="concurrency: 30"),
            bureau.plan("programs", bureau.entry("8", '["a", "b", "c", "d", "e"]'), head="concurrency: 5"),
        ]
        processes = [bureau.proctor.start("batch", plan, "--json") for plan in plans]
        seen = await _pools_while(processes, bureau)
        printed = [process.communicate()[0] for process in processes]

    assert [process.returncode for process in processes] == [0, 0], printed
    together = [rows for rows in seen if {row["runId"] for row in rows} == {"plain", "programs"}]
    assert together, "both are known to each other while they run"
    assert {row["name"] for rows in together for row in rows} == {"openai/gpt-4o"}
    programs = [row for rows in together for row in rows if row["runId"] == "programs"]
    assert {row["limited"] for row in programs} == {0}
    assert min(row["limit"] for row in programs) < 30, "what the one was refused cuts the limit of the other"
    assert bureau.query('SELECT * FROM "pools"') == []
    for run_id, calls in (("plain", 40), ("programs", 40)):
        assert [row["status"] for row in bureau.rows("model_calls", run_id)] == ["ok"] * calls


async def _pools_while(processes: list[Any], bureau: Bureau) -> list[list[dict[str, Any]]]:
    seen = list[list[dict[str, Any]]]()
    store = bureau.proctor.folder / "proctor-home" / "proctor.db"
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if store.exists():
            seen.append(await asyncio.to_thread(bureau.query, 'SELECT * FROM "pools" ORDER BY "runId"'))
        await asyncio.sleep(0.1)
    return seen


# Again, without the provider


async def test_a_recorded_batch_is_had_again_with_the_provider_switched_off(opened):
    async with ModelServer(lambda body: reply(f"About {body['messages'][-1]['content']}: yes.")) as server:
        bureau = opened(server)
        entries = [bureau.entry("both", '["one", "two"]'), bureau.entry("2", '"three"')]
        recorded = await bureau.run("first", *entries, head="record: traffic.ndjson")
        asked = len(server.requests)
    bureau.proctor.environment.pop("OPENAI_API_KEY")

    replayed = await bureau.run("second", *entries, head="replay: traffic.ndjson")

    assert (recorded["successCount"], replayed["successCount"]) == (3, 3)
    assert asked == 6
    assert _told(bureau, "second") == _told(bureau, "first")
    assert replayed["tokensTotal"] == recorded["tokensTotal"]
    assert (recorded["costUsd"] > 0, replayed["costUsd"]) == (True, 0)
    notes = [row["notes"] for row in bureau.query('SELECT * FROM "sessions" WHERE "runId" = ?', "second")]
    assert not any("recording" in note for note in notes if note)


def _told(bureau: Bureau, run_id: str) -> dict[str, list[tuple[str, str]]]:
    """What was said in each item's session."""
    sessions = bureau.query('SELECT "id", "itemId" FROM "sessions" WHERE "runId" = ?', run_id)
    rows = bureau.rows("messages", run_id)
    return {
        each["itemId"]: [(row["role"], row["content"]) for row in rows if row["sessionId"] == each["id"]]
        for each in sessions
    }


async def test_a_prompt_that_is_too_long_for_the_model_fails_and_counts_in_the_rate(bureau):
    bureau.server.answers = [failure(400, "This model's maximum context length is 8192 tokens")]

    ended = await bureau.run("long", "{prompt: go}", "{repo: shop, prompt: go, agent: builtin}")

    assert (ended["failCount"], ended["errorCount"], ended["exitCode"]) == (2, 0, 1)
    assert [failed["reason"] for failed in ended["failures"]] == ["context_overflow"] * 2
