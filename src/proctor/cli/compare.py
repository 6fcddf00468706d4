"""`proctor compare`: compare runs, or the levels of a factor within one run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from proctor.cli import output
from proctor.cli.output import (
    Columns,
    Json,
    Working,
    count,
    print_json,
    print_note,
    print_table,
    printable,
    write_file,
)
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.jobs.imported.table import columns_of, load_sources
from proctor.stats.comparison import (
    Comparison,
    Contrast,
    compare_groups,
    gate_of,
    groups_by,
    groups_of,
    with_stop_rule,
)
from proctor.stats.differences import FAIL, INCONCLUSIVE

compare_app = typer.Typer(add_completion=False)
apps = {"compare": compare_app}
SHOWN = 10
"""Disagreements that are printed; `--json` and `--html` have more."""
FORMATS = ("text", "md", "html", "json", "junit")


@compare_app.command()
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FILE…",
            help="Runs, evaluations, or files of results (CSV, JSONL, Parquet); the first is the baseline.",
        ),
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
    against: Annotated[
        str, typer.Option(help="Baseline level with --by (default: the first in the plan).", metavar="LEVEL")
    ] = "",
    pair: Annotated[
        str,
        typer.Option(
            help="Pair results by item, task, scenario, or session (default: auto).", metavar="UNIT"
        ),
    ] = "",
    gate: Annotated[
        list[str] | None,
        typer.Option(
            help='Required difference, candidate − baseline: "success>=-0.02", "cost<=10%". Repeatable.',
            metavar="GATE",
        ),
    ] = None,
    column: Columns = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also compare scores of different versions of an evaluator.")
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="text, md, html, json, or junit.", metavar="FORMAT")
    ] = "text",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Output file of --format (default: standard output).", metavar="FILE"),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with plots.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown.", metavar="FILE")] = None,
    as_json: Json = False,
) -> int:
    """Compare runs with a baseline, paired by task, with confidence intervals.

    Exit codes with gates: 0 when all pass, 1 on a regression, 4 when inconclusive (not enough data).

    Example:  proctor compare baseline-1 change-2 --gate "score:Builtin.Helpfulness>=-0.02"
    """
    if by and len(runs) != 1:
        raise UsageError("--by compares parts of one run\nPass one run, or omit --by.")
    if not by and len(runs) < 2:
        raise UsageError("there is nothing to compare with\nPass two runs, or one and --by FACTOR.")
    if against and not by:
        raise UsageError(
            "--against names a level of --by\nPass --by FACTOR; of runs, the first is the baseline."
        )
    if format_ not in FORMATS:
        raise UsageError(f"there is no format {format_}\nThere are: {', '.join(FORMATS)}.")
    gates = [gate_of(each) for each in gate or ()]
    if format_ == "junit" and not gates:
        raise UsageError("a JUnit file holds the verdicts of gates\nPass at least one --gate.")
    with terminal_context(context.obj) as ctx:
        with Working("reading results") as working:
            results = load_sources(ctx.store, runs, ctx.now(), columns=columns_of(column))
            ctx.note_foreign_results(results.runs.labels)
            working.update(0, None, title="comparing")
            if by:
                groups = groups_by(results, by, pair=pair, against=against)
                groups = with_stop_rule(groups, ctx.store.read, runs[0], by)
            else:
                groups = groups_of(results, pair=pair)
            comparison = compare_groups(groups, metrics=metric or (), gates=gates, mixed=mixed)
    for path, kind in ((html, "html"), (markdown, "md")):
        if path is not None:
            _write(path, _formatted(comparison, kind))
    if out is not None:
        _write(out, _formatted(comparison, format_))
    if as_json:
        from proctor.report.comparison import comparison_document

        print_json(comparison_document(comparison))
    elif out is None and format_ != "text":
        print(_formatted(comparison, format_))
    elif out is None:
        _print(comparison)
    return {FAIL: output.SOME_DID_NOT, INCONCLUSIVE: output.INCONCLUSIVE}.get(
        comparison.verdict, output.SUCCEEDED
    )


def _formatted(comparison: Comparison, kind: str) -> str:
    # Loads templates, which a comparison at the terminal does not need.
    from proctor.report import comparison as reports

    if kind == "json":
        return json.dumps(reports.comparison_document(comparison), indent=2, allow_nan=False)
    if kind == "text":
        raise UsageError("--out needs a format of files\nPass --format md, html, json, or junit.")
    formats: dict[str, Callable[[Comparison], str]] = {
        "md": reports.comparison_markdown,
        "html": reports.comparison_html,
        "junit": reports.comparison_junit,
    }
    return formats[kind](comparison)


def _print(comparison: Comparison) -> None:
    baseline = comparison.groups[0]
    varies = f" · varies: {', '.join(comparison.varied[:6])}" if comparison.varied else ""
    print_note(f"Baseline: {printable(baseline)} · paired by {comparison.pair}{printable(varies)}")
    if comparison.stand_ins:
        names = printable(", ".join(comparison.stand_ins))
        print_note(f"note: mock results ({names}): draw no conclusions about real agents or models")
    for run, left in comparison.unfinished.items():
        print_note(
            f"note: {printable(run)} has {count(left, 'item')} without a result: figures will change, "
            "and gates need a finished run"
        )
    _print_contrasts(comparison)
    if comparison.family_size > 1:
        print_note(
            f"CI and p hold for all {comparison.family_size} comparisons together (Bonferroni), "
            f"for {'runs of this task' if comparison.is_one_task else 'tasks like these'}"
        )
    for each in comparison.contrasts:
        _print_notes(each)
    if comparison.contrasts and comparison.contrasts[0].disagreements:
        _print_disagreements(comparison.contrasts[0])
    for verdict in comparison.verdicts:
        which = f"{printable(verdict.gate)}  {printable(verdict.candidate)}"
        print(f"{verdict.verdict.upper()}  {which}: {printable(verdict.words)}")


def _print_contrasts(comparison: Comparison) -> None:
    # Loads the templates of the page.
    from proctor.formatting import chance
    from proctor.report.comparison import around, figure, finding, numbers, size, with_errors

    contrasts = comparison.contrasts
    has_errors = any(each.with_errors is not None for each in contrasts)
    unit = "RUNS" if comparison.is_one_task else "TASKS"
    means = ("METRIC", "CANDIDATE", "BASELINE MEAN", "CANDIDATE MEAN", "DIFF")
    heads = (*means, *(["ERRORS AS FAILURES"] if has_errors else []), "95% CI", "P", unit, "RESULT")
    rows = [
        (
            each.metric,
            each.candidate,
            figure(each.baseline_mean.value, each.metric),
            figure(each.candidate_mean.value, each.metric),
            size(each),
            *([with_errors(each)] if has_errors else []),
            around(each),
            chance(each.p_corrected),
            numbers(each),
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
    if each.difference:
        for note in filter(None, (each.difference.note, each.difference.needs_words)):
            print_note(f"note: {name}: {printable(note)}")


def _write(path: Path, text: str) -> None:
    write_file(path, text)
    print_note(f"wrote {printable(path)}")
