"""The answers about comparisons, member by member.

Knows nothing of where the answers come from.
"""

from pydantic import Field

from proctor.web.shapes import ChartShape, Shape


class MeanShape(Shape):
    """One group's mean on a metric, over tasks."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    tasks: int
    said: str = Field(default="", description="The value as people read it.")


class DifferenceShape(Shape):
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


class ContrastShape(Shape):
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


class GateShape(Shape):
    """What a condition says of a candidate."""

    gate: str
    candidate: str
    verdict: str = Field(description="`pass`, `fail` or `inconclusive`.")
    words: str = Field(description="Why.")
    more_pairs: int | None = Field(description="About how many more would decide it; null: cannot be said.")


class ComparisonAnswer(Shape):
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


class ComparedSide(Shape):
    """An item on one side of a disagreement."""

    run_id: str
    item_id: str
    session_id: str | None = Field(description="Its last attempt; of an evaluation, the session it judged.")
    status: str


class DisagreementShape(Shape):
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


class DisagreementsAnswer(Shape):
    """A window of the tasks that came out differently, the largest differences first."""

    metric: str
    candidate: str
    items: list[DisagreementShape]
    offset: int
    total: int
