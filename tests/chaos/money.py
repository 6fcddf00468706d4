"""The money table: what a provider bills of a budget, case by case, for Proctor's own calls and for agents.

    .venv/bin/python tests/chaos/money.py [--write]

Every case is a way in which a provider bills more than a careless client expects. Each is measured calmly,
and disturbed: with kills and resumes, with worker processes, with two processes on one store, and with a
clock that jumps. `--write` puts the table into docs/trust.md. Exit code 1 when anything was billed above its
budget.
"""

import argparse
import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.provider import INPUT_USD, OUTPUT_USD, Bill, Provider, Rule, clock_variables, running_provider
from proctor.testing import make_git_repository

LIMIT = 400
"""Tokens that requests allow, where they say so."""
CALLS = 24
"""Of each run, eight at a time."""
PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- money: begin -->", "<!-- money: end -->"
WAYS = ("calm", "kills", "workers", "two processes", "clock")


@dataclass(frozen=True, slots=True)
class MoneyCase:
    """One way to be billed more than expected."""

    name: str
    rule: Rule
    path: str = "chat/completions"
    """Where an agent sends its requests."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """What an agent sends besides model, prompt and limit."""
    settings: Mapping[str, Any] | None = field(default_factory=dict)
    """Parameters of Proctor's own call. None: such a call cannot be made by a plan."""
    budget_usd: float = 0.5
    calls: int = CALLS
    provider: str = "openai"
    prompt: str = "Say something."
    item_usd: float | None = None
    """Budget of one item, in place of the budget of the run; the run is killed three times."""
    has_limit: bool = True
    """Whether requests say how long answers may be."""


def _tokens(body: Mapping[str, Any]) -> int:
    return len(json.dumps(body)) // 4


def _limit(body: Mapping[str, Any], usual: int = 50_000) -> int:
    settings = body.get("generationConfig") or {}
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    limit = next((body[name] for name in names if body.get(name)), None) or settings.get("maxOutputTokens")
    return int(limit or usual)


def _cost(tokens_in: float, tokens_out: float, fees: float = 0.0) -> float:
    return tokens_in * INPUT_USD + tokens_out * OUTPUT_USD + fees


def _answer(path: str, tokens_in: int, tokens_out: int, **usage: Any) -> bytes:
    """An answer in the format of the request."""
    if "messages" in path:
        counts = {"input_tokens": tokens_in, "output_tokens": tokens_out} | usage
        content = [{"type": "text", "text": "Done."}]
        return json.dumps({"content": content, "stop_reason": "end_turn", "usage": counts}).encode()
    if "responses" in path:
        items = usage.pop("items", [])
        text = {"type": "message", "content": [{"type": "output_text", "text": "Done."}]}
        counts = {"input_tokens": tokens_in, "output_tokens": tokens_out} | usage
        document = {"id": "resp_1", "status": "completed", "output": [*items, text], "usage": counts}
        return json.dumps(document).encode()
    if "generateContent" in path:
        candidate = {"content": {"parts": [{"text": "Done."}]}, "finishReason": "STOP"}
        counts = {"promptTokenCount": tokens_in, "candidatesTokenCount": tokens_out}
        return json.dumps({"candidates": [candidate], "usageMetadata": counts}).encode()
    choice = {"index": 0, "message": {"content": "Done."}, "finish_reason": "stop"}
    counts = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out} | usage
    return json.dumps({"choices": [choice], "usage": counts}).encode()


def _plain(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tokens, length = _tokens(body), _limit(body) * int(body.get("n") or 1)
    factor = 2 if body.get("service_tier") == "priority" else 1
    return Bill(usd=factor * _cost(tokens, length), body=_answer(path, tokens, length))


def _slow(path: str, body: Mapping[str, Any], number: int) -> Bill:
    return replace(_plain(path, body, number), seconds=0.3)


def _reading(tokens: int) -> Rule:
    """Bills so many tokens for what a request refers to."""

    def rule(path: str, body: Mapping[str, Any], number: int) -> Bill:
        read = _tokens(body) + (tokens if _mentions(body) else 0)
        return Bill(usd=_cost(read, 40), body=_answer(path, read, 40))

    return rule


def _mentions(body: Mapping[str, Any]) -> bool:
    words = (
        "document",
        "file",
        "input_file",
        "image_url",
        "input_image",
        "previous_response_id",
        "input_audio",
    )
    if "data:application/pdf" in json.dumps(body):
        return True
    return any(f'"{word}"' in json.dumps(body) for word in words)


def _reasoning(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tokens, length = _tokens(body), 17 * _limit(body)
    return Bill(usd=_cost(tokens, length), body=_answer(path, tokens, length))


def _itemized_reasoning(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tokens, length = _tokens(body), _limit(body)
    usage = {
        "completion_tokens_details": {"reasoning_tokens": 3 * length},
        "total_tokens": tokens + 4 * length,
    }
    return Bill(usd=_cost(tokens, 4 * length), body=_answer(path, tokens, length, **usage))


def _unreadable(content: bytes) -> Rule:
    def rule(path: str, body: Mapping[str, Any], number: int) -> Bill:
        return Bill(usd=_cost(_tokens(body), _limit(body)), body=content)

    return rule


def _too_large(path: str, body: Mapping[str, Any], number: int) -> Bill:
    return _unreadable(b" " * (33 << 20) + b"{}")(path, body, number)


def _server_error(path: str, body: Mapping[str, Any], number: int) -> Bill:
    bill = _plain(path, body, number)
    return Bill(usd=bill.usd, body=b'{"error": {"message": "busy"}}', status=503) if number % 2 else bill


def _image_tool(path: str, body: Mapping[str, Any], number: int) -> Bill:
    images = any(tool.get("type") == "image_generation" for tool in body.get("tools") or ())
    tokens = _tokens(body)
    return Bill(usd=_cost(tokens, 40, 0.25 * images), body=_answer(path, tokens, 40))


def _searches(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tools = [tool for tool in body.get("tools") or () if str(tool.get("type")).startswith("web_search")]
    uses = min(
        10, body.get("max_tool_calls") or max((tool.get("max_uses") or 10 for tool in tools), default=0)
    )
    uses = uses if tools else 0
    tokens = _tokens(body) * (1 + uses) + 8000 * uses * (uses + 1) // 2
    usage = {"server_tool_use": {"web_search_requests": uses}} if "messages" in path else {}
    if "responses" in path:
        usage = {"items": [{"type": "web_search_call"}] * uses}
    return Bill(usd=_cost(tokens, 40, 0.01 * uses), body=_answer(path, tokens, 40, **usage))


def _hourly_cache(path: str, body: Mapping[str, Any], number: int) -> Bill:
    written = _tokens(body) if '"1h"' in json.dumps(body) else 0
    usage = {
        "input_tokens": 0 if written else _tokens(body),
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_1h_input_tokens": written, "ephemeral_5m_input_tokens": 0},
    }
    tokens = 2 * written or _tokens(body)
    return Bill(usd=_cost(tokens, 40), body=_answer(path, 0, 40, **usage))


def _without_usage(path: str, body: Mapping[str, Any], number: int) -> Bill:
    choice = {"index": 0, "message": {"content": "Done."}, "finish_reason": "stop"}
    return Bill(usd=_cost(_tokens(body), _limit(body)), body=json.dumps({"choices": [choice]}).encode())


def _dense(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tokens = 3 * len(json.dumps(body)) // 4
    return Bill(usd=_cost(tokens, 40), body=_answer(path, tokens, 40))


def _with_status(status: int) -> Rule:
    def rule(path: str, body: Mapping[str, Any], number: int) -> Bill:
        return replace(_plain(path, body, number), status=status)

    return rule


def _stored_reasoning(path: str, body: Mapping[str, Any], number: int) -> Bill:
    tokens = _tokens(body) + 16_000 * json.dumps(body).count('"rs_')
    return Bill(usd=_cost(tokens, 40), body=_answer(path, tokens, 40))


def _priority_of_account(path: str, body: Mapping[str, Any], number: int) -> Bill:
    bill = _plain(path, body, number)
    return Bill(
        usd=2 * bill.usd, body=json.dumps({**json.loads(bill.body), "service_tier": "priority"}).encode()
    )


def _other_model(path: str, body: Mapping[str, Any], number: int) -> Bill:
    bill = _plain(path, body, number)
    return replace(bill, usd=20 * bill.usd if "models" in body or "provider" in body else bill.usd)


PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcK"}


def _message(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


def _input(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


PICTURE = {"type": "image_url", "image_url": {"url": "http://pictures.invalid/a.png"}}
SOUND = {"type": "input_audio", "input_audio": {"format": "wav", "data": "UklGRg=="}}
FILE = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF['data']}"}
PDF_AS_IMAGE = {"type": "image_url", "image_url": {"url": f"data:application/pdf;base64,{PDF['data']}"}}
REASONING = [{"type": "reasoning", "id": f"rs_{number}", "summary": []} for number in range(4)]
OTHER_MODELS = {"models": ["acme/dear"], "provider": {"order": ["acme"]}}
DEARER = {"n": 3, "service_tier": "priority"}
EARLIER = {"previous_response_id": "resp_9"}
DRAWING = {"tools": [{"type": "image_generation"}]}
SEARCHING = {"tools": [{"type": "web_search"}]}
OWN_SEARCHING = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
BASE64 = base64.b64encode(random.Random(1).randbytes(15_000)).decode()
EMPTY_LIMIT = {"max_completion_tokens": None}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
FAILED = b'{"error": {"message": "upstream failed"}}'
CASES = (
    MoneyCase("plain calls", _plain),
    MoneyCase("several answers, priority tier", _plain, body=DEARER, settings=DEARER),
    MoneyCase("no `max_tokens` in the request", _plain, has_limit=False, budget_usd=1.5),
    MoneyCase(
        "PDF documents",
        _reading(300_000),
        "messages",
        _message({"type": "document", "source": PDF}),
        None,
        provider="anthropic",
    ),
    MoneyCase("file inputs", _reading(300_000), "responses", _input(FILE), None),
    MoneyCase("image URLs", _reading(48_169), "chat/completions", _message(PICTURE), None),
    MoneyCase(
        "`previous_response_id`", _reading(200_000), "responses", {"input": "Go on.", **EARLIER}, EARLIER
    ),
    MoneyCase("sound", _reading(100_000), "chat/completions", _message(SOUND), None),
    MoneyCase("image generation tool", _image_tool, "responses", {"input": "Draw.", **DRAWING}, DRAWING, 0.1),
    MoneyCase(
        "web search",
        _searches,
        "responses",
        {"input": "Find.", **SEARCHING},
        OWN_SEARCHING,
        3.0,
        provider="both",
    ),
    MoneyCase("reasoning above the limit, not itemized", _reasoning),
    MoneyCase("reasoning itemized and on top", _itemized_reasoning),
    MoneyCase("200 with `choices: []`", _unreadable(b'{"choices": [], "usage": null}'), budget_usd=0.1),
    MoneyCase("200 with an error object", _unreadable(FAILED), budget_usd=0.1),
    MoneyCase("200 with a list", _unreadable(b"[]"), budget_usd=0.1),
    MoneyCase("200 with more than 32 MiB", _too_large, budget_usd=0.05, calls=6),
    MoneyCase("200 without usage", _without_usage, budget_usd=0.1),
    MoneyCase("503 for every second call, after charging", _server_error, budget_usd=0.2),
    MoneyCase(
        "one-hour cache writes",
        _hourly_cache,
        "messages",
        CACHED,
        CACHED,
        provider="anthropic",
        prompt="word " * 6000,
    ),
    MoneyCase("gpt-5 with `max_completion_tokens: null`", _plain, body=EMPTY_LIMIT, settings=EMPTY_LIMIT),
    MoneyCase("prompt in base64", _dense, prompt=BASE64, budget_usd=1.0),
    MoneyCase("201 in place of 200", _with_status(201), budget_usd=0.1),
    MoneyCase("200 without usage, translated", _without_usage, "messages", {}, None, 0.1),
    MoneyCase(
        "PDF in place of an image", _reading(300_000), "chat/completions", _message(PDF_AS_IMAGE), None
    ),
    MoneyCase("stored reasoning, by its ID", _stored_reasoning, "responses", {"input": REASONING}, None),
    MoneyCase("priority tier by the account", _priority_of_account),
    MoneyCase("other models by a router", _other_model, body=OTHER_MODELS, settings=OTHER_MODELS),
    MoneyCase("item budget after three kills", _slow, item_usd=0.035, calls=1),
)
AGENT = """
import json, os, sys, urllib.request
from concurrent.futures import ThreadPoolExecutor

path, body, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
if path == "messages":
    base, key = os.environ["ANTHROPIC_BASE_URL"].removesuffix("/v1") + "/v1", os.environ["ANTHROPIC_API_KEY"]

def ask(number):
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(base + "/" + path, body.encode(), headers)
        urllib.request.urlopen(request, timeout=30).read()
    except Exception as error:
        print(error, getattr(error, "read", bytes)()[:300])

with ThreadPoolExecutor(8) as pool:
    list(pool.map(ask, range(calls)))
"""
Start = Callable[[Sequence[str], Path, Mapping[str, str]], Any]
"""Start a command in a folder with an environment; it can be polled, waited for and killed."""


def start_process(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Any:
    """Start the command as a shell would."""
    return subprocess.Popen(
        [sys.executable, "-m", "proctor", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def has_side(case: MoneyCase, side: str) -> bool:
    """Whether a case can be measured for `own` calls or on the `gateway`."""
    return case.settings is not None if side == "own" else case.item_usd is None


def measure(case: MoneyCase, side: str, way: str, provider: Provider, folder: Path, start: Start) -> float:
    """What was billed of the budget, in a folder of its own."""
    name = re.sub(r"\W+", "-", f"{case.name}-{side}-{way}").lower()
    provider.rules[name] = case.rule
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PROCTOR_HOME": str(folder / "home"),
        "OPENAI_API_KEY": "any",
        "OPENAI_BASE_URL": provider.url,
        "ANTHROPIC_API_KEY": "any",
        "ANTHROPIC_BASE_URL": provider.url,
    }
    if "PYTHONPATH" in os.environ:
        # Another version of Proctor, to compare with.
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    vendor = ("anthropic" if side == "own" else "openai") if case.provider == "both" else case.provider
    model = f"{vendor}/{name}"
    runs = ["a", "b"] if way == "two processes" else ["a"]
    budget = case.budget_usd
    config = f'[prices."{model}"]\ninput = {INPUT_USD * 1e6}\noutput = {OUTPUT_USD * 1e6}\n'
    if case.item_usd is None:
        config += f"[budget]\nusd = {budget}\n"
    (folder / "proctor.toml").write_text(config)
    if case.item_usd is not None:
        budget = case.item_usd
    for run in runs:
        (folder / f"{run}.yaml").write_text(json.dumps(_plan(case, side, model, run, folder)))
    more = ["--workers", "2"] if way == "workers" else []
    if way == "clock":
        environment |= clock_variables(folder / "clock")
    words = {run: ["batch", f"{run}.yaml", *more] for run in runs}
    kills = 3 if case.item_usd is not None else {"kills": 2, "clock": 1}.get(way, 0)
    for _ in range(kills):
        process = start(words["a"], folder, environment)
        clock = folder / "clock" if way == "clock" else None
        _kill_while_calling(process, provider, name, clock, 2 if case.item_usd is None else 1)
        words = {"a": ["resume", "a", "--retry-errors", *more]}
    started = [start(each, folder, environment) for each in words.values()]
    for process in started:
        process.communicate(timeout=60)
    return provider.billed_by_model[name] / budget


def _plan(case: MoneyCase, side: str, model: str, run: str, folder: Path) -> dict[str, Any]:
    plan: dict[str, Any] = {"runId": run, "concurrency": 8, "outage_patience": 5}
    if case.item_usd is not None:
        # One item that needs several calls, each of which may be killed.
        plan["defaults"] = {"budget": case.item_usd, "retries": 0}
    if side == "own":
        limit = {"max_tokens": LIMIT} if case.has_limit else {}
        item = {
            "prompt": case.prompt,
            "model": model,
            "runs": case.calls,
            "settings": {**limit, **case.settings},
        }
        return plan | {"matrix": [item]}
    repository = make_git_repository(folder / f"repository-{run}", {"agent.py": AGENT})
    body: dict[str, Any] = {"model": "m", **case.body}
    if not {"messages", "input"} & set(body):
        body["messages"] = [{"role": "user", "content": case.prompt}]
    if case.has_limit:
        body["max_output_tokens" if case.path == "responses" else "max_tokens"] = LIMIT
    item = {
        "repo": str(repository),
        "prompt": "Work.",
        "model": model,
        "command": [sys.executable, "-S", "-E", "agent.py", case.path, json.dumps(body), str(case.calls)],
        "settings": {"gateway": True},
        "sandbox": "none",
        "timeoutSec": 50,
    }
    return plan | {"matrix": [item]}


def _kill_while_calling(
    process: Any, provider: Provider, name: str, clock: Path | None, more_calls: int
) -> None:
    """Kill a process once it has called the provider some more times, or when it takes too long."""
    calls, until = provider.calls_by_model[name] + more_calls, time.monotonic() + 8
    while provider.calls_by_model[name] < calls and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    if clock is not None:
        clock.write_text(random.choice(["-3600s", "+7200s"]))
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=20)


Figures = dict[tuple[str, str, str], float]
"""By case, side and way."""


def measure_all(
    ways: Sequence[str], *, parallel: int, start: Start = start_process, cases: Sequence[MoneyCase] = CASES
) -> Figures:
    """Measure all cases in these ways."""
    figures: Figures = {}
    wanted = [
        (case, side, way)
        for case in cases
        for side in ("own", "gateway")
        for way in ways
        if has_side(case, side) and (case.item_usd is None or way == "calm")
    ]
    with running_provider(random.Random(0)) as provider, tempfile.TemporaryDirectory(prefix="money-") as root:

        def one(number: int) -> None:
            case, side, way = wanted[number]
            folder = Path(root) / str(number)
            folder.mkdir()
            figures[case.name, side, way] = measure(case, side, way, provider, folder, start)

        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(one, range(len(wanted))))
    return figures


def money_table(figures: Figures) -> str:
    """The figures as a Markdown table; the highest of all disturbed runs in one column."""
    lines = [
        "| billed / budget | own calls | own calls, disturbed | gateway | gateway, disturbed |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in CASES:
        cells = []
        for side in ("own", "gateway"):
            calm = [
                value
                for (name, on, way), value in figures.items()
                if (name, on) == (case.name, side) and way == "calm"
            ]
            rest = [
                value
                for (name, on, way), value in figures.items()
                if (name, on) == (case.name, side) and way != "calm"
            ]
            cells += [_cell(calm), _cell(rest)]
        lines.append(f"| {case.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    highest = max(values)
    return f"{highest:.2f}" if highest else "refused"


def write_page(table: str) -> None:
    """Put the table between its marks in the manual."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}", encoding="utf-8")


def main() -> int:
    """Measure everything and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/trust.md")
    parser.add_argument("--ways", default=",".join(WAYS), help="separated by commas; default: all")
    parser.add_argument("--cases", default="", help="part of a name; default: all")
    parser.add_argument("--parallel", type=int, default=2)
    options = parser.parse_args()
    cases = [case for case in CASES if options.cases in case.name]
    figures = measure_all(options.ways.split(","), parallel=options.parallel, cases=cases)
    table = money_table(figures)
    print(table)
    for (name, side, way), value in figures.items():
        if value > 1.0 + 1e-9:
            print(f"- above the budget: {name}, {side}, {way}: {value:.2f}")
    if options.write:
        write_page(table)
    return 1 if any(value > 1.0 + 1e-9 for value in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
