"""Lines of online evaluation scores and crossings once, an alert by one process at a time."""

from datetime import timedelta

import pytest

from filled import NOW
from online_scores import add_online_config, judged
from proctor.errors import StoreError
from proctor.jobs.evaluation.drift import DriftWatch
from proctor.store import timestamp
from proctor.store.drift import LineKey

DATABASES = ["sqlite"]
LINE = LineKey("c1", "tidy", "")


def test_scores_points_crossings_and_alerts_are_kept(store):
    add_online_config(store)
    judged(store, [1.0] * 80 + [(0.0, 0.1)] * 80)
    DriftWatch(store, []).look(NOW)

    assert store.drift.values(LINE, after=78)[:3] == [1.0, 1.0, pytest.approx(0.05)]
    assert [point["position"] for point in store.drift.points(LINE)] == list(range(25, 151, 25))[:6]
    (line,) = store.drift.lines()
    assert (line["sessions"], line["updatedAt"]) == (160, timestamp(NOW + timedelta(seconds=159)))
    (crossing,) = store.drift.crossings(LINE)
    assert store.drift.new_scores("c1", "online", after=0) == []
    assert (
        len(
            store.drift.new_scores("c1", "online", after=0)
            + store.drift.new_scores("c2", "online", after=150)
        )
        == 10
    )
    assert store.drift.finished_up_to("online") == 160

    assert store.drift.take_alert(NOW, until=timedelta(minutes=1)) is None, "nobody gets it"
    store.drift.settle_alert(crossing, "pending", next_at=NOW)
    taken = store.drift.take_alert(NOW, until=timedelta(minutes=1))
    assert (taken["attempts"], taken["position"]) == (1, crossing["position"])
    assert store.drift.take_alert(NOW, until=timedelta(minutes=1)) is None, "another process has it"
    assert store.drift.take_alert(NOW + timedelta(minutes=2), until=timedelta(minutes=1))["attempts"] == 2
    store.drift.settle_alert(crossing, "sent")
    assert store.drift.take_alert(NOW + timedelta(hours=1), until=timedelta(minutes=1)) is None


def test_a_position_of_a_line_is_taken_once(store):
    add_online_config(store)
    score = {"evaluator": "tidy", "dimension": "", "sessionId": "s1", "value": 0.5, "at": timestamp(NOW)}
    store.drift.add(LINE, 0, [score], [], None)

    with pytest.raises(StoreError):
        store.drift.add(LINE, 0, [{**score, "sessionId": "s2"}], [], None)
    assert store.drift.values(LINE, after=0) == [0.5]
