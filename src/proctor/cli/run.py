"""Run a job from the terminal: signals, live view, summary, notification and exit code."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from proctor.api import runs
from proctor.api.runs import DryRun, Observer, RunControl, RunResult
from proctor.bootstrap import open_context
from proctor.cli import output
from proctor.cli.output import count, money, print_json, print_next, print_note, printable, seconds
from proctor.context import Notice, RunContext
from proctor.item import SUCCESS, Item, shown_status
from proctor.job import BatchEnd, ItemFinished, JobPlan, Work
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, camel_document

if TYPE_CHECKING:
    from proctor.api.runs import Extension, Forecast

PAUSES_SECONDS = 2.0
"""How often a run without a terminal looks for rate limits that make its calls wait."""
LINE_EACH = 2000
"""In larger runs, only items that did not succeed get a line, and every hundredth item."""


class View(Protocol):
    """Shows a run while it is executed."""

    def item(self, end: ItemFinished) -> None:
        """An item has finished, and that is committed."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view_for(ctx: RunContext, run_id: str, *, as_json: bool, as_jsonl: bool) -> View:
    """JSON records if requested, a live view on a terminal, otherwise lines."""
    items, finished = runs.progress_of(ctx, run_id)
    if as_jsonl:
        return JsonLines(run_id, items)
    if sys.stderr.isatty():
        # The live view needs libraries that a run in a script does not load.
        from proctor.cli.live import LiveView

        return LiveView(ctx, run_id)
    return LineView(run_id, items, finished, quiet=as_json, ctx=ctx)


def beginning(run_id: str, all_of_it: str, finished: int) -> str:
    """The first line of a run: its items, and how many a resumed run has finished."""
    so_far = f", {finished:,} finished already" if finished else ""
    return f"{printable(run_id)}: {all_of_it}{so_far}"


class _Plain:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


async def print_pauses(ctx: RunContext, run_id: str) -> None:
    """Print a line for each provider whose rate limit makes the calls of a run wait, until cancelled."""
    told = dict[str, float]()
    while True:
        await asyncio.sleep(PAUSES_SECONDS)
        for provider, remaining in (await asyncio.to_thread(runs.paused_providers, ctx, run_id)).items():
            until = ctx.monotonic() + remaining
            # A pause that is read again ends at the same time.
            if until > told.get(provider, 0.0) + PAUSES_SECONDS:
                told[provider] = until
                print_note(f"{printable(provider)}: rate limited, calls paused for {seconds(remaining)}")


class LineView:
    """One line for each item, and for each pause of a rate limited provider, on standard error."""

    def __init__(
        self, run_id: str, items: int, finished: int, *, quiet: bool, ctx: RunContext | None = None
    ) -> None:
        """Without `ctx`, pauses are not followed."""
        self._ctx, self._run_id = ctx, run_id
        self._items = items
        self._finished = finished
        self._quiet = quiet
        self._pauses: asyncio.Task[None] | None = None
        if not quiet:
            print_note(beginning(run_id, count(items, "item"), finished))

    def item(self, end: ItemFinished) -> None:
        self._finished += 1
        is_routine = end.outcome.status == SUCCESS and self._items > LINE_EACH and self._finished % 100
        if not self._quiet and not is_routine:
            print_note(f"[{self._finished}/{self._items}] {line_of(end)}")

    async def __aenter__(self) -> Self:
        if self._ctx and not self._quiet:
            self._pauses = asyncio.create_task(print_pauses(self._ctx, self._run_id))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pauses:
            self._pauses.cancel()
            await asyncio.wait([self._pauses])


class JsonLines(_Plain):
    """One JSON record for the launch and for each item, on standard output."""

    def __init__(self, run_id: str, items: int) -> None:
        self._run_id = run_id
        print(json.dumps({"type": "launch", "runId": run_id, "itemCount": items}), flush=True)

    def item(self, end: ItemFinished) -> None:
        record = {
            "type": "item",
            "runId": self._run_id,
            "id": end.id,
            "status": end.outcome.status,
            "reason": end.outcome.reason,
            "error": end.outcome.error,
            "sessionId": end.session_id,
            "repo": end.item.settings.get("repo"),
            "prompt": end.item.prompt,
            "agent": end.item.agent or None,
            "model": end.item.model or None,
            "attempts": end.attempts,
            "tokensTotal": end.tokens,
            "costUsd": end.cost_usd,
            "workSeconds": round(end.work_seconds, 3),
            **({"merge": end.outcome.result["merge"]} if "merge" in end.outcome.result else {}),
        }
        print(json.dumps(record, ensure_ascii=False), flush=True)


def line_of(end: ItemFinished) -> str:
    """One finished item in one line."""
    item, outcome = end.item, end.outcome
    who = " ".join(part for part in (item.agent, item.model) if part)
    where = str(item.settings.get("label") or item.details.get("repository", ""))
    parts = [
        f"{shown_status(outcome.status, outcome.reason):<7}",
        end.id[:8],
        where,
        who,
        printable(item.prompt, width=50),
    ]
    parts.append(seconds(end.work_seconds))
    if end.cost_usd is not None:
        parts.append(money(end.cost_usd))
    if outcome.result.get("merge") in ("conflict", "error"):
        parts.append(f"merge: {outcome.result['merge']}")
    line = "  ".join(printable(part) for part in parts if part)
    return (
        line
        if outcome.status == SUCCESS
        else f"{line}  {outcome.reason}: {printable(outcome.error, width=160)}"
    )


MOST_FILES = 65_536
PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Output format of a command: progress for people, or records for programs."""

    as_json: bool = False
    as_jsonl: bool = False


Present = Callable[[RunContext, RunResult, OutputOptions], None]
"""Prints a finished run. The module of a job's command may have one, `present`, and a `JobObserver`."""


class TerminalObserver(Observer):
    """Shows a run at the terminal and stops it at a signal."""

    def __init__(self, ctx: RunContext, output: OutputOptions) -> None:
        self._ctx, self._output = ctx, output
        self._view: View | None = None

    def make_view(self, run_id: str) -> View:
        """The view of a run; commands with a view of their own override this."""
        return view_for(self._ctx, run_id, as_json=self._output.as_json, as_jsonl=self._output.as_jsonl)

    def watch(self, run_id: str, control: RunControl) -> AbstractAsyncContextManager[object]:
        """Open the view; the first signal stops the run cleanly, the second at once."""
        _allow_many_files()
        protect_memory()
        _stop_at_signals(control)
        self._view = self.make_view(run_id)
        return self._view

    def item_finished(self, item: ItemFinished) -> None:
        """Show an item."""
        if self._view:
            self._view.item(item)


class TerminalPeople:
    """The person at this terminal: questions on standard error, answers from standard input.

    A line with a single dot, or the end of the input, ends an answer. One question at a time.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:  # noqa: ARG002
        """Print the question and read the answer."""
        async with self._lock:
            return await asyncio.to_thread(_ask_here, actor, prompt)


def _ask_here(actor: str, prompt: str) -> str:
    print_note(f"\n── you are {printable(actor)} " + "─" * 40)
    print_note(printable(prompt, lines=True))
    print_note("── your answer; end it with a line that holds a single dot")
    lines = list[str]()
    for line in sys.stdin:
        if line.strip() == ".":
            break
        lines.append(line)
    print_note("── waiting for the next question")
    return "".join(lines).strip()


def print_notice(notice: Notice) -> None:
    """Print a message of the library to standard error."""
    prefix = "note: " if notice.kind == "note" else ""
    print_note(f"{prefix}{printable(notice.text, width=400)}")


@contextmanager
def terminal_context(options: Mapping[str, str] | None, folders: Sequence[Path] = ()) -> Iterator[RunContext]:
    """The context of a command: its global options, and its messages on standard error."""
    options = options or {}
    home, store = options.get("home", ""), options.get("store", "")
    with open_context(folders, home=home, store=store, notice=print_notice, people=TerminalPeople()) as ctx:
        yield ctx


def run_command(
    ctx: RunContext,
    result: Coroutine[Any, Any, RunResult],
    output: OutputOptions,
    *,
    present: Present | None = None,
) -> int:
    """Run a job to its end, print its summary, notify the user; the exit code.

    `present` prints the finished run in place of the document and summary that every run has.
    """
    with runs.event_loop() as loop:
        finished = loop.run(result)
    if present:
        present(ctx, finished, output)
    else:
        print_document(finished.summary, output)
        print_summary(finished.summary, executed=finished.executed, ctx=ctx)
    notify(runs.options_of(ctx, finished.run_id).get("notify"), finished.summary)
    return exit_code(finished.end, finished.summary)


def print_document(document: JsonMap, output: OutputOptions) -> None:
    """Print the summary as JSON, if that was requested."""
    if output.as_json:
        print_json(document)
    elif output.as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False, default=str), flush=True)


def exit_code(ending: BatchEnd, document: JsonMap) -> int:
    """The exit code for how a batch ended."""
    if ending.status == "interrupted":
        return output.CTRL_C
    if ending.status != "completed":
        return output.CUT_SHORT
    return completed_code(document)


def completed_code(document: JsonMap) -> int:
    """The exit code of a completed run: that of its check, or whether its items succeeded."""
    if as_map(document, "stopWhen").get("mode") == "check":
        outcomes = {as_map(decision)["outcome"] for decision in as_list(document, "stopWhen", "decisions")}
        if "fail" in outcomes:
            return output.SOME_DID_NOT
        return output.INCONCLUSIVE if "open" in outcomes else output.SUCCEEDED
    return output.SOME_DID_NOT if has_failures(document) else output.SUCCEEDED


def has_failures(document: JsonMap) -> bool:
    """Whether an item did not succeed, or a check of a run has no readable verdict.

    Items that a run which stopped early did not need do not count.
    """
    names = ("failCount", "timeoutCount", "errorCount")
    return (
        any(document[name] for name in names)
        or bool(as_map(document, "checks").get("unread"))
        or (bool(document["unfinishedCount"]) and not document.get("stopWhen"))
    )


def notify(command: object, document: JsonMap) -> None:
    """Notify the user that a run has ended: by the command they set, or on the desktop."""
    if not command or not isinstance(command, str):
        return
    message = (
        f"{document['runId']}: {document['status']}, {document['successCount']} of {document['itemCount']}"
    )
    facts = {
        f"PROCTOR_{name.upper()}": str(document[name]) for name in ("status", "itemCount", "successCount")
    }
    environment = os.environ | facts | {"PROCTOR_RUN": str(document["runId"]), "PROCTOR_MESSAGE": message}
    desktop = (
        ["notify-send", "Proctor", message]
        if sys.platform != "darwin"
        else ["osascript", "-e", f'display notification {json.dumps(message)} with title "Proctor"']
    )
    arguments = desktop if command == "desktop" else ["/bin/sh", "-c", command]
    try:
        subprocess.run(
            arguments, env=environment, timeout=30, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
    except (OSError, subprocess.SubprocessError) as error:
        print_note(f"note: could not notify: {printable(error)}")


def _allow_many_files() -> None:
    """Raise the limit of open files: hundreds of agents and thousands of calls need more than the default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def protect_memory() -> None:
    """Hide memory and environment of this process, which hold keys, from other processes of the same user."""
    try:
        # Takes longer to load than the rest of a command that only reads.
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # another system


def _stop_at_signals(control: RunControl) -> None:
    """The first signal stops cleanly, the second at once."""
    loop = asyncio.get_running_loop()
    signals = list[int]()

    def stop(number: int) -> None:
        signals.append(number)
        if len(signals) > 1:
            # The supervisor processes notice and kill everything that was started.
            os._exit(output.CTRL_C)
        print_note("Stopping running items… Press Ctrl-C again to quit now.")
        control.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)


def print_summary(
    document: Mapping[str, Any], *, executed: bool = True, ctx: RunContext | None = None
) -> None:
    """Print the outcome of a run and the next command; without `executed`, nothing was left to do."""
    unchecked = document.get("uncheckedCount", 0)
    parts = [f"{document['successCount'] - unchecked} of {count(document['itemCount'], 'item')} succeeded"]
    parts += [f"{unchecked} unchecked"] if unchecked else []
    is_completed = document["status"] == "completed"
    aborted = document.get("abortedCount", 0)
    counts = {
        "failed": document["failCount"],
        "timed out": document["timeoutCount"],
        "errors": document["errorCount"] - aborted,
        "aborted": aborted,
        "not needed" if document.get("stopWhen") and is_completed else "not finished": document[
            "unfinishedCount"
        ],
    }
    parts += [
        count(number, "error") if word == "errors" else f"{number:,} {word}"
        for word, number in counts.items()
        if number
    ]
    bound = "≥ " if document.get("costIsLowerBound") else ""
    spent = "" if document["costUsd"] is None else f", {bound}{money(document['costUsd'])}"
    tokens = f", {document['tokensTotal']:,} tokens" if document["tokensTotal"] else ""
    run_id, duration = printable(document["runId"]), seconds(document["durationSec"])
    if executed:
        print_note(f"{run_id} {document['status']} in {duration}: {', '.join(parts)}{tokens}{spent}")
    elif document["unfinishedCount"]:
        print_note(f"{run_id}: nothing to resume, `stop_when` is decided: {', '.join(parts)}")
    else:
        number = document["itemCount"]
        items = "its item is" if number == 1 else f"all {number:,} items are"
        print_note(f"{run_id}: nothing to resume, {items} finished: {', '.join(parts)}")
    if validity := document.get("validity"):
        # Loaded where there is something to say.
        from proctor.validity import validity_text

        print_note(f"warning: {validity_text(validity)}")
    for model, names in (document.get("servedModels") or {}).items():
        if len(names) > 1:
            print_note(
                f"warning: several models answered as {printable(model)}: {printable(', '.join(names))}"
            )
    if unmerged := document.get("unmergedCount", 0):
        print_note(f"{count(unmerged, 'session')} passed but not merged:  proctor review {run_id}")
    if document["reason"] == "cost_limit":
        names = ", ".join(map(printable, document.get("runsOverLimit") or ["A run"]))
        print_note(f"{names} reached cost_per_run_limit. Raise it, then rerun with --resume.")
    elif document["status"] in ("halted", "interrupted"):
        remedy = {"budget": " --budget USD", "agent_start": " --retry-errors"}.get(document["reason"], "")
        if document["reason"] == "budget":
            print_note(f"The budget is reached: {money(document['costUsd'] or 0.0)} spent.")
        if document["reason"] == "store_budget":
            print_note("The store-wide budget is spent. Raise `usd` under [budget] in proctor.toml.")
        print_note(f"Resume with:  proctor resume {run_id}{remedy}")
    else:
        if is_completed and document.get("stopWhen") and document["unfinishedCount"]:
            print_note(f"Stopped early by `stop_when`. Run the rest:  proctor resume {run_id} --no-stop")
        rest = [f"proctor resume {run_id}"] if aborted else []
        commands = [f"proctor show {run_id}", f"proctor report --run {run_id}", *rest]
        print_next(commands, run_id=run_id, ctx=ctx)


@dataclass(frozen=True, slots=True)
class CostAndTime:
    """The predicted cost and time of a dry run, in words and as JSON."""

    lines: Sequence[str]
    document: JsonObject

    def print(self) -> None:
        """Print both."""
        for line in self.lines:
            print_note(printable(line, width=400))


def predict_cost_and_time(
    job: str, plan: JobPlan, ctx: RunContext, *, work: Mapping[Work, int]
) -> CostAndTime:
    """The prediction of a plan whose items are known."""
    return _in_words(runs.forecast(ctx, runs.ReadPlan(job=runs.find_job(job), plan=plan), work=work))


def _in_words(forecast: "Forecast", *, resumes: bool = False) -> CostAndTime:
    # Loaded by dry runs only.
    from proctor.report.estimate import forecast_lines

    lines = forecast_lines(forecast) if forecast.items else []
    if resumes:
        lines = [f"left to run: {count(forecast.items, 'item')}", *lines]
    return CostAndTime(lines, camel_document(forecast))


LISTED = 20
"""New items that a dry run lists; `--json` has them all."""


def print_dry_run(
    expected: DryRun,
    document: JsonObject,
    print_items: Callable[[], None],
    summary: str,
    *,
    name: Callable[[Item], str] | None = None,
    as_json: bool,
) -> int:
    """Print a dry run: the document with its estimate, or items, remarks, estimate and summary.

    `name` names the items that a changed plan would add to its run; None: these are not printed.
    """
    forecast = _in_words(expected.forecast, resumes=bool(expected.earlier))
    extension = expected.extension if name else None
    if as_json:
        # Dry runs only.
        from proctor.api.deprecated import OLD_NAMES_OF_NOTES, with_old_names

        changes = {"resume": _preview_document(extension, name)} if extension and name else {}
        document = {**document, "estimate": forecast.document, **changes}
        print_json(with_old_names(document, OLD_NAMES_OF_NOTES))
        return output.SUCCEEDED
    print_items()
    print_remarks(expected)
    if extension and name:
        _print_preview(extension, expected.job.view.noun, name)
    forecast.print()
    print_note(f"{summary} Dry run: nothing was started.")
    return output.SUCCEEDED


def print_remarks(expected: DryRun) -> None:
    """Print the remarks on a plan."""
    for remark in expected.remarks:
        print_note(f"note: {printable(remark)}")


def _print_preview(extension: "Extension", noun: str, name: Callable[[Item], str]) -> None:
    """Print what resuming a run with a changed plan would change."""
    if not extension.added:
        print_note(f"--resume would add no {noun}: all of them are in the earlier run.")
    else:
        named = ", ".join(printable(name(item)) for item in extension.new[:LISTED])
        more = f" and {extension.added - LISTED:,} more (--json)" if extension.added > LISTED else ""
        print_note(f"--resume would add {count(extension.added, f'new {noun}')}: {named}{more}")
        print_note(f"  {printable(extension.reasons_text(noun), width=400)}")
    print_note(f"  done already: {count(extension.done, noun)}")
    if extension.dropped or extension.retained:
        print_note(
            f"  no longer in the plan: {extension.dropped} would be dropped, "
            f"{extension.retained} with results kept"
        )


def _preview_document(extension: "Extension", name: Callable[[Item], str]) -> JsonObject:
    return {
        "new": [name(item) for item in extension.new],
        "reasons": dict(extension.reasons),
        "dropped": extension.dropped,
        "kept": extension.retained,
        "done": extension.done,
    }
