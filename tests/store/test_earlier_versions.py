"""A store that an earlier version wrote opens, reads and resumes. One file for each version of the schema."""

import gzip
from pathlib import Path

import pytest

import proctor

STORES = sorted((Path(__file__).parent / "stores").glob("version-*.db.gz"))


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name.partition(".")[0])
def test_a_store_of_an_earlier_version_opens_and_its_runs_resume(packed, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "proctor.db").write_bytes(gzip.decompress(packed.read_bytes()))
    monkeypatch.setenv("PROCTOR_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    with proctor.open_store() as store:
        runs = {run.id: run for run in store.runs()}
        prompts = runs["prompts"]
        assert (prompts.status, prompts.summary()["unfinishedCount"]) == ("interrupted", 1)
        answers = {item.session.answer for item in prompts.items(status="success")}
        assert answers == {"OK"}
        assert {score.evaluator for item in prompts.items() for score in item.session.scores} >= {
            "checks:polite"
        }

        resumed = prompts.resume()

        assert (resumed.status, resumed.summary()["itemCount"]) == ("completed", 8)
        assert resumed.summary()["unfinishedCount"] == 0
        assert "prompts" in resumed.report(tmp_path / "report.md").read_text()
        assert len(runs) == 4


def test_the_newest_schema_but_one_is_kept_as_a_file():
    migrations = Path(proctor.__file__).parent / "store" / "migrations"
    newest = max(int(path.name[:4]) for path in migrations.glob("*.sql"))

    assert (Path(__file__).parent / "stores" / f"version-{newest - 1}.db.gz").exists()
