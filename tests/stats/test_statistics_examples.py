"""The examples in the docstrings of statistics run and print what they say."""

import contextlib
import doctest
import inspect
import io
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from proctor import stats

MODULES = ("agreement", "intervals", "differences", "power", "ranking", "samples", "sequential", "variance")
OF_THE_STORE = {"progress", "summarize"}
FUNCTIONS = [name for name in stats.__all__ if inspect.isfunction(getattr(stats, name))]


@pytest.mark.parametrize("name", ["batch.estimate", *(f"stats.{name}" for name in MODULES)])
def test_the_examples_print_what_they_say(name):
    module = import_module(f"proctor.{name}")

    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_is_documented_with_an_example(name):
    function = getattr(stats, name)

    assert function.__doc__
    assert ">>>" in function.__doc__ or name in OF_THE_STORE
    assert function.__module__.startswith("proctor.results" if name in OF_THE_STORE else "proctor.stats")


def test_the_package_names_its_public_functions_once():
    assert sorted(stats.__all__) == list(stats.__all__)
    assert all(hasattr(stats, name) for name in stats.__all__)
    # Loading a module must not hide a function of the same name.
    assert all(not inspect.ismodule(getattr(stats, name)) for name in stats.__all__)
    with pytest.raises(AttributeError, match="no attribute 'means'"):
        _ = stats.means


def test_renamed_functions_keep_their_old_names_with_a_warning():
    for old, new in {
        "bill": "mean_cost",
        "typical": "geometric_mean",
        "fewest_for_gate": "tasks_for_gate",
        "summarise": "summarize",
    }.items():
        with pytest.warns(DeprecationWarning, match=f"^stats.{old} is now stats.{new}$"):
            assert getattr(stats, old) is getattr(stats, new)


def test_a_plain_run_loads_neither_numpy_nor_scipy():
    code = (
        "import sys, proctor.stats, proctor.api.run_state, proctor.stats.intervals;"
        "from proctor.stats import Estimate, Rate, wilson; wilson(3, 4);"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    )

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "[]"


# The page

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_the_examples_of_the_statistics_page_print_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for code, printed in blocks:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        assert output.getvalue() == printed
