"""`proctor search`: full-text search over the transcripts of all sessions."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from proctor.cli import output
from proctor.cli.output import Json, RunOption, count, print_json, print_note, printable
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.json_values import JsonObject
from proctor.store.search import IndexState, SnippetPart, TranscriptHit, parse_query

search_app = typer.Typer(add_completion=False)
apps = {"search": search_app}
NOTE_EVERY = 5000
"""Sessions between two notes about indexing."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@search_app.command()
def search(
    context: typer.Context,
    text: Annotated[
        list[str],
        typer.Argument(
            help='Words that must all occur in one message or tool call, "phrases", and beginnings (begin*).',
            metavar="TEXT…",
        ),
    ],
    run: RunOption = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of results.", metavar="N")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Results to skip, best first.", metavar="N")] = 0,
    as_json: Json = False,
) -> int:
    """Search the messages and tool calls of all sessions, best match first. Exit code 1: nothing matches.

    Example:  proctor search '"permission denied" pip*' --run nightly-42
    """
    query = " ".join(text)
    if not parse_query(query):
        raise UsageError("the search text has no words\nPass words, phrases in quotation marks, or begin*.")
    with terminal_context(context.obj) as ctx:
        run_id = ctx.store.read.batch(run, ctx.now())["runId"] if run else ""
        state = ctx.store.search_index.update(on_progress=_Progress())
        page = ctx.store.search_index.search(query, run_id=run_id, offset=offset, limit=limit)
    if as_json:
        hits = [_document(hit) for hit in page.hits]
        print_json({"text": query, "hits": hits, "hasMore": page.has_more, "indexedSessions": state.indexed})
    else:
        for hit in page.hits:
            print(_lines(hit))
        if not page.hits:
            print_note(f"No match in {count(state.indexed, 'session')}.")
        elif page.has_more:
            print_note(f"More:  --offset {offset + limit}")
    return output.SUCCEEDED if page.hits else output.SOME_DID_NOT


class _Progress:
    """Notes on the indexing of many sessions."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, state: IndexState) -> None:
        if state.pending and state.indexed >= self._next:
            self._next = state.indexed + NOTE_EVERY
            every = count(state.indexed + state.pending, "session")
            print_note(f"indexing transcripts: {state.indexed:,} of {every}")


def _document(hit: TranscriptHit) -> JsonObject:
    names = {"session_id": "sessionId", "run_id": "runId", "item_id": "itemId", "started_at": "startedAt"}
    document: JsonObject = {names.get(name, name): value for name, value in asdict(hit).items()}
    return document | {"snippet": [{"text": part.text, "isMatch": part.is_match} for part in hit.snippet]}


def _lines(hit: TranscriptHit) -> str:
    facts = (hit.session_id, hit.run_id, hit.status, hit.model, f"{hit.name} #{hit.position}")
    head = " · ".join(printable(fact) for fact in facts if fact)
    return f"{head}\n    {''.join(map(_marked, hit.snippet))}"


def _marked(part: SnippetPart) -> str:
    text = printable(part.text)
    return f"{BOLD}{text}{PLAIN}" if part.is_match and sys.stdout.isatty() else text
