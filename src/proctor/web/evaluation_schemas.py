"""Response schemas of comparisons, evaluations and human labels. Part of the API manual."""

from collections.abc import Sequence

from pydantic import Field

from proctor.api.comparing import GateResult
from proctor.api.evaluation import DriftCrossingRow, Insight, PairwiseResult
from proctor.api.labels import LabeledTarget, Rating, Verdict
from proctor.api.loaded_results import Reading
from proctor.document import CaptionedChart
from proctor.json_values import JsonObject
from proctor.web.run_schemas import RowModel


class MeanShape(RowModel):
    """Mean of a metric over the tasks of a group."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    tasks: int
    sem: float | None = Field(default=None, description="Standard error of the mean.")
    note: str = ""
    text: str = Field(default="", description="The formatted value.")


class DriftPointShape(RowModel):
    """A point of a drift line: 25 sessions."""

    position: int = Field(description="Number of sessions up to here.")
    at: str
    mean: float = Field(description="Mean score of these sessions.")
    low: float = Field(description="Bounds of the mean since the line started, valid at all times together.")
    high: float


class DriftLineShape(RowModel):
    """The scores of an evaluator of an online configuration over time."""

    config_id: str
    name: str = Field(description="Of the online configuration.")
    evaluator: str
    dimension: str
    sessions: int
    updated_at: str
    state: str = Field(description="One sentence about the latest crossing.")
    points: list[DriftPointShape] = Field(description="The most recent ones.")
    crossings: list[DriftCrossingRow]
    chart: str = Field(description="SVG; empty: fewer than 25 sessions.")


class DriftAnswer(RowModel):
    """Drift lines."""

    lines: list[DriftLineShape]


class DifferenceShape(RowModel):
    """Difference of candidate and baseline."""

    value: float = Field(description="Of a ratio, its distance from 1.")
    low: float | None = Field(description="Null, like `high` and `p`: not enough data.")
    high: float | None
    p: float | None = Field(description="Without correction for multiple comparisons.")
    effect_size: float | None
    smallest_detectable: float | None
    runs_needed: int | None = Field(
        description="Runs per group, or pairs, needed to detect a difference of this size."
    )
    is_paired: bool
    is_ratio: bool = Field(default=False, description="Whether it is a relative change.")
    test: str
    note: str = Field(default="", description="What limits the estimate.")
    text: str = Field(default="", description="The formatted difference, with sign.")
    interval: str = Field(default="", description="The formatted interval.")


class ContrastShape(RowModel):
    """One candidate compared with the baseline on one metric."""

    metric: str
    baseline: str
    candidate: str
    baseline_mean: MeanShape
    candidate_mean: MeanShape
    difference: DifferenceShape | None = Field(description="Null: not enough data.")
    p_corrected: float | None = Field(
        description="Corrected for all comparisons of the response (Bonferroni)."
    )
    pairs: int
    unpaired: int
    pairs_needed: int | None
    errors: tuple[int, int] = Field(description="Items of each group with infrastructure errors.")
    value_if_errors_fail: float | None
    is_significant: bool
    finding: str = Field(description="`higher`, `lower`, `none shown` or `cannot be said`.")
    is_better: bool | None = Field(
        description="Null: no significant difference, or the direction is unknown."
    )
    text: str = Field(description="The result in a sentence or two.")
    notes: list[str]


class ComparisonAnswer(RowModel):
    """A comparison."""

    summary: str = Field(description="The result in one sentence.")
    is_better: bool | None = Field(
        description="Whether the candidate is better. Null: several, not significant, or no direction."
    )
    groups: list[str] = Field(description="The first is the baseline.")
    paired_by: str
    differs_in: list[str] = Field(description="Inputs that differ between the groups.")
    mocks: list[str]
    metrics: list[str] = Field(description="All metrics that can be compared.")
    contrasts: list[ContrastShape]
    charts: Sequence[CaptionedChart] = Field(description="One per metric.")
    verdict: str | None = Field(description="Verdict of all gates; one failure fails all. Null: no gates.")
    gates: Sequence[GateResult]
    is_current: bool = Field(
        default=True, description="False: the items are being read, and nothing is compared yet. Ask again."
    )
    reading: Reading | None = Field(default=None, description="Progress of that. Null: nothing is read.")


class ComparedSide(RowModel):
    """An item of one group."""

    run_id: str
    item_id: str
    session_id: str | None = Field(
        description="Session of its last attempt; for evaluations, the evaluated session."
    )
    status: str


class GroupCountShape(RowModel):
    """The finished items of one group."""

    name: str
    finished: int
    judged: int = Field(description="Succeeded, failed or timed out; without infrastructure errors.")
    succeeded: int


class GroupCountsAnswer(RowModel):
    """Groups of a comparison by counts alone."""

    groups: list[GroupCountShape]


class DisagreementShape(RowModel):
    """A task with different results."""

    task: str
    baseline: float
    candidate: float
    difference: float
    baseline_text: str
    candidate_text: str
    difference_text: str
    baseline_items: list[ComparedSide] = Field(description="At most ten repeats.")
    candidate_items: list[ComparedSide]


class DisagreementsAnswer(RowModel):
    """A window of tasks with different results, largest differences first."""

    metric: str
    candidate: str
    items: list[DisagreementShape]
    offset: int
    total: int


class EvaluatorShape(RowModel):
    """An evaluator."""

    name: str = Field(description="Name in scores.")
    id: str = Field(description="ID in requests.")
    level: str = Field(description="`session`, `trace` or `tool_call`; empty: invalid definition.")
    kind: str = Field(description="`judge`, `program`, `code` or `derived`.")
    asks_model: bool
    source: str = Field(description="`Proctor`, a file, or `the store`.")
    judges: str
    reference: str = Field(default="", description="Ground truth it uses or needs.")
    needs_reference: bool = False
    ratings: list[Rating] = Field(default=[])
    problem: str = Field(default="", description="Why it cannot be used; empty: usable.")


class EvaluatorsAnswer(RowModel):
    """The evaluators."""

    evaluators: list[EvaluatorShape]
    judge: str = Field(description="Default judge model.")


class EstimateShape(RowModel):
    """A figure with its 95% confidence interval; nulls: not enough data."""

    value: float | None
    low: float | None
    high: float | None
    n: int = 0


class EvaluatorSummary(RowModel):
    """Results of one evaluator version on one dimension."""

    evaluator: str
    requested_as: str
    digest: str
    level: str
    dimension: str
    evaluated: int
    failed: int
    average: EstimateShape
    if_failures_were_zero: float | None
    sessions: int
    labels: dict[str, int]
    judge_standard_deviation: float | None = Field(
        description="Standard deviation of votes on the same target."
    )
    noise_from: str = Field(default="", description="Where it was measured: `votes` or `calibration`.")
    scope: str = Field(default="", description="What the interval is about: sessions like these, or these.")
    correction: str = Field(default="", description="The mean corrected for the judge's errors, in words.")
    high_is_bad: bool
    cost_usd: float | None
    labels_chart: str = Field(default="", description="Label frequencies, as SVG.")


class EvaluationLine(RowModel):
    """A line of the list of evaluations."""

    id: str
    name: str
    state: str
    created_at: str
    updated_at: str
    evaluators: list[str]
    is_online: bool
    sessions: int
    counts: dict[str, int] = Field(description="Items (session × evaluator) by status.")
    item_count: int
    finished_count: int
    averages: list[EvaluatorSummary] = Field(description="Without charts.")
    cost_usd: float | None
    budget_usd: float | None
    details: list[str] = Field(description="Why it failed or stopped.")


class EvaluationPage(RowModel):
    """A page of the list of evaluations, newest first."""

    evaluations: list[EvaluationLine]
    total: int
    all: int


class EvaluationAnswer(EvaluationLine):
    """An evaluation: request and results."""

    description: str
    source: JsonObject
    judge: str
    votes: int
    ground_truth: list[str]
    completed: int
    in_progress: int
    failed: int
    ignored: int
    tokens: int
    notes: list[str]
    chart: str = Field(description="Averages, as SVG; empty: none.")
    insights: list[Insight] = Field(description="Most frequent first.")
    pairwise: PairwiseResult | None = Field(
        default=None, description="Who won, of an evaluation that compares pairs of sessions."
    )


class SessionScore(RowModel):
    """Results of one evaluator in one session."""

    evaluator: str
    dimension: str
    mean: float | None
    results: int
    failed: int
    label: str = Field(description="The label, if there is only one.")


class JudgedSession(RowModel):
    """An evaluated session."""

    session_id: str
    name: str
    lowest: float | None = Field(description="Lowest score; where high values are bad, 1 − value.")
    mean: float | None
    results: int
    failed: int
    is_open: bool = Field(description="Evaluation is incomplete.")
    scores: list[SessionScore]


class JudgedSessions(RowModel):
    """A window of evaluated sessions."""

    sessions: list[JudgedSession]
    offset: int
    total: int


class Verdicts(RowModel):
    """The scores of one session."""

    session_id: str
    verdicts: list[Verdict]


class LabelsAnswer(RowModel):
    """Scores and labels of one session."""

    session_id: str
    targets: list[LabeledTarget]


class ConfusionShape(RowModel):
    """A cell of the confusion matrix."""

    human: str
    judge: str
    count: int


class JudgeShape(RowModel):
    """Agreement of a judge with human labels."""

    evaluator: str
    dimension: str
    level: str
    labels: int
    targets: int = Field(description="Targets with both label and score.")
    sessions: int
    people: int
    agreement: EstimateShape
    kappa: EstimateShape
    weighted: bool
    alpha: EstimateShape
    human_alpha: float | None
    bias: EstimateShape = Field(description="Judge minus human value; above 0: too lenient.")
    confusion: list[ConfusionShape]
    order: list[str] = Field(description="All labels, lowest first on an ordinal scale.")
    text: str
    notes: list[str]


class JudgesAnswer(RowModel):
    """Judges with human labels, most labeled first."""

    judges: list[JudgeShape]
