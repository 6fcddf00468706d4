"""docs/python.md is a notebook from plan to figure: its code runs, in order, as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_code_of_the_page_runs_from_plan_to_figure(library, tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {"__name__": "notebook"}

    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)

    printed = capsys.readouterr().out
    assert "first completed 16" in printed
    assert (tmp_path / "success.png").stat().st_size > 1000
    assert "Improve: Draft: Explain tides" in printed
    assert "there is no setting `timeout_secs`" in printed
    assert names["evaluation"].status == "completed"
