"""`proctor evaluators`: list, create, test, calibrate and compare with evaluators; save human labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from proctor.api import evaluation as api
from proctor.api import labels
from proctor.api.calibration import Calibration, Estimate, Rate, calibrate_evaluator
from proctor.api.deprecated import OLD_NAMES_OF_CALIBRATIONS, OLD_NAMES_OF_LABELS, with_old_names
from proctor.api.evaluators import (
    EvaluatorDescription,
    describe_evaluator,
    list_evaluators,
    mock_judge_of,
    try_evaluator,
)
from proctor.api.reliability import Reliability, measure_reliability
from proctor.api.runs import flags as flags_of_job
from proctor.cli import output
from proctor.cli.evaluate import Texts, execute, print_estimate
from proctor.cli.output import (
    Json,
    count,
    money,
    print_json,
    print_next,
    print_note,
    print_table,
    printable,
    setting_options,
    takes_options,
)
from proctor.cli.run import OutputOptions, terminal_context
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.evaluator import Evaluator
from proctor.evaluators.definition import new_evaluator
from proctor.evaluators.registry import EvaluatorListing
from proctor.json_values import JsonMap, JsonObject, without_empty
from proctor.score import Score

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
        description = describe_evaluator(ctx, name)
    document, listing = _description_document(description), description.listing
    if as_json:
        print_json(document)
        return output.SUCCEEDED
    print(f"{printable(listing.name)}  ({document['level']}, {document['kind']}, {document['from']})")
    if listing.judges:
        print(printable(listing.judges))
    for label, value in listing.ratings.items():
        print(f"  {printable(label)}" + ("" if value is None else f" = {value:g}"))
    for title, text in description.texts.items():
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
        trial = try_evaluator(ctx, name, session, reference=reference, judge=judge, votes=votes)
    evaluator, scores = trial.evaluator, trial.scores
    if as_json:
        print_json(
            {
                "evaluator": evaluator.name,
                "digest": evaluator.digest,
                "scores": list(map(_score_document, scores)),
            }
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
        saved = labels.label_session(
            ctx,
            session,
            evaluator,
            author=_author(ctx, who),
            label=label,
            value=value,
            target=target,
            dimension=dimension,
            note=note,
        )
    if as_json:
        document = {
            "sessionId": saved.session_id,
            "target": saved.target,
            "evaluator": evaluator,
            "author": saved.who,
            "label": saved.label,
            "value": saved.value,
        }
        print_json(with_old_names(document, OLD_NAMES_OF_LABELS))
    about = f"{saved.session_id[:8]} {printable(saved.target)}".strip()
    print_note(f"saved: {printable(saved.label or saved.value)} for {about} by {printable(saved.who)}")
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
    with terminal_context(context.obj) as ctx:
        saved = labels.import_labels(ctx, file, evaluator=evaluator, author=_author(ctx, who))
    if as_json:
        print_json({"labels": saved.labels, "sessions": saved.sessions, "levels": dict(saved.levels)})
    parts = ", ".join(f"{number} of {level.replace('_', ' ')}s" for level, number in saved.levels.items())
    print_note(f"saved {count(saved.labels, 'label')}" + (f": {parts}" if parts else ""))
    return output.SUCCEEDED


@evaluators_app.command()
def calibrate(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Evaluator.")],
    labels: Annotated[
        Path | None, typer.Option(help="CSV: session, target, label, value, who, dimension.")
    ] = None,
    labels_from_store: Annotated[
        bool, typer.Option("--labels-from-store", help="Use the labels of the store.")
    ] = False,
    judge: Annotated[str, typer.Option(help="Judge model, as provider/model.")] = "",
    votes: Annotated[int, typer.Option(min=1, help="Judge calls per target; the majority label wins.")] = 1,
    repeats: Annotated[
        int, typer.Option(min=1, help="Score each target N times to measure test–retest noise.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Without effect: intervals are computed, not drawn.")] = 0,  # noqa: ARG001
    as_json: Json = False,
) -> int:
    """Measure agreement of an evaluator with human labels: kappa, alpha, confusion, bias and judge noise.

    The result is stored: later evaluations with the same version show a mean corrected for its errors.

    Example:  proctor evaluators calibrate Builtin.Helpfulness --labels labels.csv --judge openai/gpt-4.1
    """
    if (labels is None) == (not labels_from_store):
        raise UsageError("no labels were named\nGive --labels FILE.csv or --labels-from-store.")
    with terminal_context(context.obj) as ctx:
        result = calibrate_evaluator(ctx, name, labels=labels, judge=judge, votes=votes, repeats=repeats)
    if as_json:
        print_json(with_old_names(result.document(), OLD_NAMES_OF_CALIBRATIONS))
    else:
        for dimension, agreement in result.dimensions.items():
            _print_calibration(f"{result.evaluator.name} {dimension}".strip(), agreement)
    remarks = dict.fromkeys(remark for each in result.dimensions.values() for remark in each.remarks)
    for remark in (*result.remarks, *remarks):
        print_note(f"note: {printable(remark)}")
    return _print_judging(result.errors, result.cost_usd, [result.evaluator])


@evaluators_app.command()
def agreement(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Evaluator.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV: session, target, label, value, who, dimension (default: the labels of the store)."
        ),
    ] = None,
    judge: Annotated[Texts, typer.Option(help="Judge model, as provider/model. Repeatable.")] = None,
    as_json: Json = False,
) -> int:
    """Measure agreement of several judges and people, by dimension: kappa, alpha, and where they differ.

    The judges rate what people labeled. Each person is a rater of their own; nothing is stored.

    Example:  proctor evaluators agreement CBT_adherence --labels codes.csv --judge openai/gpt-4.1
    """
    with terminal_context(context.obj) as ctx:
        result = measure_reliability(ctx, name, judges=judge or (), labels=labels)
    if as_json:
        print_json(result.document())
    else:
        for dimension, found in result.dimensions.items():
            _print_reliability(f"{result.evaluators[0].name} {dimension}".strip(), found)
    return _print_judging(result.errors, result.cost_usd, result.evaluators)


@evaluators_app.command()
@takes_options("settings", setting_options(flags_of_job("evaluation")))
def pairwise(
    context: typer.Context,
    *,
    settings: JsonMap,
    run: Annotated[Texts, typer.Option(help="Run with sessions to compare. Repeatable.")] = None,
    service: Annotated[Texts, typer.Option(help="Compare traces of this service. Repeatable.")] = None,
    log_group: Annotated[Texts, typer.Option(help="Compare traces received under this log group.")] = None,
    files: Annotated[Texts, typer.Option(help="Import these files or folders, then compare them.")] = None,
    session_id: Annotated[Texts, typer.Option(help="Only this session. Repeatable.")] = None,
    start_time: Annotated[str, typer.Option("--start", help="Active at or after: 2026-01-31T14:00Z.")] = "",
    end_time: Annotated[str, typer.Option("--end", help="Active before.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="What is compared: run, model, agent, service, version, prompt, a factor or attribute "
            "(default: run)."
        ),
    ] = "",
    task: Annotated[
        str,
        typer.Option(help="Factor or attribute that names the task (default: scenario, task or prompt)."),
    ] = "",
    question: Annotated[str, typer.Option(help="What the judge is asked.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count pairs and estimate the cost; start nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare sessions of the same tasks pair by pair, each in both orders, and rank runs or models.

    A session wins if it does in both orders; otherwise the pair is a tie. The result is an evaluation:
    `proctor resume` resumes it, and `proctor evaluate get` shows it again.

    Example:  proctor evaluators pairwise --run nightly-41 --run nightly-42 --judge openai/gpt-4.1
    """
    flags = api.RequestFlags(
        settings={**settings, "batch_evaluation_name": settings.get("batch_evaluation_name") or "pairwise"},
        runs=run or (),
        services=service or (),
        log_groups=log_group or (),
        files=files or (),
        session_ids=session_id or (),
        start=start_time,
        end=end_time,
        pairwise=without_empty({"by": by or "run", "task": task, "question": question}),
    )
    with terminal_context(context.obj) as ctx:
        request = api.read_request(ctx, flags)
        if dry_run:
            return print_estimate(ctx, request, as_json=as_json)
        evaluation = api.open_request(ctx, request)
        return execute(ctx, evaluation, OutputOptions(as_json=as_json))


def _author(ctx: RunContext, who: str) -> str:
    return who or ctx.settings.user_environment.get("USER", "")


def _list(context: typer.Context, as_json: bool) -> int:
    with terminal_context(context.obj) as ctx:
        listings = list_evaluators(ctx)
    if as_json:
        print_json({"evaluators": list(map(_listing_document, listings))})
    else:
        print_table(("EVALUATOR", "LEVEL", "KIND", "FROM", "WHAT IT JUDGES"), map(_cells, listings))
    return output.SUCCEEDED


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


def _description_document(description: EvaluatorDescription) -> JsonObject:
    listing, definition = description.listing, description.definition
    more = {"uses": [listing.reference] if listing.reference else []}
    return {
        **_listing_document(listing),
        "from": description.source,
        "ratings": dict(listing.ratings),
        "texts": dict(description.texts),
        **(more if definition is None else {"definition": dict(definition)}),
    }


def _print_scores(evaluator: Evaluator, scores: Sequence[Score]) -> None:
    if not scores:
        print_note(f"this session has no {evaluator.level.replace('_', ' ')} to evaluate")
        return
    for score in scores:
        about = " ".join(filter(None, (score.target or "session", score.dimension)))
        value = "" if score.value is None else f"{score.value:g}"
        given = " = ".join(filter(None, (score.label, value)))
        verdict = f"error {score.error_code}: {score.error}" if score.error else given
        print(f"{printable(about)}: {printable(verdict)}")
        if score.explanation:
            print(f"  {printable(score.explanation)}")
        if score.ignored:
            print(f"  not used: {', '.join(score.ignored)}")
    tokens = sum(score.input_tokens + score.output_tokens for score in scores)
    costs = [score.cost_usd for score in scores if score.cost_usd is not None]
    if tokens:
        print_note(f"{count(tokens, 'token')}, {money(sum(costs) if costs else None)}")


def _score_document(score: Score) -> JsonObject:
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


def note_mock_judge(evaluator: Evaluator) -> None:
    """Print a note when the judge is a mock."""
    if judge := mock_judge_of(evaluator):
        print_note(f"note: {printable(judge)} is a mock model; its scores say nothing about real judges")


def _print_judging(errors: Sequence[str], cost_usd: float | None, evaluators: Sequence[Evaluator]) -> int:
    """Print what judging cost and which judgments failed; the exit code."""
    if errors:
        failed = count(len(errors), "judgment")
        print_note(f"note: {failed} failed and are left out: {printable(errors[0], width=200)}")
    if cost_usd is not None:
        print_note(f"cost: {money(cost_usd)}")
    for evaluator in evaluators:
        note_mock_judge(evaluator)
    return output.SOME_DID_NOT if errors else output.SUCCEEDED


def _print_calibration(title: str, calibration: Calibration) -> None:
    counted = [count(calibration.things, "thing"), "in", count(calibration.sessions, "session") + ","]
    print(f"{printable(title)}: {' '.join(counted)} {count(calibration.people, 'person', 'people')}")
    rows = [
        ("agreement", *_rate_cells(calibration.agreement)),
        ("kappa, weighted" if calibration.weighted else "kappa", *_estimate_cells(calibration.kappa)),
        ("alpha, humans and judge", *_estimate_cells(calibration.alpha)),
        ("alpha, humans only", *_estimate_cells(Estimate(value=calibration.human_alpha))),
        ("judge mean", *_estimate_cells(calibration.mean)),
        ("bias (judge − human)", *_estimate_cells(calibration.bias)),
        *(
            (f"error correlation with {bias.by}", *_estimate_cells(bias.correlation))
            for bias in calibration.leanings
        ),
        ("test–retest agreement", *_rate_cells(calibration.retest)),
        ("judge noise (SD)", *_estimate_cells(Estimate(value=_square_root(calibration.noise_variance)))),
    ]
    print_table(("", "VALUE", "95% CI"), rows)
    print("\nHuman labels (rows) by judge labels (columns):")
    cells = [
        [human, *(calibration.confusion.get((human, machine), 0) or "·" for machine in calibration.words)]
        for human in calibration.words
    ]
    print_table(("", *calibration.words), cells)


MOST_DISAGREEMENTS = 10
"""Targets on which raters differ that are printed; JSON has all."""


def _print_reliability(title: str, found: Reliability) -> None:
    raters = f"{count(len(found.people), 'person', 'people')}, {count(len(found.judges), 'judge')}"
    print(f"{printable(title)}: {count(found.targets, 'target')} with two ratings or more; {raters}")
    alphas = {"all": found.alpha, "people": found.people_alpha, "judges": found.judges_alpha}
    scale = ", ordinal" if found.weighted else ""
    rows = [(f"alpha{scale}, {name}", *_estimate_cells(each)) for name, each in alphas.items()]
    print_table(("", "VALUE", "95% CI"), rows)
    print()
    weighted = "WEIGHTED KAPPA" if found.weighted else "KAPPA"
    pairs = [
        (pair.first, pair.second, f"{pair.same} of {pair.targets}", *_estimate_cells(pair.kappa))
        for pair in found.pairs
    ]
    print_table(("RATER", "WITH", "SAME", weighted, "95% CI"), pairs)
    if shown := found.disagreements[:MOST_DISAGREEMENTS]:
        print(f"\nRated differently, the furthest apart first ({len(shown)} of {len(found.disagreements)}):")
        names = [*found.people, *found.judges]
        cells = [
            (each.session, each.target or "session", *(each.ratings.get(who, "·") for who in names))
            for each in shown
        ]
        print_table(("SESSION", "TARGET", *names), cells)
    if found.off_scale:
        print_note(f"note: {count(found.off_scale, 'rating')} not on the scale left out")
    print()


def _rate_cells(rate: Rate) -> tuple[str, str]:
    return _estimate_cells(Estimate(value=rate.value, low=rate.low, high=rate.high))


def _estimate_cells(estimate: Estimate) -> tuple[str, str]:
    value = "not known" if estimate.value is None else f"{estimate.value:.3f}"
    return value, estimate.note if estimate.low is None else f"{estimate.low:.3f} to {estimate.high:.3f}"


def _square_root(variance: float | None) -> float | None:
    return None if variance is None else variance**0.5
