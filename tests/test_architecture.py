"""The picture of the project stays true: which part knows which, who may speak, what loads when."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "proctor"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS = [
    {"__main__"},
    {"cli"},
    {"web", "testing"},
    {"report", "export"},
    {"batch", "analyse"},
    {"plan", "agents", "models", "runners", "evaluators", "store"},
    {"workspace", "scenario", "dialogue", "judging", "telemetry", "records"},
    {"agent", "runner", "evaluator", "model"},
    {"item", "session", "score", "errors", "__init__"}
    | {"git", "processes", "expect", "untrusted", "answers", "counting", "imported", "keys", "loading"}
    | {"figures", "thinking"},
]
"""From left to right: a part imports from its right, never from its left."""

NEIGHBOURS_KNOW_EACH_OTHER = ({"agent", "runner", "evaluator", "model"}, LAYERS[-1])
"""Single files of one idea each; a circle among them is still an error."""

SPEAKS = {
    *("cli", "web", "__main__"),
    *("processes/warden.py", "models/local_server.py", "evaluators/function_worker.py"),
}
"""Who may print, read the environment and exit. Those in the second line are programs of their own."""


EDGE = ("os.environ", "os.environb", "os.getenv", "sys.exit", "os._exit", "sys.stdout", "sys.stderr")


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imported_parts(file: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(file)}:{node.lineno} imports by dots"
            modules = [node.module or ""]
            if node.module == "proctor":
                modules = [f"proctor.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            root, _, rest = module.partition(".")
            if root == "proctor" and not rest.startswith("__version__"):
                yield rest.partition(".")[0]


def layer_of(part: str) -> int:
    found = [number for number, layer in enumerate(LAYERS) if part in layer]
    assert found, f"{part} has no place in the picture: put it into LAYERS, and into the documents"
    return found[0]


def test_imports_point_one_way():
    wrong = []
    for file in FILES:
        here = part_of(file)
        for other in set(imported_parts(file)) - {here}:
            known = any({here, other} <= layer for layer in NEIGHBOURS_KNOW_EACH_OTHER)
            if layer_of(here) >= layer_of(other) and not known:
                wrong.append(f"{name_of(file)} must not know {other}")
    assert wrong == []


def test_nothing_imports_in_a_circle():
    knows = {part_of(file): set[str]() for file in FILES}
    for file in FILES:
        knows[part_of(file)] |= set(imported_parts(file)) - {part_of(file)}

    def walk(part, path):
        assert part not in path, " → ".join([*path[path.index(part) :], part])
        for other in knows.get(part, ()):
            walk(other, [*path, part])

    for part in knows:
        walk(part, [])


def forbidden(node: ast.AST) -> str:
    """What a statement does that only the edge may do; empty when it does nothing of the kind."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in ("print", "input", "exit", "quit") else ""
    said = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
    return said if said in EDGE else ""


def test_only_the_edge_prints_reads_the_environment_or_exits():
    speaking = [
        f"{name_of(file)}:{node.lineno}: {what}"
        for file in FILES
        if part_of(file) not in SPEAKS and name_of(file) not in SPEAKS
        for node in ast.walk(tree_of(file))
        if (what := forbidden(node))
    ]
    assert speaking == []


def is_public(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"


def test_everything_public_says_what_it_is_for():
    silent = [
        f"{name_of(file)}: {node.name}"
        for file in FILES
        for node in tree_of(file).body
        if is_public(node) and not ast.get_docstring(node)
    ]
    assert silent == [], "why would one call these?"


def test_every_module_opens_by_saying_its_idea():
    silent = [name_of(file) for file in FILES if tree_of(file).body and not ast.get_docstring(tree_of(file))]
    assert silent == []


def test_a_file_is_one_idea_and_not_four_hundred_lines():
    lengths = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_nothing_is_left_for_later():
    words = ("TODO", "FIXME", "XXX", "NotImplementedError")
    assert [
        name_of(file) for file in FILES if any(word in file.read_text(encoding="utf-8") for word in words)
    ] == []


def loaded(tmp_path: Path, *words: str) -> set[str]:
    """The modules a command has loaded when it is done."""
    program = (
        "import sys\nfrom proctor.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.stderr.write('\\nLOADED ' + ' '.join(sys.modules))\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PROCTOR_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())


def test_help_loads_nothing_that_takes_time(tmp_path):
    heavy = {
        "typer",
        "click",
        "rich",
        "pydantic",
        "yaml",
        "aiohttp",
        "sqlite3",
        "asyncio",
        "jinja2",
        "psycopg",
    }

    assert loaded(tmp_path, "--help") & heavy == set()


def test_a_batch_loads_no_part_of_the_store_that_it_has_no_use_for(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("runId: one\nmatrix: [{prompt: Say OK, model: scripted/ok}]\n")
    others = {"aiohttp", "genai_prices", "jinja2", "cryptography", "numpy", "fastapi", "tomllib"}
    parts = ("arrivals", "definitions", "evaluations", "evidence", "imports", "labels", "logs", "resealing")
    unused = others | {f"proctor.store.{part}" for part in parts}
    families = ("proctor.telemetry", "proctor.records", "proctor.session", "proctor.evaluators")

    found = loaded(tmp_path, "batch", str(plan), "--json")

    assert "proctor.store.store" in found
    assert found & unused == set()
    assert [name for name in found if name.startswith(families)] == []


def test_looking_at_runs_loads_no_network_and_no_plan_reader(tmp_path):
    # pydantic is not in this list: typer loads it to read any option.
    heavy = {"aiohttp", "yaml", "jinja2", "psycopg", "duckdb", "numpy", "scipy", "genai_prices"}

    assert loaded(tmp_path, "runs", "--json") & {*heavy, "proctor.jobs.coding.schema"} == set()
