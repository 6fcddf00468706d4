"""Search over runs, sessions and transcripts: over HTTP and at the terminal."""

import json

from stocked_runs import HOSTILE, add_session, stock

from proctor.session import Message, ToolCall


def test_runs_sessions_and_transcripts_are_found_with_marks(served, site, proctor):
    stock(site.context.store, "nightly", 2)
    for number in range(3):
        said = [Message(role="user", content="do it"), Message(role="assistant", content=f"zebra {HOSTILE}")]
        add_session(site.context.store, f"zebra-{number}", said, run_id="nightly")
    add_session(
        site.context.store, "other", [ToolCall(name="run", args={"command": "ls zebra"}, result="none")]
    )

    answer = served.get("/api/search?text=zebra").json
    assert {hit["sessionId"] for hit in answer["hits"]} == {"zebra-0", "zebra-1", "zebra-2", "other"}
    assert {row["id"] for row in answer["sessions"]} == {"zebra-0", "zebra-1", "zebra-2"}
    assert (answer["indexed"], answer["pending"], answer["problem"]) == (4, 0, "")
    hit = next(hit for hit in answer["hits"] if hit["sessionId"] == "zebra-1")
    assert (hit["runId"], hit["kind"], hit["name"], hit["position"]) == ("nightly", "message", "assistant", 2)
    assert hit["snippet"][0] == {"text": "zebra", "isMatch": True}
    assert "<script>" in hit["snippet"][1]["text"]

    first, second = (served.get(f"/api/search?text=zebra&limit=3&offset={at}").json for at in (0, 3))
    expected = (3, True, 1, False)
    assert (len(first["hits"]), first["hasMore"], len(second["hits"]), second["hasMore"]) == expected
    assert (second["runs"], second["sessions"]) == ([], [])
    assert [row["runId"] for row in served.get("/api/search?text=nigh").json["runs"]] == ["nightly"]
    assert {hit["runId"] for hit in served.get("/api/search?text=zebra&run=nightly").json["hits"]} == {
        "nightly"
    }
    assert served.get("/api/search?text=%22%20AND%20(").json["hits"] == []
    assert served.get("/api/search?text=").status == 422

    done = proctor("search", "zebra", "ls", "--json")
    assert (done.returncode, json.loads(done.stdout)["hits"][0]["sessionId"]) == (0, "other")
    plain = proctor("search", "zebra", "--run", "night", "--limit", "1")
    assert "nightly" in plain.stdout
    assert "\x1b" not in plain.stdout
    assert "--offset 1" in plain.stderr
    assert (proctor("search", "unicorn").returncode, proctor("search", "...").returncode) == (1, 2)


def test_what_is_deleted_is_not_found(served, site):
    stock(site.context.store, "brief", 2)
    add_session(site.context.store, "brief-1", [Message(role="assistant", content="okapi")], run_id="brief")
    assert len(served.get("/api/search?text=okapi").json["hits"]) == 1

    assert served.ask("DELETE", "/api/runs/brief").status == 200

    assert served.get("/api/search?text=okapi").json["hits"] == []
