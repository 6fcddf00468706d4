"""Judges held against people, from what the record has already; and tasks on which two groups differ."""

from datetime import UTC, datetime, timedelta

import pytest

from proctor.jobs.evaluation.labeled_scores import judges
from proctor.score import Score
from proctor.store import Recorder, timestamp
from proctor.store.annotations import Label

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(proctor_store):
    return proctor_store


def judge(store, name, verdicts, *, digest="one", at=NOW):
    """Record verdicts about sessions, as an evaluation does."""
    writer = store.writer()
    for session, label in verdicts.items():
        row = {"job": "evaluation", "status": "running", "startedAt": timestamp(at)}
        recorder = Recorder(writer, f"{name}-{session}-{digest}", row, lambda: at)
        worth = {"Yes": 1.0, "No": 0.0}[label]
        score = Score(
            evaluator=name, evaluator_digest=digest, label=label, value=worth, judged_session=session
        )
        recorder.score(score)
        recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
    writer.close()


def say(store, name, opinions, who="Ada"):
    for session, label in opinions.items():
        said = Label(session_id=session, evaluator=name, who=who, label=label, value=float(label == "Yes"))
        store.save_label(said, NOW)


def no_scale(*_):
    return {}


def test_a_judge_is_held_against_all_that_people_said(store):
    verdicts = {f"s{n}": "Yes" if n % 2 else "No" for n in range(10)}
    judge(store, "polite", verdicts)
    say(store, "polite", {**verdicts, "s0": "Yes", "never judged": "No"})

    (found,) = judges(store.read, no_scale)

    assert (found.labels, found.calibration.things) == (11, 10)
    assert found.calibration.agreement.successes == 9
    assert found.calibration.bias.value == pytest.approx(-0.1)
    assert found.calibration.confusion["Yes", "No"] == 1


def test_labels_without_verdicts_are_told_as_such_and_others_are_left_out(store):
    say(store, "polite", {"s1": "Yes"})
    say(store, "brief", {"s1": "No", "s2": "No"})
    assert [each.evaluator for each in judges(store.read, no_scale)] == ["brief", "polite"]
    (found,) = judges(store.read, no_scale, evaluator="polite")
    assert (found.labels, found.calibration.things, found.digest) == (1, 0, "")


def test_labels_without_values_have_those_of_the_scale_of_the_evaluator_and_dimension(store):
    judge(store, "polite", {"s1": "Yes", "s2": "Yes", "s3": "No"})
    for session, label in {"s1": "yes", "s2": "No", "s3": "Never"}.items():
        store.save_label(Label(session_id=session, evaluator="polite", who="Ada", label=label), NOW)
    scales = {("polite", ""): {"Yes": 1.0, "No": 0.0, "Never": -1.0}}

    (found,) = judges(store.read, lambda *judged: scales[judged])

    assert found.calibration.bias.value == pytest.approx((0 + 1 + 1) / 3)
    assert found.calibration.words == ["Never", "No", "Yes"]


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_the_last_version_is_that_of_the_latest_verdict(store, old, new):
    say(store, "polite", {"s1": "Yes", "s2": "Yes"})
    judge(store, "polite", {"s1": "Yes"}, digest=new, at=NOW + timedelta(hours=1))
    judge(store, "polite", {"s1": "No", "s2": "No"}, digest=old)

    (found,) = judges(store.read, no_scale)

    assert (found.digest, found.calibration.things) == (new, 1)
