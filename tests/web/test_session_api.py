"""One session over HTTP: its transcript in parts, its long texts in pieces, its changes, its scores."""

import subprocess

from stocked_runs import HOSTILE, add_run, add_session, stock

from proctor.item import Item
from proctor.score import Score
from proctor.session import Intervention, Iteration, Merge, Message, Metric, ModelCall, Note, ToolCall
from proctor.store import Recorder, timestamp
from waiting import TIME_LIMIT_SECONDS


def events(served, session, **asked):
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    return served.get(f"/api/sessions/{session}/events?{query}").json


def test_a_message_of_megabytes_comes_by_its_beginning_and_then_in_pieces(shared):
    long = "äöü 日本 " * 300_000
    add_session(shared.site.context.store, "huge", [Message(role="user", content=long)])

    (event,) = events(shared, "huge")["events"]
    assert event["content"]["isCut"] is True
    assert long.startswith(event["content"]["text"])
    assert len(event["content"]["text"]) == 4000

    whole, offset = "", 0
    while True:
        piece = shared.get(f"/api/sessions/huge/texts/1/content?offset={offset}").json
        whole, offset = whole + piece["text"], offset + len(piece["text"])
        if not piece["isCut"]:
            break
    assert whole == long
    assert shared.get("/api/sessions/huge/texts/2/content").status == 404
    assert shared.get("/api/sessions/huge/texts/1/password").status == 422


def test_a_session_says_what_was_asked_how_it_went_and_what_it_cost(shared, mended):
    session_id = mended["read"]
    session = shared.get(f"/api/sessions/{session_id}").json

    assert (session["status"], session["endReason"], session["isMock"]) == ("success", "completed", True)
    assert (session["totalTokens"], session["costUsd"]) == (940, 0.002)
    assert session["item"]["prompt"]["text"] == "Mend read"
    assert session["item"]["details"]["scriptCommand"].endswith("grep -q + read.py")
    (step,) = session["steps"]
    assert (step["testResult"], step["testExitCode"], step["changedFiles"]) == ("pass", 0, 1)
    assert [attempt["id"] for attempt in session["attempts"]] == [session_id]
    assert shared.get(f"/api/sessions/{session_id}/prompt?offset=5").json["text"] == "read"
    assert shared.get(f"/sessions/{session_id[:19]}").headers["location"] == f"/sessions/{session_id}"
    assert shared.get("/api/sessions/nothing").status == 404
    assert shared.get(f"/api/sessions/{session_id}/turns").status == 404


def test_notes_interventions_merges_metrics_and_scores_of_everywhere_belong_to_a_session(shared):
    recorder = add_session(
        shared.site.context.store,
        "noted",
        [
            Note(text="wrote outside its tree"),
            Intervention(kind="question", text="which branch?"),
            Merge(base_branch="main", result="conflict", conflict_files=("a.py",)),
            Metric(name="mood", value="calm", step=2),
            Iteration(test_result="fail", test_exit_code=3, test_output="x" * 9000),
        ],
    )
    assert recorder.session_id == "noted"
    judge = shared.site.context.store.writer()
    about = {"job": "evaluation", "status": "running", "startedAt": timestamp(shared.site.now())}
    elsewhere = Recorder(judge, "judging", about, shared.site.now)
    elsewhere.score(Score(evaluator="helpful", value=0.5, explanation="so so", judged_session="noted"))
    judge.close()

    session = shared.get("/api/sessions/noted").json

    assert session["notes"] == ["wrote outside its tree", "question: which branch?"]
    assert session["interventions"] == 1
    assert session["merges"][0]["conflictFiles"] == ["a.py"]
    assert session["metrics"] == [{"name": "mood", "step": 2, "value": None, "label": "calm"}]
    expected = [("helpful", "judging")]
    assert [(score["evaluator"], score["sessionId"]) for score in session["scores"]] == expected
    assert session["steps"][0]["testOutput"]["isCut"] is True
    assert shared.get("/api/sessions/noted/steps/1/testOutput").json["text"] == "x" * 9000
    assert shared.get("/api/sessions/judging").json["scores"][0]["scoredSessionId"] == "noted"


def git(shared, *words):
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *words]
    folder = shared.site.folder / "shop"
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_session_has_the_diff_of_its_branch_also_when_it_is_merged(shared, mended):
    address = f"/api/sessions/{mended['merged']}"
    found = shared.get(f"{address}/diff").json
    assert (found["state"], found["baseBranch"], found["files"]) == ("published", "main", 1)
    assert "-total = 1 - 1\n+# Adds.\n+total = 1 + 1\n" in found["diff"]
    patch = shared.get(f"{address}/diff?format=patch")
    assert patch.text == found["diff"]
    assert patch.headers["content-disposition"].endswith('.patch"')

    merged = shared.post(f"{address}/merge")

    assert (merged.status, merged.json["result"]) == (200, "success")
    assert git(shared, "show", "main:merged.py") == "# Adds.\ntotal = 1 + 1\n"
    after = shared.get(f"{address}/diff").json
    assert after["state"] == "merged"
    assert "+total = 1 + 1" in after["diff"]
    assert shared.get(address).json["merges"][-1]["result"] == "success"


def test_a_merge_that_conflicts_is_told_and_changes_nothing(shared, mended):
    (shared.site.folder / "shop" / "conflicting.py").write_text("total = 3\n")
    git(shared, "commit", "-qam", "other")

    refused = shared.post(f"/api/sessions/{mended['conflicting']}/merge").json

    assert (refused["result"], refused["message"]) == ("conflict", "conflicts in conflicting.py")
    assert shared.get(f"/api/sessions/{mended['conflicting']}/diff").json["state"] == "published"


def test_a_session_is_discarded_and_its_record_stays(shared, mended):
    address = f"/api/sessions/{mended['discarded']}"
    branch = shared.get(address).json["branch"]

    assert shared.post(f"{address}/discard").json["result"] == "discarded"

    assert git(shared, "branch", "--list", branch) == ""
    gone = shared.get(f"{address}/diff").json
    assert gone["state"] == "gone"
    assert "+total = 1 + 1" in gone["diff"]
    assert shared.get(address).status == 200


def test_what_has_no_branch_can_be_neither_merged_nor_discarded(shared):
    add_session(shared.site.context.store, "plain", [])
    add_session(
        shared.site.context.store, "lost", [], repo="/nowhere/at/all", branch="batch/x/y/z", baseBranch="main"
    )

    assert shared.get("/api/sessions/plain/diff").json["state"] == "none"
    assert shared.get("/api/sessions/plain/diff?format=patch").status == 400
    assert shared.get("/api/sessions/lost/diff?format=patch").status == 404
    assert shared.post("/api/sessions/plain/merge").status == 400
    assert shared.post("/api/sessions/plain/discard").status == 400
    lost = shared.get("/api/sessions/lost/diff").json
    assert lost["state"] == "unavailable"
    assert "/nowhere/at/all" in lost["problem"]
    assert shared.post("/api/sessions/lost/merge").status == 400


def test_who_watches_a_session_is_told_when_there_is_more(shared):
    writer = shared.site.context.store.writer()
    row = {"job": "coding", "status": "running", "startedAt": timestamp(shared.site.now())}
    recorder = Recorder(writer, "live", row, shared.site.now)
    writer.flush().result(TIME_LIMIT_SECONDS)
    with shared.live() as live:
        assert live.watch(("session", "live"))["changes"]["lastPosition"] == 0

        recorder.record(Message(role="user", content="hello"))
        assert live.next()["changes"]["lastPosition"] == 1

        recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
        assert live.next()["changes"]["status"] == "success"
    writer.close()


def test_a_text_is_found_wherever_it_was_said_or_done(shared):
    long = "wind " * 200_000
    said = [
        Message(role="user", content="Find the Needle in the hay"),
        ToolCall(name="grep", args={"pattern": "needle"}, success=True, result=f"{long}a NEEDLE{long}"),
        ModelCall(model="gpt-5", request="needle", response="needle"),
        Message(role="assistant", content="There was none."),
    ]
    add_session(shared.site.context.store, "hay", said)

    found = shared.get("/api/sessions/hay/search?text=needle").json

    places = [(hit["position"], hit["kind"], hit["name"], hit["part"]) for hit in found["hits"]]
    assert places == [
        (1, "message", "user", "content"),
        (2, "tool_call", "grep", "argsJson"),
        (2, "tool_call", "grep", "result"),
    ]
    deep = found["hits"][2]
    assert (deep["match"], deep["offset"]) == ("NEEDLE", len(long) + 2)
    assert deep["before"].endswith("wind a ") and len(deep["before"]) == 80
    assert not found["hasMore"]
    assert shared.get("/api/sessions/hay/search?text=.*").json["hits"] == []
    assert shared.get("/api/sessions/hay/search?text=").status == 422


def test_a_long_transcript_is_searched_in_parts(shared):
    add_session(
        shared.site.context.store,
        "long",
        [Message(role="user", content=f"word {n % 2}") for n in range(1000)],
    )
    positions, after, has_more = [], 0, True
    while has_more:
        found = shared.get(f"/api/sessions/long/search?text=word+1&limit=150&after={after}").json
        positions += [hit["position"] for hit in found["hits"]]
        after, has_more = found["lastPosition"], found["hasMore"]

    assert positions == list(range(2, 1001, 2))


def test_people_write_notes_stars_tags_and_ratings_about_any_session(served, site):
    stock(site.context.store, "notes", 2)
    ids, hostile = ["n1", "n2"], HOSTILE.replace("\0", "")
    for session_id in ids:
        add_session(site.context.store, session_id, [], run_id="notes")
    path = f"/api/sessions/{ids[0]}/annotations"

    def add(kind, text="", author="ada"):
        return served.post(path, {"kind": kind, "text": text, "author": author})

    assert add("star").status == add("star").status == 200
    assert add("note", hostile).status == 200
    expected = {"sessions": len(ids)}
    assert served.post("/api/annotations", {"kind": "tag", "text": "odd", "sessionIds": ids}).json == expected
    rating = {"evaluator": "Human.Rating", "who": "ada", "value": 4}
    assert served.post(f"/api/sessions/{ids[0]}/labels", rating).status == 200
    assert served.post(f"/api/sessions/{ids[0]}/labels", rating | {"value": 6}).status == 400

    answer = served.get(path).json
    assert [(each["kind"], each["author"]) for each in answer["annotations"]] == [
        ("star", "ada"), ("note", "ada"), ("tag", "someone"),
    ]  # fmt: skip
    assert answer["annotations"][1]["text"] == hostile
    assert [(each["who"], each["label"], each["value"]) for each in answer["ratings"]] == [("ada", "4", 4.0)]
    assert served.get("/api/judges").json == {"judges": []}
    assert served.get("/api/tags?run=notes").json == {"tags": [{"text": "odd", "sessions": len(ids)}]}

    left = served.ask("DELETE", f"{path}/{answer['annotations'][1]['id']}").json["annotations"]
    assert [each["kind"] for each in left] == ["star", "tag"]
    assert served.ask("DELETE", f"{path}/gone").status == 404
    assert add("tag", " ").status == 400
    assert (add("praise").status, add("note", "a\0b").status) == (422, 400)
    assert served.post("/api/annotations", {"kind": "star", "sessionIds": [ids[0], "gone"]}).status == 404
    assert served.ask("DELETE", "/api/runs/notes").status == 200
    assert served.get("/api/tags").json == {"tags": []}


def test_a_session_shows_the_beginning_of_its_prompt_and_details_that_are_not_large(shared):
    for prompt, details in (("x" * 4000, "y" * 19_000), ("x" * 4001, "y" * 20_000)):
        item = Item(runner="prompt", prompt=prompt, details={"about": details}, factors={"a": "b"}, repeat=2)
        run_id = f"run-{len(prompt)}"
        add_run(shared.site.context.store, run_id, [item])
        add_session(shared.site.context.store, f"of-{run_id}", [], run_id, itemId=item.id)
    whole, cut = (shared.get(f"/api/sessions/of-run-{size}").json["item"] for size in (4000, 4001))

    assert whole["prompt"] == {"text": "x" * 4000, "size": 4000, "isCut": False}
    assert cut["prompt"] == {"text": "x" * 4000, "size": 4001, "isCut": True}
    assert (whole["repeat"], whole["factors"]) == (2, {"a": "b"})
    assert (set(whole["details"]), cut["details"]) == ({"about"}, {})


def test_the_first_twelve_metrics_with_several_steps_are_drawn(shared):
    many = [Metric(name=f"m{name:02}", value=1.0, step=step) for name in range(13) for step in (1, 2)]
    add_session(shared.site.context.store, "many", [Metric(name="a", value=1.0, step=1), *many])

    charts = shared.get("/api/sessions/many/charts").json["charts"]

    assert [chart["caption"] for chart in charts] == [f"m{name:02}" for name in range(12)]
    assert "m00 over turns" in charts[0]["svg"] and "step 2" in charts[0]["svg"]
