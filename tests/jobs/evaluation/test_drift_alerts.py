"""Scores of an online configuration become a line; a change of their mean is an alert, sent once."""

import asyncio
import json
import re
import socket
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from filled import NOW
from loopback import posted_to
from online_scores import add_online_config, judged
from proctor.config import WatchSection, read_config
from proctor.errors import UsageError
from proctor.jobs.evaluation import drift
from proctor.jobs.evaluation.drift import MOST_ATTEMPTS, Alerts, DriftWatch, drift_chart, drift_lines
from proctor.store import timestamp
from proctor.store.drift import LineKey

HOSTILE = 'nice<b>\u202e"; rm -rf ~ #\n$(id)'


@pytest.fixture
def store(proctor_store):
    add_online_config(proctor_store)
    return proctor_store


def section(**settings):
    return WatchSection(name="support", **settings)


def crossings(store, evaluator="tidy"):
    return store.drift.crossings(LineKey("c1", evaluator, ""))


def send(store, watch, tmp_path, now=NOW, **environment):
    return asyncio.run(Alerts(store, [watch], environment, tmp_path).send(now))


def test_sessions_become_a_line_with_bounds_in_the_order_in_which_they_were_evaluated(store):
    judged(store, [1.0] * 30 + [(1.0, 0.0)] * 20)
    watch = DriftWatch(store, [])
    watch.look(NOW)
    watch.look(NOW)
    key = LineKey("c1", "tidy", "")

    assert store.drift.values(key, after=0) == [1.0] * 30 + [0.5] * 20
    first, second = store.drift.points(key)
    assert (first["position"], first["mean"], second["mean"]) == (25, 1.0, 0.6)
    assert first["low"] < 1 <= first["high"] and second["low"] >= first["low"]
    assert first["at"] == timestamp(NOW + timedelta(seconds=24))

    judged(store, [1.0] * 10, first=50)
    # Another process continues it.
    DriftWatch(store, []).look(NOW)
    (line,) = store.drift.lines()
    assert (line["sessions"], line["configId"]) == (60, "c1")


def test_a_change_is_recorded_once_and_the_line_starts_anew(store):
    judged(store, [1.0] * 80 + [0.0] * 80)
    DriftWatch(store, []).look(NOW)
    (crossing,) = crossings(store)

    assert (crossing["direction"], crossing["alert"]) == ("down", "none")
    assert 80 < crossing["position"] <= 130 and crossing["afterHigh"] < crossing["beforeLow"]

    judged(store, [0.0] * 30, first=160)
    DriftWatch(store, []).look(NOW)
    assert crossings(store) == [crossing]


def test_settings_of_a_watch_decide_what_counts(store):
    judged(store, [1.0] * 80 + [0.4] * 80)
    DriftWatch(store, [section(margin=0.7)]).look(NOW)
    assert crossings(store) == []

    # With other settings, what is stored is judged again, and the change is found then.
    DriftWatch(store, [section(margin=0.1, command=("true",), direction="up")]).look(NOW)
    judged(store, [0.4], first=160)
    DriftWatch(store, [section(margin=0.1, command=("true",), direction="up")]).look(NOW)
    (crossing,) = crossings(store)
    assert (crossing["direction"], crossing["alert"]) == ("down", "none"), "it rose no alert: it went down"

    with pytest.raises(UsageError, match="support: `reference`"):
        DriftWatch(store, [section(reference=7)])


def test_an_alert_is_posted_once_and_again_until_it_is_accepted(store, tmp_path):
    judged(store, [1.0] * 80 + [0.0] * 80, evaluator=HOSTILE)
    statuses = [500, 302]
    with posted_to(lambda _: statuses.pop(0) if statuses else 204) as server:
        address = f"{server.url}/hook?token=${{TOKEN}}"
        watch = section(webhook=address)
        DriftWatch(store, [watch]).look(NOW)

        assert send(store, watch, tmp_path, TOKEN="s3cret") == 0
        assert send(store, watch, tmp_path, TOKEN="s3cret") == 0, "not before its time"
        (waiting,) = crossings(store, HOSTILE)
        assert (waiting["alert"], waiting["attempts"]) == ("pending", 1)
        assert waiting["problem"] == "the webhook answered with status 500"
        assert send(store, watch, tmp_path, NOW + timedelta(seconds=11), TOKEN="s3cret") == 0
        assert send(store, watch, tmp_path, NOW + timedelta(minutes=2), TOKEN="s3cret") == 1
        assert send(store, watch, tmp_path, NOW + timedelta(hours=9), TOKEN="s3cret") == 0

    assert [each.path for each in server.requests] == ["/hook?token=s3cret"] * 3
    assert len({each.headers["Idempotency-Key"] for each in server.requests}) == 1
    document = server.requests[-1].document
    assert document["watch"] == "support" and document["direction"] == "down"
    assert document["meanBefore"] > 0.9 and document["meanAfter"] < 0.4
    assert "\u202e" not in document["evaluator"] and "\n" not in document["evaluator"]
    assert "<" not in document["text"] and "&lt;b&gt;" in document["text"]
    assert "s3cret" not in json.dumps(document)
    (sent,) = crossings(store, HOSTILE)
    assert (sent["alert"], sent["problem"], sent["nextAt"]) == ("sent", "", None)


def test_a_command_gets_the_alert_as_data_and_no_keys(store, tmp_path):
    judged(store, [0.0] * 80 + [1.0] * 80, evaluator=HOSTILE)
    script = 'cat > "$0"; env > "$0.env"; printf "%s" "$PROCTOR_EVALUATOR" > "$0.name"'
    watch = section(command=("/bin/sh", "-c", script, str(tmp_path / "got")), direction="up")
    DriftWatch(store, [watch]).look(NOW)

    assert send(store, watch, tmp_path, ACME_API_KEY="s3cret", PATH="/usr/bin:/bin") == 1

    document = json.loads((tmp_path / "got").read_text())
    assert document["evaluator"] == 'nice<b>"; rm -rf ~ # $(id)' == (tmp_path / "got.name").read_text()
    assert document["direction"] == "up"
    environment = (tmp_path / "got.env").read_text()
    assert "s3cret" not in environment and "PROCTOR_DIRECTION=up" in environment


def test_an_alert_that_nobody_accepts_fails_at_last_and_says_why(store, tmp_path):
    judged(store, [1.0] * 80 + [0.0] * 80)
    watch = section(command=("/no/such/program",))
    DriftWatch(store, [watch]).look(NOW)
    for hours in range(MOST_ATTEMPTS):
        send(store, watch, tmp_path, NOW + timedelta(hours=2 * hours))
    (crossing,) = crossings(store)

    assert (crossing["alert"], crossing["attempts"]) == ("failed", MOST_ATTEMPTS)
    assert crossing["problem"] == "the command could not be started"


def test_a_webhook_that_cannot_be_reached_is_no_secret_that_gets_out(store, tmp_path):
    judged(store, [1.0] * 80 + [0.0] * 80)
    watch = section(webhook="http://127.0.0.1:9/secret-path")
    DriftWatch(store, [watch]).look(NOW)
    send(store, watch, tmp_path)
    unset = section(webhook="${ALERTS}")
    send(store, unset, tmp_path, NOW + timedelta(hours=1))

    (crossing,) = crossings(store)
    assert crossing["problem"] == "ALERTS is not set"
    assert "secret-path" not in repr(watch)


def test_the_lines_of_a_configuration_go_with_it(store):
    judged(store, [1.0] * 80 + [0.0] * 80)
    DriftWatch(store, []).look(NOW)
    store.definitions.delete_config("c1")
    assert store.drift.lines() == [] and crossings(store) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[watch]\nname = 'a'", "Write \\[\\[watch\\]\\]"),
        ("[[watch]]\nname = 'a b'", "`name` should be a letter"),
        ("[[watch]]\nname = 'a'\nhook = 'x'", "no setting `hook`"),
        ("[[watch]]\nname = 'a'\nalpha = 2", "`alpha` should be a number between 0 and 1"),
        ("[[watch]]\nname = 'a'\ncommand = 'rm -rf'", "`command` should be a list of texts"),
        ("[[watch]]\nname = 'a'\nwebhook = 'file:///x'", "`webhook` should be an address"),
        ("[[watch]]\nname = 'a'\nwebhook = 'http://x'\ncommand = ['x']", "Keep one"),
        ("[[watch]]\nname = 'a'\nevaluators = ['x']", "needs `service` and `log_groups`"),
        ("[[watch]]\nname = 'a'\n[[watch]]\nname = 'a'", "name of another one"),
        ("[[watch]]\nname = 'a'\nscale = [1, 1]", "`scale` should be two numbers"),
    ],
)
def test_a_watch_that_is_written_wrongly_is_refused(tmp_path, text, message):
    (tmp_path / "proctor.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_config([tmp_path], {})


def test_a_watch_is_read_and_a_nearer_file_replaces_it(tmp_path):
    near = tmp_path / "near"
    near.mkdir()
    (tmp_path / "proctor.toml").write_text("[[watch]]\nname = 'a'\nalpha = 0.1\n[[watch]]\nname = 'b'")
    (near / "proctor.toml").write_text("[[watch]]\nname = 'a'\nscale = [1, 5]\ncommand = ['page', 'me']")

    watches = read_config([near, tmp_path], {}).watches

    settings = [(each.name, each.alpha, each.scale) for each in watches]
    assert settings == [("a", 0.01, (1, 5)), ("b", 0.01, None)]
    assert watches[0].command == ("page", "me")


def test_a_watch_in_a_working_folder_is_refused(proctor):
    (proctor.folder / "proctor.toml").write_text("[[watch]]\nname = 'a'\ncommand = ['page', 'me']")

    done = proctor("runs")

    assert done.returncode == 2 and "a proctor.toml in a working folder has a [[watch]]" in done.stderr


def test_lines_are_listed_by_configuration_and_drawn_with_their_crossings(store):
    judged(store, [1.0] * 80 + [0.0] * 80)
    DriftWatch(store, []).look(NOW)

    (line,) = drift_lines(store)
    assert drift_lines(store, "support") == drift_lines(store, "c1") == [line]
    assert drift_lines(store, "nobody") == []
    assert (line.config_id, line.name, line.evaluator, line.sessions) == ("c1", "support", "tidy", 160)
    (crossing,) = line.crossings
    mean = crossing["afterMean"]
    assert line.state == f"Went down from 1 to {mean:.3g} (detected at session {crossing['position']})."

    def drawn(positions):
        points = [{**line.points[0], "position": each} for each in positions]
        return re.findall(r"session (\d+)", drift_chart(replace(line, points=points)))

    svg = drift_chart(line)
    assert "tidy: mean score by session, with anytime-valid bounds" in svg
    assert re.findall(r"session (\d+)", svg) == [str(point["position"]) for point in line.points]
    assert "down, " in svg and drift_chart(replace(line, points=())) == ""
    assert "down, " not in drift_chart(replace(line, points=line.points[-1:]))
    # At most two hundred points are drawn, with the last one.
    assert drawn(range(1, 201)) == [str(n) for n in range(1, 201)]
    assert drawn(range(1, 402))[:2] == ["3", "6"] and drawn(range(1, 402))[-1] == "401"
    assert len(drawn(range(1, 402))) == 134


@pytest.mark.parametrize(
    ("watch", "problem"),
    [
        ({"command": ("/bin/sh", "-c", "exit 3")}, "the command ended with exit code 3"),
        ({"command": ("/bin/sh", "-c", "exec sleep 30")}, "the command did not end within 0.2 s"),
        ({"webhook": "silent"}, "the webhook did not answer within 0.2 s"),
        ({"name": "another", "command": ("true",)}, "no webhook or command is configured"),
        ({}, "no webhook or command is configured"),
    ],
)
def test_why_an_alert_was_not_delivered_is_told(store, tmp_path, monkeypatch, watch, problem):
    judged(store, [1.0] * 80 + [0.0] * 80)
    DriftWatch(store, [section(command=("true",))]).look(NOW)
    if "0.2 s" in problem:
        # Real ones have twenty seconds.
        monkeypatch.setattr(drift, "ALERT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if watch.get("webhook"):
            watch = {"webhook": f"http://127.0.0.1:{silent.getsockname()[1]}/"}
        send(store, WatchSection(**{"name": "support", **watch}), tmp_path, PATH="/usr/bin:/bin")

    (crossing,) = crossings(store)
    assert (crossing["alert"], crossing["problem"]) == ("pending", problem)
    waits, now = [], NOW
    while (crossing := crossings(store)[0])["alert"] == "pending":
        due = datetime.fromisoformat(crossing["nextAt"])
        waits.append(due - now)
        now = due
        send(store, section(), tmp_path, now)
    assert waits[:3] == [drift.FIRST_RETRY, 2 * drift.FIRST_RETRY, 4 * drift.FIRST_RETRY]
    assert max(waits) <= drift.LONGEST_RETRY and len(waits) == MOST_ATTEMPTS - 1
