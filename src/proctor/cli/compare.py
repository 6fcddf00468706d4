"""`proctor compare`: compare runs, or the levels of a factor within one run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.cli import output
from proctor.cli.output import Json, count, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.stats.comparison import (
    FAIL,
    INCONCLUSIVE,
    Comparison,
    Contrast,
    compare_runs,
    compare_within,
    gate_of,
)

compare_app = typer.Typer(add_completion=False)
apps = {"compare": compare_app}
SHOWN = 10
"""Disagreements that are printed; `--json` and `--html` have more."""


@compare_app.command()
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs or evaluations to compare; the first is the baseline."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric: success, cost, time, tokens, score:EVALUATOR, or metric:NAME. Repeatable.",
            metavar="METRIC",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Compare the levels of a factor of one run: model, agent, …", metavar="FACTOR")
    ] = "",
    pair: Annotated[
        str,
        typer.Option(help="Pair results by item, scenario, or session (default: auto).", metavar="UNIT"),
    ] = "",
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help='Required difference, candidate − baseline: "success>=-0.02", "cost<=10%". Repeatable.',
            metavar="GATE",
        ),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also compare scores of different versions of an evaluator.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with plots.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown.", metavar="FILE")] = None,
    as_json: Json = False,
) -> int:
    """Compare runs with a baseline, paired by task, with confidence intervals.

    Exit codes with gates: 0 when all pass, 1 when one fails, 3 when inconclusive (not enough data).

    Example:  proctor compare baseline-1 change-2 --gate "score:Builtin.Helpfulness>=-0.02"
    """
    if by and len(runs) != 1:
        raise UsageError("--by compares parts of one run\nPass one run, or omit --by.")
    if not by and len(runs) < 2:
        raise UsageError("there is nothing to compare with\nPass two runs, or one and --by FACTOR.")
    options: dict[str, Any] = {
        "metrics": metric or (),
        "gates": [gate_of(text) for text in gate or ()],
        "pair": pair,
        "mixed": mixed,
    }
    with terminal_context(context.obj) as ctx:
        if by:
            comparison = compare_within(ctx.store.read, runs[0], by, ctx.now(), **options)
        else:
            comparison = compare_runs(ctx.store.read, runs, ctx.now(), **options)
    for path, kind in ((html, "html"), (markdown, "md")):
        if path is not None:
            _write(path, comparison, kind)
    if as_json:
        print_json(document_of(comparison))
    else:
        _print(comparison)
    return {FAIL: output.SOME_DID_NOT, INCONCLUSIVE: output.CUT_SHORT}.get(
        comparison.verdict, output.SUCCEEDED
    )


def document_of(comparison: Comparison) -> dict[str, Any]:
    """A comparison as the documented JSON."""
    return {
        "baseline": comparison.groups[0],
        "groups": list(comparison.groups),
        "pairedBy": comparison.pair,
        "varied": list(comparison.varied),
        "standIns": list(comparison.stand_ins),
        "metrics": list(comparison.metrics),
        "verdict": comparison.verdict if comparison.verdicts else None,
        "gates": [_camel(asdict(each)) for each in comparison.verdicts],
        "contrasts": [
            _camel(asdict(each)) | {"isSignificant": each.is_significant} for each in comparison.contrasts
        ],
    }


def _camel(value: Any) -> Any:
    """The same with names in camel case."""
    if isinstance(value, dict):
        return {_renamed(name): _camel(part) for name, part in value.items()}
    return [_camel(part) for part in value] if isinstance(value, list | tuple) else value


def _renamed(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _print(comparison: Comparison) -> None:
    baseline = comparison.groups[0]
    varies = f" · varies: {', '.join(comparison.varied[:6])}" if comparison.varied else ""
    print_note(f"Baseline: {printable(baseline)} · paired by {comparison.pair}{printable(varies)}")
    if comparison.stand_ins:
        names = printable(", ".join(comparison.stand_ins))
        print_note(f"note: mock results ({names}): draw no conclusions about real agents or models")
    _print_contrasts(comparison.contrasts)
    for each in comparison.contrasts:
        _print_notes(each)
    if comparison.contrasts and comparison.contrasts[0].disagreements:
        _print_disagreements(comparison.contrasts[0])
    for verdict in comparison.verdicts:
        needed = count(verdict.more_pairs or 0, "more pair")
        more = f"; about {needed} would decide it" if verdict.more_pairs else ""
        which = f"{printable(verdict.gate)}  {printable(verdict.candidate)}"
        print(f"{verdict.verdict.upper()}  {which}: {printable(verdict.words)}{more}")


def _print_contrasts(contrasts: Sequence[Contrast]) -> None:
    # Loads the templates of the page.
    from proctor.report.comparison import around, chance, change, figure, finding

    means = ("METRIC", "CANDIDATE", "BASELINE MEAN", "CANDIDATE MEAN")
    heads = (*means, "DIFF", "95% CI", "P (HOLM)", "PAIRS", "RESULT")
    rows = [
        (
            each.metric,
            each.candidate,
            figure(each.baseline_mean.value, each.metric),
            figure(each.candidate_mean.value, each.metric),
            change(each.difference.value if each.difference else None, each.metric),
            around(each),
            chance(each.p_corrected),
            each.pairs or "–",
            finding(each),
        )
        for each in contrasts
    ]
    print_table(heads, rows)


def _print_disagreements(contrast: Contrast) -> None:
    from proctor.report.comparison import figure

    print(f"\nDisagreements on {printable(contrast.metric)}:")
    for one in contrast.disagreements[:SHOWN]:
        values = f"{figure(one.baseline, contrast.metric)} → {figure(one.candidate, contrast.metric)}"
        print(f"  {values}  {printable(one.words, width=80)}")


def _print_notes(each: Contrast) -> None:
    name = f"{printable(each.metric)}, {printable(each.candidate)}"
    if any(each.errors):
        print_note(f"note: {name}: {each.errors[0]} and {each.errors[1]} items with errors excluded")
    if each.unpaired:
        print_note(f"note: {name}: {count(each.unpaired, 'unpaired task')} excluded")
    for remark in each.remarks:
        print_note(f"note: {name}: {printable(remark)}")


def _write(path: Path, comparison: Comparison, kind: str) -> None:
    # Loads templates, which a comparison at the terminal does not need.
    from proctor.report.comparison import comparison_html, comparison_markdown

    text = comparison_html(comparison) if kind == "html" else comparison_markdown(comparison)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}\nUse the path of a file.") from error
    print_note(f"wrote {printable(path)}")
