"""Commands that show or continue results name those that somebody else has written to the store."""

import re
import sqlite3

PLAN = """
runId: one
matrix: [{prompt: [a, b, c, d, e, f], model: [scripted/ok, scripted/echo], expect: {contains: OK}}]
"""


def test_commands_name_the_results_that_somebody_else_wrote(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN)
    commands = [
        ("report", "--run", "one"),
        ("compare", "one", "--by", "model"),
        ("rank", "one"),
        ("export", "--run", "one", "--out", "out"),
        ("resume", "one"),
    ]
    assert proctor("batch", "plan.yaml").returncode == 1
    for command in commands:
        assert "someone else" not in proctor(*command).stderr

    raw = sqlite3.connect(tmp_path / "proctor-home" / "proctor.db", isolation_level=None)
    failed = [row[0] for row in raw.execute("SELECT id FROM batch_items WHERE status = 'fail'")]
    raw.execute("UPDATE batch_items SET status = 'success' WHERE id IN (?, ?)", failed[:2])
    raw.close()

    for command in commands:
        shown = proctor(*command).stderr
        assert "note: 2 results of run one were written or changed by someone else than Proctor: " in shown
        assert failed[0] in shown
        assert failed[1] in shown
    checked = proctor.json("store", "check")
    assert (checked["well"], len(checked["problems"])) == (False, 1)


def test_a_run_that_was_never_signed_is_called_so_by_its_report_alone(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN)
    proctor("batch", "plan.yaml")
    raw = sqlite3.connect(tmp_path / "proctor-home" / "proctor.db", isolation_level=None)
    raw.execute("DELETE FROM signatures")
    raw.close()
    # Beside the key stands which runs have been signed: without it, nothing is known of this one.
    assert "by someone else than Proctor" in proctor("report", "--run", "one").stderr
    (tmp_path / "proctor-home" / "signed-runs").unlink()

    assert "the results of run one are not signed" in proctor("report", "--run", "one").stderr
    assert "signed" not in proctor("compare", "one", "--by", "model").stderr
    assert proctor.json("store", "check")["well"]


def test_the_sizes_of_runs_are_listed(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN)
    proctor("batch", "plan.yaml")

    assert "SIZE" in proctor("runs", "--size").stdout
    assert "SIZE" not in proctor("runs").stdout
    assert "bytes" not in proctor.json("runs")["runs"][0]
    assert "1 run" in proctor("prune", "--older-than", "0h", "--dry-run").stderr
    pruned = proctor("prune", "--older-than", "0h", "--yes")
    assert pruned.returncode == 0 and re.search(r"\nthe store is [\d.]+ kB smaller\n", pruned.stderr)
    assert proctor.json("runs") == {"runs": []}
