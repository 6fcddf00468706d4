"""Review of a mined set: a page with statement, solution and tests of each task, and decisions.

The page keeps decisions in the browser and saves them as a file, which `apply_decisions` reads. Rejected
tasks are moved to `.rejected/`, where no command reads them; mining again does not bring them back.
"""

import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from proctor.errors import UsageError
from proctor.json_values import JsonObject, as_map, as_number, as_text, parse_json, texts_in
from proctor.plan.source import text_of
from proctor.plan.yaml_loader import read_source

REVIEW_FILE, REJECTED_FOLDER, PAGE = "review.json", ".rejected", "review.html"
ARCHIVE = "hidden.tar.xz"
SHOWN_BYTES = 200_000
"""Of one file of tests, or of the solution."""
Decision = Literal["accepted", "rejected", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedTask:
    """A mined task, as a reviewer sees it."""

    name: str
    statement: str
    underspecification: float | None
    fail_to_pass: tuple[str, ...]
    pass_to_pass: int
    message: str
    """Of the commit, which the agent does not see."""
    solution: str
    """As a patch."""
    tests: Mapping[str, str]
    """The text of each test file, by path."""
    decision: Decision = "open"

    def document(self) -> JsonObject:
        """As JSON."""
        return {
            "task": self.name,
            "decision": self.decision,
            "underspecification": self.underspecification,
            "failToPass": len(self.fail_to_pass),
            "passToPass": self.pass_to_pass,
        }


def read_review(folder: Path) -> list[ReviewedTask]:
    """The tasks of a mined set with the decisions about them. Raises `UsageError` if there are none."""
    decisions = read_decisions(folder)
    places = [place for place in sorted(folder.glob("*")) if (place / ARCHIVE).is_file()]
    places += [place for place in sorted(folder.glob(f"{REJECTED_FOLDER}/*")) if (place / ARCHIVE).is_file()]
    if not places:
        raise UsageError(
            f"no mined tasks in {folder}\nPass the --out folder of `proctor tasks from-history`."
        )
    return [_read_task(place, decisions.get(place.name, "open")) for place in places]


def read_decisions(folder: Path) -> dict[str, Decision]:
    """The decision about each task that has one, by its name."""
    file = folder / REVIEW_FILE
    if not file.is_file():
        return {}
    try:
        document = as_map(parse_json(text_of(file)))
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}\nRepair or delete it.") from error
    words: Mapping[str, Decision] = {"accepted": "accepted", "rejected": "rejected"}
    return {name: words[str(word)] for name, word in document.items() if word in words}


def _read_task(place: Path, decision: Decision) -> ReviewedTask:
    header, statement = _split(place / f"{place.name}.md")
    tests, about, solution = dict[str, str](), "", ""
    try:
        with tarfile.open(place / ARCHIVE, "r:*") as archive:
            for member in archive:
                opened = archive.extractfile(member) if member.isfile() else None
                text = opened.read(SHOWN_BYTES).decode("utf-8", "replace") if opened else ""
                if member.name == "task.json" and opened:
                    opened.seek(0)
                    about = opened.read().decode("utf-8", "replace")
                elif member.name == "solution.patch":
                    solution = text
                elif opened and member.name.startswith("tests/"):
                    tests[member.name.removeprefix("tests/")] = text
    except (OSError, tarfile.TarError) as error:
        raise UsageError(f"cannot read {place / ARCHIVE}: {error}\nMine the task again.") from error
    document = as_map(parse_json(about or "{}"))
    return ReviewedTask(
        name=place.name,
        statement=statement,
        underspecification=as_number(as_map(read_source(header, file="").data), "underspecification"),
        fail_to_pass=tuple(texts_in(document, "failToPass")),
        pass_to_pass=len(texts_in(document, "passToPass")),
        message=as_text(document, "message"),
        solution=solution,
        tests=tests,
        decision=decision,
    )


def _split(file: Path) -> tuple[str, str]:
    """The front matter of a task file, and its text."""
    front, _, body = text_of(file).removeprefix("---\n").partition("\n---\n")
    return f"{front}\n", body


def apply_decisions(folder: Path, decisions: Mapping[str, Mapping[str, object]]) -> list[ReviewedTask]:
    """Store decisions `{task: {decision, statement}}`: rewrite edited statements, move rejected tasks away.

    Nothing is changed if one of them is wrong. Raises `UsageError`.
    """
    known = {task.name: task for task in read_review(folder)}
    stored = dict(read_decisions(folder))
    for name, written in decisions.items():
        if name not in known:
            raise UsageError(f"no task `{name}` in {folder}\nAvailable: {', '.join(known)}.")
        word, statement = as_text(written, "decision"), as_text(written, "statement")
        if word not in ("accepted", "rejected", "open", ""):
            raise UsageError(f"`{word}` is not a decision about {name}\nUse accepted, rejected, or open.")
        if statement and not statement.lstrip().lower().startswith("# task:"):
            raise UsageError(f"the statement of {name} has no title\nBegin it with `# Task: TITLE`.")
    for name, written in decisions.items():
        word, statement = as_text(written, "decision"), as_text(written, "statement").strip()
        place = folder / (f"{REJECTED_FOLDER}/{name}" if stored.get(name) == "rejected" else name)
        if statement and statement != known[name].statement.strip():
            header, _ = _split(place / f"{name}.md")
            (place / f"{name}.md").write_text(f"---\n{header}---\n{statement}\n", encoding="utf-8")
        target = folder / (f"{REJECTED_FOLDER}/{name}" if word == "rejected" else name)
        if word and target != place:
            target.parent.mkdir(exist_ok=True)
            place.rename(target)
        stored.pop(name, None) if word == "open" else None
        if word in ("accepted", "rejected"):
            stored[name] = "accepted" if word == "accepted" else "rejected"
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (folder / REVIEW_FILE).write_text(f"{text}\n", encoding="utf-8")
    return read_review(folder)


def read_saved(file: Path) -> dict[str, Mapping[str, object]]:
    """The decisions in a file that the page has saved. Raises `UsageError`."""
    try:
        document = as_map(
            as_map(parse_json(text_of(file, remedy="Pass the file that the page saved."))), "decisions"
        )
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}\nPass the file that the page saved.") from error
    return {name: as_map(written) for name, written in document.items()}


def review_page(folder: Path) -> str:
    """The page as a text; it needs no server and loads nothing."""
    tasks = read_review(folder)
    name = escape(folder.resolve().name)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'unsafe-inline'\"><title>Review of {name}</title><style>{_STYLE}</style>"
        f"<body data-set='{escape(str(folder.resolve()))}'><header><h1>Review of {name}</h1>"
        f"<p><b id=count></b> of {len(tasks)} decided. Then save the decisions, and apply them:</p>"
        f"<p><button id=save>Save review.json</button> "
        f"<code>proctor tasks review {escape(str(folder))} --decisions review.json</code></p></header>"
        f"<main>{''.join(map(_section, tasks))}</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _section(task: ReviewedTask) -> str:
    score = "" if task.underspecification is None else f" · underspecification {task.underspecification:g}"
    counts = f"{len(task.fail_to_pass)} to fix, {task.pass_to_pass} to keep{score}"
    name, statement = escape(task.name), task.statement.strip()
    rows = min(statement.count("\n") + 3, 40)
    return (
        f"<section data-task='{name}' data-decision={task.decision}><h2>{name}</h2><p>{counts}</p>"
        f"<div class=columns><label>Statement<textarea rows={rows}>{escape(statement)}</textarea>"
        f"</label><div><h3>Solution</h3>{_diff(task.solution)}</div></div>"
        f"{_folded('Tests to fix', chr(10).join(task.fail_to_pass))}"
        f"{''.join(_folded(f'Test file {path}', text) for path, text in task.tests.items())}"
        f"{_folded('Commit message (hidden from agents)', task.message)}"
        "<p role=group aria-label=Decision><button data-set-decision=accepted>Accept</button> "
        "<button data-set-decision=rejected>Reject</button> <button data-set-decision=open>Reset</button> "
        "<output></output></p></section>"
    )


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>" if text else ""


def _diff(patch: str) -> str:
    return f"<pre class=diff>{''.join(_diff_lines(patch))}</pre>"


def _diff_lines(patch: str) -> Iterator[str]:
    for line in patch.splitlines():
        kind = {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "")
        yield f"<span class={kind}>{escape(line)}</span>\n" if kind else f"{escape(line)}\n"


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:90rem;padding:0 1rem}
body{color:#1c1c1e;background:#fff}
header{position:sticky;top:0;background:inherit;border-bottom:1px solid #ccc;z-index:1}
h1{font-size:1.4rem;margin:.4rem 0}h2{font-size:1.1rem}h3{font-size:1rem;margin:0}header p{margin:.3rem 0}
section{border-left:4px solid #999;margin:2rem 0;padding-left:1rem}
section[data-decision=accepted]{border-color:#2e7d32}section[data-decision=rejected]{border-color:#b3261e}
.columns{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
@media(max-width:60rem){.columns{grid-template-columns:1fr}}
textarea{width:100%;box-sizing:border-box;font:13px/1.5 ui-monospace,monospace}
pre{overflow:auto;max-height:32rem;background:#f5f5f5;padding:.5rem;font:12px/1.4 ui-monospace,monospace}
.added{color:#1b5e20}.removed{color:#8c1d18}.place{color:#5c5c5c}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}pre{background:#22252b}
.added{color:#81c784}.removed{color:#f2b8b5}.place{color:#aaa}}
"""
_SCRIPT = """
const key = "proctor-review:" + document.body.dataset.set;
const sections = [...document.querySelectorAll("section")];
let state = {};
try { state = JSON.parse(localStorage.getItem(key) || "{}"); } catch {}
const original = new Map(sections.map((s) => [s.dataset.task, s.querySelector("textarea").value]));
function show() {
  for (const s of sections) {
    const one = state[s.dataset.task] || {};
    const decision = one.decision || s.dataset.first;
    s.dataset.decision = decision;
    s.querySelector("output").textContent = decision + ("statement" in one ? ", edited" : "");
  }
  document.getElementById("count").textContent = sections.filter((s) => s.dataset.decision !== "open").length;
}
function keep(task, change) {
  state[task] = { ...state[task], ...change };
  try { localStorage.setItem(key, JSON.stringify(state)); } catch {}
  show();
}
for (const s of sections) {
  const task = s.dataset.task, area = s.querySelector("textarea");
  s.dataset.first = s.dataset.decision;
  if (state[task] && "statement" in state[task]) area.value = state[task].statement;
  area.addEventListener("input", () => {
    if (area.value !== original.get(task)) return keep(task, { statement: area.value });
    delete (state[task] || {}).statement;
    keep(task, {});
  });
  for (const b of s.querySelectorAll("button"))
    b.addEventListener("click", () => keep(task, { decision: b.dataset.setDecision }));
}
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  const text = JSON.stringify({ decisions: state }, null, 1);
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "review.json";
  link.click();
});
show();
"""
