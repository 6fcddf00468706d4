"""`make mutants`: which changes are made to the code, and which of them count as detected."""

import json
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import mutants
import mutation_tests
from mutation_map import LineMap
from mutation_sites import draw_sample, mutants_of


def changes(source: str) -> list[tuple[str, str]]:
    """Kind and changed line of each mutant of a source text."""
    found = mutants_of("src/proctor/store/rows.py", dedent(source))
    return [(mutant.kind, mutant.after) for mutant in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", [("comparison", "x = a <= b")]),
        ("x = a >= b", [("comparison", "x = a > b")]),
        ("x = a == b != c", [("comparison", "x = a != b != c"), ("comparison", "x = a == b == c")]),
        ("x = a is  not b", [("comparison", "x = a is b")]),
        ("x = a not in b", [("comparison", "x = a in b")]),
        ("x = (a) + (b)", [("arithmetic", "x = (a) - (b)")]),
        ("x = a // b", [("arithmetic", "x = a * b")]),
        ("x -= y", [("arithmetic", "x += y")]),
        ("x = a and b", [("boolean", "x = a or b")]),
        ("x = not a", [("negation", "x = a")]),
        ("x = not(a)", [("negation", "x = (a)")]),
        ("x = 41", [("constant", "x = 42")]),
        ("x = 0.5", [("constant", "x = 1.5")]),
        ("x = 1e300", [("constant", "x = 5e+299")]),
        ("save(a)", [("removed statement", "pass")]),
        ("raise Wrong", [("removed statement", "pass")]),
        ("self.x = y", [("removed statement", "pass")]),
        ("self.x: int = y", [("removed statement", "pass")]),
        ("x = f(a, b)", [("swapped arguments", "x = f(b, a)")]),
        ("x = max(a, b)", [("min/max", "x = min(a, b)")]),
    ],
)
def test_each_kind_of_change(source: str, expected: list[tuple[str, str]]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Documentation."""',
        "x: Literal[1]",
        "def f(x: 'a < 1' = None) -> Literal[1]:\n    '''Documentation.'''",
        "Scale = Literal[1, 2]",
        "if TYPE_CHECKING:\n    x = 1",
        "class A(Protocol):\n    x = 1\n    def f(self):\n        raise NotImplementedError",
        "class A(typing.Protocol[T]):\n    x = 1",
        "@overload\ndef f(x=1):\n    ...",
        "logger.info('%s of %s', 1 + n, n)",
        "x = f'{a + 1}'",
        "x = a + 'text'",
        "x = isinstance(a, b)",
        "x = f(a, 'text')",
        "x = f(*a, *b)",
        "x = True",
        "PAGE = 1000",
        "START_SECONDS = 60.0",
        "MOST_BODY_BYTES = 16 * 1024 * 1024",
        "listener = create_server(address, backlog=1024)",
        "ROWS_AT_ONCE = 10 * 50",
        "assert lo is not None and hi > 0",
        "@lru_cache(maxsize=8)\ndef f():\n    ...",
    ],
)
def test_code_without_effect_at_run_time_is_not_changed(source: str) -> None:
    assert changes(source) == []


def test_a_class_for_asyncio_is_not_a_typing_protocol() -> None:
    assert changes("class A(asyncio.Protocol):\n    x = 1") == [("constant", "x = 2")]


def test_a_change_leaves_the_rest_of_the_file_as_it_is() -> None:
    source = "name = 'Grüße'; x = (\n    'ß'  # < is in a comment\n    < b\n)\n"
    (mutant,) = mutants_of("src/proctor/git.py", source)

    assert mutant.apply(source) == source.replace("    < b", "    <= b")
    assert (mutant.line, mutant.before, mutant.after) == (3, "< b", "<= b")


@pytest.mark.parametrize(
    ("path", "package", "module"),
    [
        ("src/proctor/git.py", "git", "proctor.git"),
        ("src/proctor/store/reading.py", "store", "proctor.store.reading"),
        ("src/proctor/models/gateway/__init__.py", "models", "proctor.models.gateway"),
        ("src/proctor/__init__.py", "__init__", "proctor"),
    ],
)
def test_a_package_is_the_first_folder_or_the_name_of_a_module(path: str, package: str, module: str) -> None:
    (mutant,) = mutants_of(path, "x = 1")

    assert (mutant.package, mutant.module) == (package, module)


FILES = {
    ".gitignore": "/build/\n/ignored/\n__pycache__/\n",
    "src/proctor/__init__.py": "",
    "src/proctor/money/__init__.py": "",
    "src/proctor/money/limits.py": """
        def allowed(cost, limit):
            return cost <= limit
        """,
    "src/proctor/money/unchecked.py": """
        def doubled(cost):
            return cost * cost
        """,
    "src/proctor/clock.py": """
        def half(hours):
            return hours / 2
        """,
    "tests/money/test_limits.py": """
        from proctor.money.limits import allowed

        def test_the_limit_itself_is_allowed():
            assert allowed(1, 1)
        """,
    "tests/money/test_broken.py": """
        def test_that_always_fails():
            assert not "fixed yet"
        """,
    "tests/test_others.py": """
        import subprocess, sys
        from proctor import clock

        def test_the_program_divides():
            command = [sys.executable, "-c", "from proctor.clock import half; print(half(6))"]
            assert subprocess.run(command, env={}, capture_output=True, text=True).stdout == "3.0\\n"
        """,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project in a git repository, whose tests need no plugins: loading ours takes a second."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text).lstrip())
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def sample(root: Path, **options: Any) -> list[tuple[str, str]]:
    return [
        (mutant.path, mutant.after) for mutant in draw_sample(root, **{"seed": 1, "count": 100} | options)
    ]


def test_a_sample_depends_on_its_seed_only(project: Path) -> None:
    everything = sample(project)

    assert len(everything) == 4
    assert sample(project) == everything
    assert sample(project, count=3) == everything[:3]
    other = sample(project, seed=2)
    assert other != everything and sorted(other) == sorted(everything)


def test_edits_elsewhere_leave_the_order_of_a_sample_unchanged(project: Path) -> None:
    before = sample(project)
    file = project / "src/proctor/clock.py"
    file.write_text("START = 7\n\n" + file.read_text())

    after = sample(project)

    assert [entry for entry in after if entry[1] != "START = 8"] == before


def test_a_sample_can_be_limited_to_packages(project: Path) -> None:
    assert {path for path, _ in sample(project, packages=["clock"])} == {"src/proctor/clock.py"}
    with pytest.raises(SystemExit, match="no code to mutate in package nowhere"):
        sample(project, packages=["clock", "nowhere"])


def test_only_tests_that_cover_a_module_run_the_likeliest_to_fail_first(project: Path) -> None:
    """Those that import it, of its package, of packages that import it, and of the whole program."""
    more = {
        "src/proctor/bank/__init__.py": "",
        "src/proctor/bank/teller.py": "from proctor.money import limits\n",
        "tests/bank/test_teller.py": "",
        "tests/test_all.py": "from proctor.money import unchecked\n",
        "tests/whole/test_program.py": "",
    }
    for name, text in more.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (limit,) = mutants_of("src/proctor/money/limits.py", "x = 1")
    (clock,) = mutants_of("src/proctor/clock.py", "x = 1")
    covering = [
        ["tests/money/test_limits.py"],
        ["tests/money/test_broken.py"],
        ["tests/test_all.py"],
        ["tests/bank/test_teller.py"],
        ["tests/whole/test_program.py"],
    ]

    assert mutation_tests.TestFiles(project).stages(limit) == covering
    assert mutation_tests.TestFiles(project, all_tests=True).stages(limit) == [
        *covering,
        ["tests/test_others.py"],
    ]
    assert mutation_tests.TestFiles(project).stages(clock) == [
        ["tests/test_others.py"],
        ["tests/whole/test_program.py"],
    ]

    (project / "tests/money/test_another.py").write_text("from proctor.money import limits\n")
    (project / "src/proctor/money/limits.py").write_text("def most():\n    return 1\n")
    (project / "tests/money/test_limits.py").write_text("from proctor.money.limits import most\n")
    (named,) = mutants_of("src/proctor/money/limits.py", "def most():\n    return 1\n")
    assert mutation_tests.TestFiles(project).stages(named)[:2] == [
        ["tests/money/test_limits.py"],
        ["tests/money/test_another.py"],
    ]


def test_tests_that_use_the_changed_function_run_first_and_slow_ones_last(project: Path) -> None:
    """Also those that use a caller of it, in its module or among the helpers of their file."""
    source = "def half(hours):\n    return _divided(hours)\n\ndef _divided(hours):\n    return hours / 2\n"
    (project / "src/proctor/clock.py").write_text(source)
    (project / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (project / "tests/test_order.py").write_text(
        "import pytest\nfrom proctor.clock import half\n\n"
        "class Day:\n    def noon(self):\n        return half(24)\n\n"
        "@pytest.mark.slow\ndef test_slow():\n    assert half(2) == 1\n\n"
        "def test_unrelated():\n    pass\n\n"
        "def test_half():\n    assert Day().noon() == 12\n"
    )
    mutant = next(
        mutant
        for mutant in draw_sample(project, seed=1, count=9, packages=["clock"])
        if mutant.kind == "arithmetic"
    )
    tests = mutation_tests.TestFiles(project)
    assert tests.names(mutant) == ["_divided", "half"]
    copy = mutation_tests.WorkCopy(project, project.parent / "copy", workers=1, test_seconds=60)

    run = copy.run(["tests/test_order.py"], until=float("inf"), names=tests.names(mutant))

    assert run.passed
    started = [name.split("::")[1] for name in (copy.folder / "starts").read_text().split()]
    assert started == ["test_half", "test_unrelated", "test_slow"]

    copy.long.write_text("tests/test_order.py::test_half\n")
    copy.run(["tests/test_order.py"], until=float("inf"), names=tests.names(mutant))
    started = [name.split("::")[1] for name in (copy.folder / "starts").read_text().split()]
    assert started == ["test_unrelated", "test_half", "test_slow"], "long ones after short ones"


def test_list_prints_the_sample_and_tests_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--list", "--package", "money", "--count", "9"], root=project) == 0
    text = capsys.readouterr().out
    assert (
        "src/proctor/money/limits.py:2: comparison\n  - return cost <= limit\n  + return cost < limit\n"
        in text
    )

    mutants.main(["--list", "--package", "money", "--json"], root=project)
    assert {row["line"] for row in json.loads(capsys.readouterr().out)} == {2}


@pytest.mark.slow
def test_survivors_and_the_share_detected_are_reported(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process started by a test runs the mutated code; a test that fails always or once kills nothing."""
    (project / "tests/money/test_flaky.py").write_text(
        "from pathlib import Path\n\n"
        "def test_that_fails_once():\n"
        "    marker = Path(__file__).with_suffix('.marker')\n"
        "    first, _ = not marker.exists(), marker.touch()\n"
        "    assert not first\n"
    )
    before = {file: file.read_bytes() for file in project.rglob("*.py")}
    arguments = ["--json", "--workers", "1", "--seed", "1", "--count", "100"]

    assert mutants.main(arguments, root=project) == 0

    figures = json.loads(capsys.readouterr().out)
    assert figures["packages"] == {
        "clock": {"tested": 2, "killed": 2, "hangs": 0, "share": 1.0},
        "money": {"tested": 2, "killed": 1, "hangs": 0, "share": 0.5},
    }
    assert (figures["tested"], figures["killed"], figures["sampled"]) == (4, 3, 4)
    (survivor,) = figures["survivors"]
    assert survivor == {
        "file": "src/proctor/money/unchecked.py",
        "line": 2,
        "package": "money",
        "kind": "arithmetic",
        "before": "return cost * cost",
        "after": "return cost / cost",
        "allTestsRan": True,
    }
    assert {row["test"] for row in figures["kills"]} == {
        "tests/money/test_limits.py::test_the_limit_itself_is_allowed",
        "tests/test_others.py::test_the_program_divides",
    }
    assert figures["broken"] == ["tests/money/test_broken.py::test_that_always_fails"]
    assert before == {file: file.read_bytes() for file in project.rglob("*.py")}


@pytest.mark.slow
def test_a_hanging_test_kills_a_mutant_and_the_end_of_its_time_does_not(
    project: Path, tmp_path: Path
) -> None:
    (project / "tests/money/test_broken.py").unlink()
    (project / "tests/money/test_limits.py").write_text(
        "import time\nfrom proctor.money.limits import allowed\n\n"
        "def test_waits():\n    while not allowed(1, 1):\n        time.sleep(0.01)\n"
    )
    (project / "tests/test_others.py").write_text("import time\n\ndef test_slow():\n    time.sleep(60)\n")
    copy = mutation_tests.WorkCopy(project, tmp_path / "copy", workers=1, test_seconds=6)
    limit, unchecked = sorted(
        draw_sample(project, seed=1, count=9, packages=["money"]), key=lambda mutant: mutant.path
    )
    sampler = mutants.Sampler(copy, mutation_tests.TestFiles(project, all_tests=True), 300, float("inf"))

    hang = "tests/money/test_limits.py::test_waits"
    assert sampler.test(limit) == mutants.Result(limit, killed=True, killer=hang, is_hang=True)

    # Were it slow without the mutant too, the hang could be the machine's.
    sampler.unchanged[hang] = mutation_tests.TestRun(passed=True, seconds=2)
    assert not sampler._is_kill(hang, mutation_tests.TestRun(passed=False, is_hang=True))
    assert sampler._is_kill(hang, mutation_tests.TestRun(passed=False))

    copy.test_seconds = 100
    sampler.mutant_seconds = 6
    assert sampler.test(unchecked) == mutants.Result(unchecked, killed=False, complete=False)


@pytest.mark.slow
def test_mutants_left_over_when_the_time_ends_are_counted_as_untested(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutants.main(["--minutes", "0", "--json"], root=project) == 0

    figures = json.loads(capsys.readouterr().out)
    assert (figures["sampled"], figures["tested"], figures["share"]) == (4, 0, None)


@pytest.mark.slow
def test_recorded_tests_are_those_that_execute_a_line_also_in_processes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that none executes is a survivor at once; edits elsewhere in the module do not matter."""
    (project / "tests/money/test_broken.py").unlink()
    (project / "tests/test_quicker.py").write_text(
        "import os, pytest\nfrom proctor.clock import half\n\n"
        "@pytest.fixture(scope='module')\ndef shared():\n    return half(2)\n\n"
        "def test_a(shared):\n    pass\n\ndef test_b(shared):\n    assert shared == 1\n\n"
        "def test_forks():\n    if os.fork() == 0:\n        os._exit(int(half(2)))\n"
        "    assert os.wait()[1] == 256\n"
    )
    file = project / "src/proctor/clock.py"
    file.write_text(file.read_text() + "\n\ndef double(hours):\n    return hours * hours\n")

    assert mutants.main(["--map", "--workers", "1"], root=project) == 0

    assert "tests/money: 1 files" in capsys.readouterr().out
    file.write_text("\n\n" + file.read_text())
    mutants.main(["--never-executed"], root=project)
    assert capsys.readouterr().out == "src/proctor/clock.py:8: return hours * hours\n"
    line_map, files = LineMap(project), mutation_tests.TestFiles(project)
    half, *_ = (each for each in draw_sample(project, seed=1, count=9) if "/ 2" in each.before)
    others = "tests/test_others.py::test_the_program_divides"
    quicker = {f"tests/test_quicker.py::test_{name}" for name in ("a", "b", "forks")}
    assert set(line_map.tests(half, files)) == {others} | quicker
    assert line_map.tests(half, files)[-1] == others, "it starts a process: the slowest"

    mutants.main(["--package", "clock", "--json", "--workers", "1"], root=project)
    figures = json.loads(capsys.readouterr().out)
    assert (figures["tested"], figures["killed"], figures["survivors"]) == (3, 2, [])
    assert [row["line"] for row in figures["neverExecuted"]] == [8]

    mutants.main(["--map", "--workers", "1"], root=project)
    assert capsys.readouterr().out == "", "nothing has changed"


@pytest.mark.slow
def test_forks_detect_failures_and_hangs_and_leave_the_rest_alone(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a method, in a nested function, and in a module that a test loads later."""
    (project / "tests/money/test_broken.py").unlink()
    (project / "src/proctor/money/shapes.py").write_text(
        "class Shape:\n    def area(self, a, b):\n"
        "        def product(x, y):\n            return x * y\n        return product(a, b)\n"
        "    def wait(self):\n        n = 5\n        while n > 0:\n            n -= 1\n"
        "SIZE = 3\n"
    )
    (project / "src/proctor/money/late.py").write_text("def least(a, b):\n    return min(a, b)\n")
    (project / "tests/money/test_shapes.py").write_text(
        "from proctor.money.shapes import Shape\n\n"
        "def test_area():\n    assert Shape().area(2, 3) == 6\n\n"
        "def test_wait():\n    Shape().wait()\n\n"
        "def test_late():\n    from proctor.money.late import least\n    assert least(1, 2) == 1\n"
    )
    mutants.main(["--map", "tests/money", "--workers", "1"], root=project)
    copy = mutation_tests.WorkCopy(project, tmp_path / "copy", workers=1, test_seconds=4)
    line_map, files = LineMap(project), mutation_tests.TestFiles(project)
    sampler = mutants.Sampler(copy, files, 60, time.monotonic() + 120, line_map=line_map)
    sample = [
        mutant
        for path in ("src/proctor/money/shapes.py", "src/proctor/money/late.py")
        for mutant in mutants_of(path, (project / path).read_text())
    ]

    results = {result.mutant.after: result for result in sampler.test_in_forks(sample)}

    ends = {change: (result.killer.rpartition("::")[2], result.is_hang) for change, result in results.items()}
    assert ends == {
        "return x / y": ("test_area", False),
        "return product(b, a)": ("", False),
        "n = 6": ("", False),
        "while n >= 0:": ("", False),
        "while n > 1:": ("", False),
        "n += 1": ("test_wait", True),
        "n -= 2": ("", False),
        "return max(a, b)": ("test_late", False),
    }
    assert [result.killed for result in results.values()].count(True) == 3
    assert "SIZE = 4" not in results, "it was executed when its module was loaded"
    for path in ("src/proctor/money/shapes.py", "src/proctor/money/late.py"):
        assert (copy.tree / path).read_text() == (project / path).read_text()


def test_templates_that_a_map_names_are_not_changed(tmp_path: Path) -> None:
    """They are compiled to Python, and so recorded."""
    template, folder = tmp_path / "src/proctor/page.html.j2", tmp_path / "build/mutants/map"
    (folder / "sources").mkdir(parents=True)
    for file in (template, tmp_path / "tests/test_a.py"):
        file.parent.mkdir(parents=True)
        file.write_text("<title>·</title>" if file == template else "")
    (folder / "sources" / "v").write_text("<title>·</title>")
    sources = {"src/proctor/page.html.j2": {"version": "v", "lines": {"1": [0]}}}
    record = {
        "test_file": "tests/test_a.py",
        "tests": ["t"],
        "seconds": [0.5],
        "failed": [],
        "sources": sources,
    }
    (folder / "a.json").write_text(json.dumps(record))

    line_map = LineMap(tmp_path)

    assert list(line_map.never_executed([])) == [] and line_map.seconds == {"t": 0.5}


def test_the_report_for_a_terminal() -> None:
    first, second, third = mutants_of("src/proctor/git.py", "x = 1\ny = 2\nz = 3")
    results = [
        mutants.Result(first, killed=True, killer="t"),
        mutants.Result(second, killed=False, complete=False),
        mutants.Result(third, killed=False, executed=False),
    ]

    text = mutants.as_text(mutants.report(results, seed=1, sampled=5, broken=["tests/test_a.py::test_b"]))

    assert text == dedent("""\
        package  killed  hangs  tested  share
        git           1      0       3    33%
        overall       1      0       3    33%

        2 of 5 sampled mutants were not tested: the time ended.

        Tests that fail on the unchanged code and were ignored:
        tests/test_a.py::test_b

        Survivors:
        src/proctor/git.py:2: constant (time limit reached: not all tests ran)
          - y = 2
          + y = 3

        Survivors that no test executes:
        src/proctor/git.py:3: constant
          - z = 3
          + z = 4""")
