"""What an evaluation job came to, as a page: averages, labels, and what gives most reason to look.

Knows nothing of stores; computes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from proctor.analyse.evaluation import EvaluationResults, EvaluatorResult
from proctor.analyse.evaluation_targets import JudgedTarget
from proctor.batch.evaluation import Evaluation
from proctor.report.charts import Bar, bars, stacked
from proctor.report.render import page, text

DRAWN_LABELS = 8
KINDS = ("main", "timeout", "error", "running", "queued")
"""Colours for labels, the commonest first. None of them means good or bad, as green and red would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPage:
    """All that a page about a job tells."""

    evaluation: Evaluation
    results: EvaluationResults
    worst: Sequence[Sequence[JudgedTarget]] = field(default=())
    """Of each evaluator, in the order of the results, what gives most reason to look."""
    failed: Sequence[Sequence[JudgedTarget]] = field(default=())
    """Of each evaluator, what could not be judged."""

    @property
    def parts(self) -> list[tuple[EvaluatorResult, Sequence[JudgedTarget], Sequence[JudgedTarget]]]:
        """Each evaluator with its worst and its failed results."""
        return list(zip(self.results.summaries, self.worst, self.failed, strict=True))


def evaluation_html(found: EvaluationPage) -> str:
    """The page as one HTML file that needs nothing else."""
    # A count of words beside shares would leave nothing to be seen of the shares.
    shares = [result for result in found.results.summaries if is_share(result)]
    others = [result for result in found.results.summaries if not is_share(result)]
    plots = {"averages": Markup(averages_chart(shares)), "others": Markup(averages_chart(others))}
    labelled = [result for result in found.results.summaries if result.labels]
    labels = {name_of(result): Markup(labels_chart(result)) for result in labelled}
    return page("evaluation.html.j2", page=found, plots=plots, labels=labels, **_WORDS)


def evaluation_markdown(found: EvaluationPage) -> str:
    """The page as Markdown."""
    return text("evaluation.md.j2", page=found, **_WORDS)


def name_of(result: EvaluatorResult) -> str:
    """What a result is called: its evaluator, the dimension, and of several versions which."""
    return result.title


def is_share(result: EvaluatorResult) -> bool:
    """Whether an average lies between 0 and 1, as those of labels do."""
    return result.average.value is None or 0.0 <= result.average.value <= 1.0


def figure(value: float | None) -> str:
    """A score with the digits that matter."""
    return "–" if value is None else f"{value:.3f}"


def around(result: EvaluatorResult) -> str:
    """An interval in words."""
    average = result.average
    if average.low is None or average.high is None:
        return "too few to say" if average.value is not None else "–"
    return f"{average.low:.3f} to {average.high:.3f}"


_WORDS: Mapping[str, object] = {"name_of": name_of, "figure": figure, "around": around}


def averages_chart(results: Sequence[EvaluatorResult]) -> str:
    """The average of each evaluator with its interval, as a plot; nothing where there is none."""
    entries = [
        Bar(
            label=name_of(result).removeprefix("Builtin.").rpartition(":")[2],
            value=result.average.value,
            low=result.average.low,
            high=result.average.high,
            note=f"{figure(result.average.value)} · n {result.average.n}",
        )
        for result in results
        if result.average.value is not None
    ]
    if not entries:
        return ""
    tops = [end for entry in entries for end in (entry.value, entry.high) if end is not None]
    top = 1.0 if tops and max(tops) <= 1.0 else None
    return bars("Average of each evaluator, with 95 % intervals", entries, top=top, say=figure)


def labels_chart(result: EvaluatorResult) -> str:
    """How often an evaluator gave each label, as a plot."""
    counted = list(result.labels.items())
    shown, rest = counted[:DRAWN_LABELS], sum(number for _, number in counted[DRAWN_LABELS:])
    parts = [*shown, *([("other", rest)] if rest else [])]
    entries = [
        Bar(label=label, value=number, kind=KINDS[place % len(KINDS)])
        for place, (label, number) in enumerate(parts)
    ]
    return stacked(f"Labels of {name_of(result)}", entries)
