"""A run is archived for a journal, and its figures are the same where the archive is unpacked."""

import asyncio
import csv
import hashlib
import io
import json
import tracemalloc
import zipfile

import pytest
from harbours import VARIED, reply, write_config, write_harbour

from proctor.export.deposit import unpack_deposit
from proctor.testing.model_server import ModelServer


@pytest.fixture
async def study(proctor):
    """A folder with a finished experiment, recorded, and the archive of it."""
    write_harbour(proctor.folder)
    config = write_config(proctor.folder, runs=3, more=f"{VARIED}\nseed: 1\nrecord: traffic.ndjson")

    def answer(request: dict):
        text = "cooperation 7" if "CALM" in json.dumps(request["messages"]) else "cooperation 3"
        return reply(
            f"UPDATED STATE: {text}" if request["model"] == "narrator" else f"{request['model'].upper()}"
        )

    async with ModelServer(answer) as server:
        known = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}
        done = await asyncio.to_thread(proctor, "experiment", config, environment=known)
    assert done.returncode == 0, done.stderr
    state = json.loads((proctor.folder / "experiments" / "fees" / "batch-state.json").read_text())
    made = await asyncio.to_thread(proctor, "export", "--run", state["run_id"], "--deposit", "study.zip")
    assert made.returncode == 0, made.stderr
    return proctor


async def test_a_deposit_has_data_codebook_config_recording_versions_and_checksums(study) -> None:
    with zipfile.ZipFile(study.folder / "study.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}

    def table(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(files[f"data/{name}.csv"].decode(), newline="")))

    turns = table("turns")
    assert len(turns) == 2 * 3 * 3
    assert {(row["factor.port"], row["metric.cooperation_level"]) for row in turns} == {
        ("openai/calm", "7.0"),
        ("openai/rash", "3.0"),
    }
    codes = {(row["table"], row["column"]): row for row in table("codebook")}
    assert {column for name, column in codes if name == "turns"} == set(turns[0])
    assert set(table("model_calls")[0]) == {column for name, column in codes if name == "model_calls"}
    assert all(row["meaning"] for row in codes.values())
    assert codes["turns", "factor.port"]["levels"] == "openai/calm; openai/rash"
    assert codes["model_calls", "latencyMs"]["unit"] == "ms"
    sums = dict(line.split("  ")[::-1] for line in files.pop("checksums.sha256").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert "recording/traffic.ndjson" in files and b"experiment_name" in files["config/plan.yaml"]
    assert json.loads(files["environment.json"])["packages"]["pydantic"]


async def test_the_figures_are_the_same_where_it_is_unpacked(study, monkeypatch) -> None:
    before = study("analyze", "experiments/fees", "--json")
    unpacked = study("import", "deposit", "study.zip", "--out", "elsewhere")
    monkeypatch.setenv("PROCTOR_HOME", str(study.folder / "another-home"))

    after = study("analyze", "elsewhere/output", "--json")

    assert (unpacked.returncode, after.returncode) == (0, 0), unpacked.stderr + after.stderr
    figures, again = (json.loads(each.stdout) for each in (before, after))
    assert figures["metrics_analysis"]["cooperation_level"]["mean"] == 5
    assert {**again, "files": []} == {**figures, "files": []}


async def test_a_changed_deposit_is_rejected(study) -> None:
    with zipfile.ZipFile(study.folder / "study.zip", "a") as archive:
        archive.writestr("data/more.csv", "forged")

    done = study("import", "deposit", "study.zip", "--out", "elsewhere")

    assert (done.returncode, "was changed: data/more.csv" in done.stderr) == (2, True)
    assert not (study.folder / "elsewhere").exists()


def archive(file, entries):
    """An archive with right checksums, whatever its entries are called."""
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in entries)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in [*entries, ("checksums.sha256", sums.encode())]:
            made.writestr(name, content)


ENVIRONMENT = ("environment.json", b'{"runId": "run"}')


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "entries",
    [
        [ENVIRONMENT, ("../outside", b"")],
        [ENVIRONMENT, ("/outside", b"")],
        [ENVIRONMENT, ("..\\outside", b"")],
        [ENVIRONMENT, ("../outside/", b"")],
        [ENVIRONMENT, ("data/a.csv", b"1"), ("./data/a.csv", b"2")],
        [ENVIRONMENT, ("output", b"/etc"), ("output/passwd", b"")],
        [ENVIRONMENT, ("output", b"/etc"), ("output/", b"")],
        [ENVIRONMENT, ENVIRONMENT],
        [("data/a.csv", b"1")],
        [("environment.json", b"no JSON")],
    ],
)
def test_an_archive_that_is_no_deposit_is_rejected_whole(proctor, entries):
    archive(proctor.folder / "study.zip", entries)

    done = proctor("import", "deposit", "study.zip", "--out", "elsewhere")

    assert (done.returncode, "study.zip" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    assert not (proctor.folder / "elsewhere").exists() and not (proctor.folder / "outside").exists()


def test_the_memory_does_not_depend_on_what_an_archive_holds(tmp_path):
    archive(tmp_path / "study.zip", [ENVIRONMENT, ("data/a.csv", bytes(64 << 20))])

    tracemalloc.start()
    unpack_deposit(tmp_path / "study.zip", tmp_path / "elsewhere")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 << 20
    assert (tmp_path / "elsewhere" / "data" / "a.csv").stat().st_size == 64 << 20


async def test_an_experiment_is_replayed_without_its_models(study) -> None:
    config = write_config(study.folder, runs=3, more=f"{VARIED}\nseed: 1\nreplay: traffic.ndjson")
    text = (study.folder / "experiments" / "fees" / "batch-config.yaml").read_text()
    again = study.folder / "again.yaml"
    again.write_text(text.replace("experiments/fees", "experiments/again"))

    done = await asyncio.to_thread(study, "experiment", str(again), environment={"OPENAI_API_KEY": ""})

    assert done.returncode == 0, f"{config}: {done.stderr}"
    summary = json.loads((study.folder / "experiments" / "again" / "batch-summary.json").read_text())
    assert (summary["runs_completed"], summary["stand_ins"]) == (6, [])
