"""`proctor evaluators`: list, create, test and calibrate evaluators; save human labels."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.api.calibration import (
    EvaluatorWorkbench,
    LabelFields,
    label_rows,
    level_of,
    session_from,
    target_in,
)
from proctor.cli import output
from proctor.cli.calibrate import calibrate, note_mock_judge
from proctor.cli.output import Json, count, money, print_json, print_next, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.evaluator import Evaluator, Evidence
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.code import reference_of
from proctor.evaluators.definition import FUNCTION, new_evaluator
from proctor.evaluators.judging import rubric_names
from proctor.evaluators.matchers import MATCHINGS
from proctor.evaluators.registry import (
    SUFFIXES,
    YES_NO,
    EvaluatorListing,
    EvaluatorNotFound,
    builtin_listing,
    definition_files,
    definition_listing,
    list_evaluators,
    read_definition,
    read_document,
    rubric_criteria,
    rubric_listing,
)
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.score import Score
from proctor.store import Store
from proctor.store.annotations import Label

evaluators_app = typer.Typer(add_completion=False)
apps = {"evaluators": evaluators_app}
Name = Annotated[str, typer.Argument(help="Builtin.X, a file, module:function, or a name from the list.")]


@evaluators_app.callback(invoke_without_command=True)
def evaluators(context: typer.Context, as_json: Json = False) -> int:
    """List evaluators: built-in ones, yours in a folder `evaluators`, those in the store.

    Example:  proctor evaluators show Builtin.Helpfulness
    """
    return output.SUCCEEDED if context.invoked_subcommand else _list(context, as_json)


@evaluators_app.command("list")
def list_command(context: typer.Context, as_json: Json = False) -> int:
    """List evaluators: built-in ones, yours in a folder `evaluators`, those in the store.

    Example:  proctor evaluators list
    """
    return _list(context, as_json)


@evaluators_app.command()
def show(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Show the instructions of an evaluator, its scale, and the ground truth it uses.

    Example:  proctor evaluators show Builtin.Correctness
    """
    with terminal_context(context.obj) as ctx:
        document = _describe(ctx, name)
    if as_json:
        print_json(document)
        return output.SUCCEEDED
    print(f"{printable(document['name'])}  ({document['level']}, {document['kind']}, {document['from']})")
    if document["judges"]:
        print(printable(document["judges"]))
    for label, value in document["ratings"].items():
        print(f"  {printable(label)}" + ("" if value is None else f" = {value:g}"))
    for title, text in document["texts"].items():
        print(f"\n{title}:\n{printable(text, lines=True).rstrip()}")
    return output.SUCCEEDED


@evaluators_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new evaluator.")],
    level: Annotated[
        str, typer.Option(help="What one score covers: session, trace or tool_call.")
    ] = "session",
    kind: Annotated[str, typer.Option(help="Kind of evaluator: judge, function or command.")] = "judge",
    folder: Annotated[Path, typer.Option(help="Folder of the definitions.")] = Path("evaluators"),
    as_json: Json = False,
) -> int:
    """Create the files of a new evaluator, ready to test.

    Example:  proctor evaluators new politeness --level trace
    """
    written = new_evaluator(name, folder, level=level.upper(), kind=kind)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    print_next([f"proctor evaluators test {name} --session SESSION"])
    return output.SUCCEEDED


@evaluators_app.command("test")
def try_out(
    context: typer.Context,
    name: Name,
    session: Annotated[str, typer.Option(help="Session ID, or a file: session JSON, OTLP JSON lines.")],
    reference: Annotated[Path | None, typer.Option(help="Ground-truth file, YAML or JSON.")] = None,
    judge: Annotated[str, typer.Option(help="Judge model, as provider/model.")] = "",
    votes: Annotated[int, typer.Option(min=1, help="Judge calls per target; the majority label wins.")] = 1,
    as_json: Json = False,
) -> int:
    """Evaluate one session and show every score; nothing is stored.

    Example:  proctor evaluators test Builtin.TrajectoryInOrderMatch --session 4f2a --reference truth.yaml
    """
    with terminal_context(context.obj) as ctx:
        truth = reference_of(read_document(reference)) if reference else None
        evidence = session_from(ctx.store, session, truth)
        with EvaluatorWorkbench(ctx, judge=judge, votes=votes) as workbench:
            evaluator = workbench.evaluator(name)
            scores = asyncio.run(workbench.judged(evaluator, [evidence]))[0]
    if isinstance(scores, Exception):
        raise scores
    if as_json:
        print_json(
            {"evaluator": evaluator.name, "digest": evaluator.digest, "scores": [*map(_document, scores)]}
        )
    else:
        _print_scores(evaluator, scores)
    note_mock_judge(evaluator)
    return output.SOME_DID_NOT if any(score.error for score in scores) else output.SUCCEEDED


@evaluators_app.command()
def label(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="Session ID, or an unambiguous prefix.")],
    evaluator: Annotated[str, typer.Option(help="Evaluator that the label is for.")],
    label: Annotated[str, typer.Option(help="Label.")] = "",
    value: Annotated[float | None, typer.Option(help="Value.")] = None,
    target: Annotated[
        str, typer.Option(help="Trace or tool call of the session (default: the whole session).")
    ] = "",
    dimension: Annotated[str, typer.Option(help="Dimension, for a scale with several.")] = "",
    note: Annotated[str, typer.Option(help="Reason.")] = "",
    who: Annotated[str, typer.Option(help="Author of the label (default: your user name).")] = "",
    as_json: Json = False,
) -> int:
    """Save a human label for a session, to measure evaluator agreement. A new label replaces the old one.

    Example:  proctor evaluators label 4f2a --evaluator Builtin.Refusal --target turn-1 --label No
    """
    with terminal_context(context.obj) as ctx:
        evidence = ctx.store.read.evidence(session)
        target = target_in(evidence, target)
        human_label = Label(
            session_id=str(evidence.attributes["id"]),
            evaluator=evaluator,
            who=who or ctx.settings.user_environment.get("USER") or "someone",
            label=label,
            value=value,
            level=level_of(evidence, target),
            target=target,
            dimension=dimension,
            note=note,
        )
        ctx.store.save_label(human_label, ctx.now())
    document = {
        "sessionId": human_label.session_id,
        "target": target,
        "evaluator": evaluator,
        "who": human_label.who,
    }
    if as_json:
        print_json({**document, "label": label, "value": value})
    about = f"{human_label.session_id[:8]} {printable(target)}".strip()
    print_note(f"saved: {printable(label or value)} for {about} by {printable(human_label.who)}")
    return output.SUCCEEDED


@evaluators_app.command("labels")
def import_labels(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV: session, target, label, value, who, dimension, note, evaluator."
        ),
    ],
    evaluator: Annotated[
        str, typer.Option(help="Evaluator that the labels are for, if no column names it.")
    ] = "",
    who: Annotated[str, typer.Option(help="Author, if no column names one (default: your user name).")] = "",
    as_json: Json = False,
) -> int:
    """Save the human labels of a CSV file: of sessions, turns, and tool calls. All of them, or none.

    Example:  proctor evaluators labels labels.csv --evaluator Builtin.Refusal
    """
    problems = list[str]()
    with terminal_context(context.obj) as ctx:
        author = who or ctx.settings.user_environment.get("USER") or "someone"
        labels = list[Label]()
        sessions: dict[str, Evidence] = {}
        for line, row in label_rows(file):
            try:
                labels.append(_label_of(ctx.store, row, sessions, evaluator=evaluator, who=author))
            except (UsageError, NotFound) as error:
                problems.append(f"{file}:{line}: {error}")
        if problems:
            raise UsageError("\n".join(problems[:MOST_PROBLEMS]))
        for each in labels:
            ctx.store.save_label(each, ctx.now())
    levels = Counter(each.level for each in labels)
    if as_json:
        print_json({"labels": len(labels), "sessions": len(sessions), "levels": dict(levels)})
    parts = ", ".join(f"{number} of {level.replace('_', ' ')}s" for level, number in levels.items())
    print_note(f"saved {count(len(labels), 'label')}" + (f": {parts}" if parts else ""))
    return output.SUCCEEDED


MOST_PROBLEMS = 20
"""Problems of a file that are printed."""


def _label_of(
    store: Store, row: LabelFields, sessions: dict[str, Evidence], *, evaluator: str, who: str
) -> Label:
    if not (name := row["evaluator"] or evaluator):
        raise UsageError("a label needs an evaluator\nAdd a column `evaluator`, or give --evaluator.")
    if row["session"] not in sessions:
        sessions[row["session"]] = store.read.evidence(row["session"])
    evidence = sessions[row["session"]]
    target = target_in(evidence, row["target"])
    return Label(
        session_id=str(evidence.attributes["id"]),
        evaluator=name,
        who=row["who"] or who,
        label=row["label"],
        value=row["value"],
        level=level_of(evidence, target),
        target=target,
        dimension=row["dimension"],
        note=row["note"],
    )


evaluators_app.command("calibrate")(calibrate)


def _list(context: typer.Context, as_json: bool) -> int:
    with terminal_context(context.obj) as ctx:
        stored = ctx.store.definitions.all_evaluators()
        definitions = list(list_evaluators(_folders(ctx), stored))
    if as_json:
        print_json({"evaluators": [_listing_document(each) for each in definitions]})
        return output.SUCCEEDED
    print_table(
        ("EVALUATOR", "LEVEL", "KIND", "FROM", "WHAT IT JUDGES"), [_cells(each) for each in definitions]
    )
    return output.SUCCEEDED


def _folders(ctx: RunContext) -> list[Path]:
    return [Path.cwd() / "evaluators", ctx.home / "evaluators"]


def _listing_document(listing: EvaluatorListing) -> dict[str, str]:
    path, folder = listing.path or Path(), Path.cwd()
    file = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    return {
        "name": path.stem if listing.path else listing.name,
        "id": listing.id,
        "level": listing.level.upper() or "–",
        "kind": listing.kind or "–",
        "from": listing.source(file),
        "judges": listing.judges,
        "problem": f"cannot be used: {listing.problem}" if listing.problem else "",
    }


def _cells(listing: EvaluatorListing) -> tuple[str, ...]:
    document = _listing_document(listing)
    columns = [document[name] for name in ("name", "level", "kind", "from")]
    return (*columns, document["problem"] or document["judges"])


def _describe(ctx: RunContext, name: str) -> dict[str, Any]:
    """Everything known about an evaluator, without calling a model."""
    if name in MATCHINGS:
        document = _listing_document(builtin_listing(name)) | {"judges": MATCHINGS[name].description}
        return document | {"ratings": YES_NO, "texts": {}, "uses": ["expectedTrajectory"]}
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in JUDGED:
        return _describe_builtin(name)
    if name in rubric_names():
        texts = {each.name: each.instructions for each in rubric_criteria(name)}
        return _listing_document(rubric_listing(name)) | {"ratings": {}, "texts": texts, "uses": []}
    source, definition = _definition(ctx, name)
    listing = definition_listing(definition, id_=str(definition.get("evaluatorId") or ""))
    judge = as_map(definition, "evaluatorConfig", "llmAsAJudge")
    return _listing_document(listing) | {
        "id": listing.id or listing.name,
        "from": source,
        "ratings": listing.ratings,
        "texts": {"Instructions": judge["instructions"]} if judge else {},
        "definition": dict(definition),
    }


def _describe_builtin(name: str) -> dict[str, Any]:
    listing = builtin_listing(name)
    question, other = question_of(name.removeprefix(PREFIX), 1.0)
    texts = {"Instructions": question.instructions}
    if other:
        texts[f"Instructions where {listing.reference} is given"] = other.instructions
    return _listing_document(listing) | {
        "ratings": dict(listing.ratings),
        "texts": texts,
        "uses": [listing.reference] if listing.reference else [],
    }


def _definition(ctx: RunContext, name: str) -> tuple[str, JsonMap]:
    """Where a definition comes from, and the definition."""
    if name.endswith(SUFFIXES) and Path(name).is_file():
        return name, read_definition(Path(name))
    if (stored := ctx.store.definitions.document(name)) is not None:
        return "the store", stored
    for path in definition_files(_folders(ctx)):
        if path.stem == name:
            return str(path), read_definition(path)
    function, _, level = name.partition("@")
    if FUNCTION.fullmatch(function):
        config = {"codeBased": {"function": function}}
        level = (level or "session").upper()
        return "Python", {"evaluatorName": name, "level": level, "evaluatorConfig": config}
    # Raises with the names that are similar.
    with EvaluatorWorkbench(ctx, judge="scripted/ok") as workbench:
        workbench.evaluator(name)
    raise EvaluatorNotFound(f"there is no evaluator `{name}`")


def _print_scores(evaluator: Evaluator, scores: list[Score]) -> None:
    if not scores:
        print_note(f"this session has no {evaluator.level.replace('_', ' ')} to evaluate")
        return
    for score in scores:
        about = " ".join(filter(None, (score.target or "session", score.dimension)))
        value = "" if score.value is None else f" = {score.value:g}"
        verdict = f"error {score.error_code}: {score.error}" if score.error else f"{score.label}{value}"
        print(f"{printable(about)}: {printable(verdict)}")
        if score.explanation:
            print(f"  {printable(score.explanation)}")
        if score.ignored:
            print(f"  not used: {', '.join(score.ignored)}")
    tokens = sum(score.input_tokens + score.output_tokens for score in scores)
    costs = [score.cost_usd for score in scores if score.cost_usd is not None]
    if tokens:
        print_note(f"{count(tokens, 'token')}, {money(sum(costs) if costs else None)}")


def _document(score: Score) -> JsonObject:
    return {
        "level": score.level,
        "target": score.target,
        "dimension": score.dimension,
        "value": score.value,
        "label": score.label,
        "explanation": score.explanation,
        "votes": list(score.votes),
        "errorCode": score.error_code,
        "error": score.error,
        "ignored": list(score.ignored),
        "inputTokens": score.input_tokens,
        "outputTokens": score.output_tokens,
        "costUsd": score.cost_usd,
    }
