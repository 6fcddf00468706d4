"""The files of a benchmark, and reading them back."""

import itertools
import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.jobs.benchmark.report import machine_info
from proctor.jobs.benchmark.results import read_results, result_files, write_file


def test_a_file_is_named_for_its_model() -> None:
    assert result_files(["gpt-4", "ollama/llama3:8b"]) == {
        "gpt-4": "gpt-4_result.json",
        "ollama/llama3:8b": "ollama_llama3_8b_result.json",
    }


def test_names_that_would_be_the_same_are_numbered_and_stay_when_more_come() -> None:
    first = result_files(["a/b", "a:b"])

    assert first == {"a/b": "a_b_result.json", "a:b": "a_b-2_result.json"}
    assert result_files(["a/b", "a:b", "A_B"]) == {**first, "A_B": "A_B-3_result.json"}


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "x\ny", "名前/モデル", "a" * 900])
def test_no_name_leaves_its_folder(name: str) -> None:
    file = result_files([name])[name]

    assert "/" not in file and "\n" not in file and not file.startswith(".") and len(file) < 200


def test_a_folder_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="--output"):
        write_file(tmp_path / "file" / "x.json", "{}")


def test_what_was_set_aside_before_is_not_replaced(tmp_path: Path) -> None:
    for content in ("one", "two"):
        (tmp_path / "m_result.json").write_text(content)
        read_results(tmp_path)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "m_result.json.damaged": "one",
        "m_result.json.damaged2": "two",
    }


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "comparison_report.json").write_text("not ours to judge")

    assert read_results(tmp_path).damaged == ()
    assert (tmp_path / "comparison_report.json").exists()


def test_the_machine_is_described_and_only_a_mac_with_an_arm_processor_has_apples_graphics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for system, processor in itertools.product(("Darwin", "Linux"), ("arm64", "x86_64")):
        # White box: a machine has one system and one processor.
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        monkeypatch.setattr(platform, "machine", lambda processor=processor: processor)

        info = machine_info(datetime(2026, 3, 1, tzinfo=UTC), tmp_path)

        is_apple = (system, processor) == ("Darwin", "arm64")
        assert info["gpu"] == ({"apple_silicon": True} if is_apple else None)
        known = {"platform", "release", "version", "architecture", "hostname", "python_version"}
        assert set(info["system"]) == known
        assert set(info["cpu"]) == {"physical_cores", "logical_cores", "frequency", "model"}
        json.dumps(info)
