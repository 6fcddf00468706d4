"""`proctor evaluators calibrate`: agreement of an evaluator with human labels."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.api.calibration import Calibration, Estimate, Rate, calibrate_evaluator
from proctor.api.deprecated import OLD_NAMES_OF_CALIBRATIONS, with_old_names
from proctor.api.evaluators import mock_judge_of
from proctor.cli import output
from proctor.cli.output import Json, count, money, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.evaluator import Evaluator


def note_mock_judge(evaluator: Evaluator) -> None:
    """Print a note when the judge is a mock."""
    if judge := mock_judge_of(evaluator):
        print_note(f"note: {printable(judge)} is a mock model; its scores say nothing about real judges")


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
            _print(f"{result.evaluator.name} {dimension}".strip(), agreement)
    remarks = dict.fromkeys(remark for each in result.dimensions.values() for remark in each.remarks)
    for remark in (*result.remarks, *remarks):
        print_note(f"note: {printable(remark)}")
    if result.errors:
        failed = count(len(result.errors), "judgment")
        print_note(f"note: {failed} failed and are left out: {printable(result.errors[0], width=200)}")
    if result.cost_usd is not None:
        print_note(f"cost: {money(result.cost_usd)}")
    note_mock_judge(result.evaluator)
    return output.SOME_DID_NOT if result.errors else output.SUCCEEDED


def _print(title: str, calibration: Calibration) -> None:
    counted = [count(calibration.things, "thing"), "in", count(calibration.sessions, "session") + ","]
    print(f"{printable(title)}: {' '.join(counted)} {count(calibration.people, 'person', 'people')}")
    rows = [
        ("agreement", *_rate(calibration.agreement)),
        ("kappa, weighted" if calibration.weighted else "kappa", *_estimate(calibration.kappa)),
        ("alpha, humans and judge", *_estimate(calibration.alpha)),
        ("alpha, humans only", *_estimate(Estimate(value=calibration.human_alpha))),
        ("judge mean", *_estimate(calibration.mean)),
        ("bias (judge − human)", *_estimate(calibration.bias)),
        *(
            (f"error correlation with {bias.by}", *_estimate(bias.correlation))
            for bias in calibration.leanings
        ),
        ("test–retest agreement", *_rate(calibration.retest)),
        ("judge noise (SD)", *_estimate(Estimate(value=_root(calibration.noise_variance)))),
    ]
    print_table(("", "VALUE", "95% CI"), rows)
    print("\nHuman labels (rows) by judge labels (columns):")
    cells = [
        [human, *(calibration.confusion.get((human, machine), 0) or "·" for machine in calibration.words)]
        for human in calibration.words
    ]
    print_table(("", *calibration.words), cells)


def _rate(rate: Rate) -> tuple[str, str]:
    return _estimate(Estimate(value=rate.value, low=rate.low, high=rate.high))


def _estimate(estimate: Estimate) -> tuple[str, str]:
    value = "not known" if estimate.value is None else f"{estimate.value:.3f}"
    return value, estimate.note if estimate.low is None else f"{estimate.low:.3f} to {estimate.high:.3f}"


def _root(variance: float | None) -> float | None:
    return None if variance is None else variance**0.5
