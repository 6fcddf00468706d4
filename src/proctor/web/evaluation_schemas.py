"""The answers about evaluators, evaluation jobs and people's labels, member by member.

Knows nothing of where the answers come from.
"""

from typing import Any

from pydantic import Field

from proctor.web.run_schemas import ChartShape, RowModel

# The answers about comparisons, member by member.


class MeanShape(RowModel):
    """One group's mean on a metric, over tasks."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    tasks: int
    said: str = Field(default="", description="The value as people read it.")


class DifferenceShape(RowModel):
    """How much the candidate lies above the baseline."""

    value: float
    low: float | None = Field(description="Null, as `high` and `p`: too few to say.")
    high: float | None
    p: float | None = Field(description="Before the correction for all comparisons made together.")
    effect_size: float | None
    smallest_detectable: float | None
    runs_needed: int | None = Field(description="Of each group, or pairs, to find one of this size.")
    is_paired: bool
    test: str
    said: str = Field(default="", description="The difference as people read it, with its sign.")
    interval: str = Field(default="", description="The interval as people read it.")


class ContrastShape(RowModel):
    """One candidate against the baseline, on one metric."""

    metric: str
    baseline: str
    candidate: str
    baseline_mean: MeanShape
    candidate_mean: MeanShape
    difference: DifferenceShape | None = Field(description="Null: it cannot be said.")
    p_corrected: float | None = Field(description="By Holm, for all comparisons of this answer.")
    pairs: int
    unpaired: int
    pairs_needed: int | None
    errors: tuple[int, int] = Field(description="Items of each that failed through no fault of theirs.")
    if_errors_failed: float | None
    is_significant: bool
    finding: str = Field(description="`higher`, `lower`, `none shown` or `cannot be said`.")
    is_better: bool | None = Field(
        description="Null where nothing was found or nobody can say what is better."
    )
    words: str = Field(description="What it comes to, in a sentence or two.")
    remarks: list[str]


class GateShape(RowModel):
    """What a condition says of a candidate."""

    gate: str
    candidate: str
    verdict: str = Field(description="`pass`, `fail` or `inconclusive`.")
    words: str = Field(description="Why.")
    more_pairs: int | None = Field(description="About how many more would decide it; null: cannot be said.")


class ComparisonAnswer(RowModel):
    """What a difference is worth."""

    groups: list[str] = Field(description="The first is the baseline.")
    paired_by: str
    varied: list[str] = Field(description="The inputs that differ between the groups.")
    stand_ins: list[str]
    metrics: list[str] = Field(description="All that could be compared.")
    contrasts: list[ContrastShape]
    charts: list[ChartShape] = Field(description="One for each metric.")
    verdict: str | None = Field(
        description="Of all gates together: one that fails fails all. Null: there are none."
    )
    gates: list[GateShape]


class ComparedSide(RowModel):
    """An item on one side of a disagreement."""

    run_id: str
    item_id: str
    session_id: str | None = Field(description="Its last attempt; of an evaluation, the session it judged.")
    status: str


class DisagreementShape(RowModel):
    """A task that came out differently."""

    words: str
    baseline: float
    candidate: float
    difference: float
    baseline_said: str
    candidate_said: str
    difference_said: str
    baseline_items: list[ComparedSide] = Field(description="At most ten repeats.")
    candidate_items: list[ComparedSide]


class DisagreementsAnswer(RowModel):
    """A window of the tasks that came out differently, the largest differences first."""

    metric: str
    candidate: str
    items: list[DisagreementShape]
    offset: int
    total: int


class RatingShape(RowModel):
    """One answer of a scale."""

    label: str
    value: float | None = Field(description="Null: a label and no more.")


class EvaluatorShape(RowModel):
    """An evaluator that can be named."""

    name: str = Field(description="What scores call it.")
    id: str = Field(description="What a request calls it.")
    level: str = Field(description="`session`, `trace` or `tool_call`; empty where a definition is broken.")
    kind: str = Field(description="`judge`, `program`, `code` or `derived`.")
    asks_model: bool
    source: str = Field(description="`Proctor`, a file, or `the store`.")
    judges: str
    reference: str = Field(default="", description="The ground truth it can use, or needs.")
    needs_reference: bool = False
    ratings: list[RatingShape] = Field(default=[])
    problem: str = Field(default="", description="Why it cannot be used; empty when it can.")


class EvaluatorsAnswer(RowModel):
    """The evaluators there are."""

    evaluators: list[EvaluatorShape]
    judge: str = Field(description="Who judges where nobody is named.")


class EstimateShape(RowModel):
    """A figure with its 95% confidence interval; nulls: not enough data."""

    value: float | None
    low: float | None
    high: float | None
    n: int = 0


class EvaluatorSummary(RowModel):
    """What one version of an evaluator came to, on one dimension."""

    evaluator: str
    asked_as: str
    digest: str
    level: str
    dimension: str
    evaluated: int
    failed: int
    average: EstimateShape
    if_failures_were_zero: float | None
    sessions: int
    labels: dict[str, int]
    wavering: float | None = Field(description="Standard deviation of single votes about the same thing.")
    high_is_bad: bool
    cost_usd: float | None
    labels_chart: str = Field(default="", description="How often each label was given, as SVG.")


class EvaluationLine(RowModel):
    """A job in the list of jobs."""

    id: str
    name: str
    state: str
    created_at: str
    updated_at: str
    evaluators: list[str]
    is_online: bool
    sessions: int
    counts: dict[str, int] = Field(description="Items by status; an item is a session and an evaluator.")
    item_count: int
    finished_count: int
    averages: list[EvaluatorSummary] = Field(description="Without their plots.")
    cost_usd: float | None
    budget_usd: float | None
    details: list[str] = Field(description="Why it failed or stopped.")


class EvaluationPage(RowModel):
    """One page of the jobs there are, newest first."""

    evaluations: list[EvaluationLine]
    total: int
    all: int


class InsightShape(RowModel):
    """Something an insight found in one session or in several."""

    insight: str
    found: str = Field(description="A failure's kind, an intent, an approach.")
    example: str = Field(description="What the judge said about one of the sessions.")
    sessions: list[str] = Field(description="As their source calls them.")


class EvaluationAnswer(EvaluationLine):
    """A job, what it was asked and what it came to."""

    description: str
    source: dict[str, Any]
    judge: str
    votes: int
    ground_truth: list[str]
    completed: int
    in_progress: int
    failed: int
    ignored: int
    tokens: int
    remarks: list[str]
    chart: str = Field(description="The averages, as SVG; empty when there are none.")
    insights: list[InsightShape] = Field(description="The most frequent first.")


class SessionScore(RowModel):
    """What one evaluator came to in one session."""

    evaluator: str
    dimension: str
    mean: float | None
    results: int
    failed: int
    label: str = Field(description="The label, where only one was given.")


class JudgedSession(RowModel):
    """A session of a job."""

    session_id: str
    words: str
    lowest: float | None = Field(
        description="Its worst result; where a high value is bad, 1 less that value."
    )
    mean: float | None
    results: int
    failed: int
    is_open: bool = Field(description="Not all of it has been judged yet.")
    scores: list[SessionScore]


class JudgedSessions(RowModel):
    """A window of the sessions of a job."""

    sessions: list[JudgedSession]
    offset: int
    total: int


class VerdictShape(RowModel):
    """One result, with its reasons."""

    evaluator: str
    digest: str = ""
    level: str
    target: str
    dimension: str
    value: float | None
    label: str
    explanation: str
    error: str
    votes: list[float | str] = Field(default=[])
    cost_usd: float | None = None


class Verdicts(RowModel):
    """The results of a job about one session."""

    session_id: str
    verdicts: list[VerdictShape]


class LabelShape(RowModel):
    """What one person says."""

    who: str
    label: str
    value: float | None
    note: str
    at: str


class LabelledThing(RowModel):
    """Something an evaluator has judged, and what people say of it."""

    evaluator: str
    dimension: str
    level: str
    target: str
    verdict: VerdictShape | None = Field(description="The last one; null: it was labelled and never judged.")
    labels: list[LabelShape]
    ratings: list[RatingShape] = Field(description="What can be said; empty: anything.")


class LabelsAnswer(RowModel):
    """All that was judged or labelled in one session."""

    session_id: str
    things: list[LabelledThing]


class ConfusionShape(RowModel):
    """How often people said the one and the judge the other."""

    human: str
    judge: str
    count: int


class JudgeShape(RowModel):
    """How good a judge is, as far as people have said what they think."""

    evaluator: str
    dimension: str
    level: str
    labels: int
    things: int = Field(description="Labelled things that it has judged as well.")
    sessions: int
    people: int
    agreement: EstimateShape
    kappa: EstimateShape
    weighted: bool
    alpha: EstimateShape
    human_alpha: float | None
    bias: EstimateShape = Field(description="The judge's value less the people's; above 0 it is too kind.")
    confusion: list[ConfusionShape]
    words: str
    remarks: list[str]


class JudgesAnswer(RowModel):
    """The judges that people have given labels for, the most labelled first."""

    judges: list[JudgeShape]
