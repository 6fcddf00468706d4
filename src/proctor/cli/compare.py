"""`proctor compare`: what the difference between runs, or between parts of a run, is worth."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.bootstrap import now, places
from proctor.cli import output
from proctor.cli.output import Json, count, print_json, print_note, print_table, printable
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
"""Items on which two groups disagree that are printed; `--json` and `--html` have more."""


@compare_app.command()
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Runs or evaluations; the first is held against.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="success, cost, time, tokens, score:EVALUATOR or metric:NAME. Repeatable."),
    ] = None,
    by: Annotated[str, typer.Option(help="Compare the levels of a factor of one run: model, agent, …")] = "",
    pair: Annotated[
        str, typer.Option(help="What belongs together: item, scenario or session (default: what fits).")
    ] = "",
    gate: Annotated[
        list[str] | None,
        typer.Option(help='What must hold of the difference: "success>=-0.02", "cost<=10%". Repeatable.'),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Also compare scores of different versions of an evaluator.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the same as Markdown.")] = None,
    as_json: Json = False,
) -> int:
    """Compare runs with the first of them, task by task, and say what the difference is worth.

    With gates the exit code is 0 when all pass, 1 when one fails, 3 when there is too little to say.

    Example:  proctor compare baseline-1 change-2 --gate "score:Builtin.Helpfulness>=-0.02"
    """
    if by and len(runs) != 1:
        raise UsageError("--by compares parts of one run\nGive one run, or leave --by out.")
    if not by and len(runs) < 2:
        raise UsageError("there is nothing to compare it with\nGive two runs, or one and --by FACTOR.")
    asked: dict[str, Any] = {
        "metrics": metric or (),
        "gates": [gate_of(text) for text in gate or ()],
        "pair": pair,
        "mixed": mixed,
    }
    with places(context.obj).open_store() as store:
        if by:
            found = compare_within(store.read, runs[0], by, now(), **asked)
        else:
            found = compare_runs(store.read, runs, now(), **asked)
    for path, kind in ((html, "html"), (markdown, "md")):
        if path is not None:
            _write(path, found, kind)
    if as_json:
        print_json(document_of(found))
    else:
        _print(found)
    return {FAIL: output.SOME_DID_NOT, INCONCLUSIVE: output.CUT_SHORT}.get(found.verdict, output.SUCCEEDED)


def document_of(found: Comparison) -> dict[str, Any]:
    """A comparison as the documented JSON."""
    return {
        "baseline": found.groups[0],
        "groups": list(found.groups),
        "pairedBy": found.pair,
        "varied": list(found.varied),
        "standIns": list(found.stand_ins),
        "metrics": list(found.metrics),
        "verdict": found.verdict if found.verdicts else None,
        "gates": [_camel(asdict(each)) for each in found.verdicts],
        "contrasts": [
            _camel(asdict(each)) | {"isSignificant": each.is_significant} for each in found.contrasts
        ],
    }


def _camel(value: Any) -> Any:
    """The same with names as all our JSON has them."""
    if isinstance(value, dict):
        return {_renamed(name): _camel(part) for name, part in value.items()}
    return [_camel(part) for part in value] if isinstance(value, list | tuple) else value


def _renamed(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _print(found: Comparison) -> None:
    baseline = found.groups[0]
    differs = f"; what differs: {', '.join(found.varied[:6])}" if found.varied else ""
    print_note(f"held against {printable(baseline)}, paired by {found.pair}{printable(differs)}")
    if found.stand_ins:
        names = printable(", ".join(found.stand_ins))
        rehearse = "rehearses" if len(found.stand_ins) == 1 else "rehearse"
        print_note(f"note: {names} only {rehearse}: these figures say nothing about real ones")
    _print_contrasts(found.contrasts)
    for each in found.contrasts:
        _print_notes(each)
    if found.contrasts and found.contrasts[0].disagreements:
        _print_disagreements(found.contrasts[0])
    for verdict in found.verdicts:
        wanting = count(verdict.more_pairs or 0, "more pair")
        more = f"; about {wanting} would decide it" if verdict.more_pairs else ""
        which = f"{printable(verdict.gate)}  {printable(verdict.candidate)}"
        print(f"{verdict.verdict.upper()}  {which}: {printable(verdict.words)}{more}")


def _print_contrasts(contrasts: Sequence[Contrast]) -> None:
    # Words of the page, which are loaded with its templates.
    from proctor.report.comparison import around, chance, change, figure, finding

    means = ("METRIC", "CANDIDATE", "BASELINE", "CANDIDATE")
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

    print(f"\nWhere they disagree on {printable(contrast.metric)}:")
    for one in contrast.disagreements[:SHOWN]:
        values = f"{figure(one.baseline, contrast.metric)} → {figure(one.candidate, contrast.metric)}"
        print(f"  {values}  {printable(one.words, width=80)}")


def _print_notes(each: Contrast) -> None:
    name = f"{printable(each.metric)}, {printable(each.candidate)}"
    if any(each.errors):
        print_note(f"note: {name}: {each.errors[0]} and {each.errors[1]} items in error left out")
    if each.unpaired:
        print_note(f"note: {name}: {count(each.unpaired, 'task')} that only one of them has left out")
    for remark in each.remarks:
        print_note(f"note: {name}: {printable(remark)}")


def _write(path: Path, found: Comparison, kind: str) -> None:
    # Pages take templates, which a comparison at the terminal does without.
    from proctor.report.comparison import comparison_html, comparison_markdown

    text = comparison_html(found) if kind == "html" else comparison_markdown(found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}\nGive the path of a file.") from error
    print_note(f"wrote {printable(path)}")
