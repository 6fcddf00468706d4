"""The answers about evaluators, evaluation jobs and people's labels, member by member.

Knows nothing of where the answers come from.
"""

from typing import Any

from pydantic import Field

from proctor.web.shapes import Shape


class RatingShape(Shape):
    """One answer of a scale."""

    label: str
    value: float | None = Field(description="Null: a label and no more.")


class EvaluatorShape(Shape):
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


class EvaluatorsAnswer(Shape):
    """The evaluators there are."""

    evaluators: list[EvaluatorShape]
    judge: str = Field(description="Who judges where nobody is named.")


class EstimateShape(Shape):
    """A figure with its 95 % interval; nulls: too few to say."""

    value: float | None
    low: float | None
    high: float | None
    n: int = 0


class EvaluatorSummary(Shape):
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


class EvaluationLine(Shape):
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


class EvaluationPage(Shape):
    """One page of the jobs there are, newest first."""

    evaluations: list[EvaluationLine]
    total: int
    all: int


class InsightShape(Shape):
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


class SessionScore(Shape):
    """What one evaluator came to in one session."""

    evaluator: str
    dimension: str
    mean: float | None
    results: int
    failed: int
    label: str = Field(description="The label, where only one was given.")


class JudgedSession(Shape):
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


class JudgedSessions(Shape):
    """A window of the sessions of a job."""

    sessions: list[JudgedSession]
    offset: int
    total: int


class VerdictShape(Shape):
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


class Verdicts(Shape):
    """The results of a job about one session."""

    session_id: str
    verdicts: list[VerdictShape]


class LabelShape(Shape):
    """What one person says."""

    who: str
    label: str
    value: float | None
    note: str
    at: str


class LabelledThing(Shape):
    """Something an evaluator has judged, and what people say of it."""

    evaluator: str
    dimension: str
    level: str
    target: str
    verdict: VerdictShape | None = Field(description="The last one; null: it was labelled and never judged.")
    labels: list[LabelShape]
    ratings: list[RatingShape] = Field(description="What can be said; empty: anything.")


class LabelsAnswer(Shape):
    """All that was judged or labelled in one session."""

    session_id: str
    things: list[LabelledThing]


class ConfusionShape(Shape):
    """How often people said the one and the judge the other."""

    human: str
    judge: str
    count: int


class JudgeShape(Shape):
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


class JudgesAnswer(Shape):
    """The judges that people have given labels for, the most labelled first."""

    judges: list[JudgeShape]
