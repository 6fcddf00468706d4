"""The picture of the project stays true: which part knows which, who may speak, what loads when."""

import ast
import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from proctor.testing.model_server import ModelServer
from waiting import TIME_LIMIT_SECONDS

SOURCE = Path(__file__).parents[1] / "src" / "proctor"
FILES = sorted(SOURCE.rglob("*.py"))

LAYERS = [
    {"__main__"},
    {"cli"},
    {"agentcore"},
    {"web"},
    {"__init__"},
    {"api", "testing"},
    {"bootstrap"},
    {"jobs"},
    {"tasks"},
    {"report", "export"},
    {"batch"},
    {"results"},
    {"stats"},
    {"budget", "context", "config", "job", "stop_rule"},
    {"plan", "agents", "models", "runners", "store"},
    {"workspace", "scenario", "dialogue"},
    {"evaluators"},
    {"telemetry", "records"},
    {"agent", "runner", "evaluator", "model", "model_client"},
    {"item", "session", "score", "errors", "git", "processes", "patterns", "pattern_worker"}
    | {"json_values", "metric", "document", "choice", "validity"}
    | {"formatting", "frozen", "lazy_import", "cache", "unpacking", "secrets", "sandbox"},
]
"""A part imports only from rows below its own."""

PUBLIC_STATISTICS = "stats/__init__.py"
"""It only lists public names; that of the summary of a store is among them."""

NEIGHBORS_KNOW_EACH_OTHER = (
    {"budget", "context", "config", "job", "stop_rule"},
    {"agent", "runner", "evaluator", "model", "model_client"},
    LAYERS[-1],
)
"""Single files of one idea each; an import cycle among modules is still an error."""

SPEAKS = {
    "cli",
    "web",
    "__main__",
    "bootstrap",
    "processes/warden.py",
    "sandbox/launcher.py",
    "sandbox/relay.py",
    "models/local_server.py",
    "evaluators/function_worker.py",
    "batch/engines/worker_process.py",
    "workspace/large_files.py",
    "batch/engines/ray_node.py",
}
"""Who may print, read the environment and exit. Those after the first line are programs of their own."""

SQL = re.compile(
    r'\bSELECT\b.*\bFROM\b|\bSELECT ["(*1]|\bINSERT INTO\b|\bDELETE FROM\b|\bUPDATE "|\bWHERE "'
    r'|"\w+" (IS NULL|IS NOT NULL|LIKE|IN \(|[<>=]+ \?)',
    re.DOTALL,
)

SQL_OUTSIDE_THE_STORE = ("export/tables.py", "telemetry/sources.py")
"""DuckDB converts and reads files, which are no part of the store."""

JOBS = {"coding", "benchmark", "scenario", "dialogue", "evaluation"}

DOOR = {"jobs", "results", "stats", "store", "batch", "models"}
"""Parts that commands and pages reach through `api` alone."""

EDGE = {"os.environ", "os.environb", "os.getenv", "sys.exit", "os._exit", "sys.stdout", "sys.stderr"}
EDGE |= {"print()", "input()", "exit()", "quit()"}

STARTS_PROCESSES = {"subprocess", "multiprocessing", "create_subprocess_exec", "create_subprocess_shell"}
STARTS_PROCESSES |= {"fork", "posix_spawn", "ProcessPoolExecutor", "Popen", "executable"}

RE_CALLS = {
    f"re.{name}"
    for name in ("compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split")
}
OWN_EXPRESSIONS = {
    "api/runs.py",
    "config.py",
    "models/prices.py",
    "models/providers.py",
    "evaluators/judging.py",
    "models/key_filter.py",
    "models/recording.py",
    "models/worst_case.py",
    "scenario/metrics.py",
    "evaluators/answer_parser.py",
    "secrets.py",
    "store/search.py",
    "tasks/interface.py",
    "tasks/statement.py",
    "agentcore/shapes.py",
    "workspace/source_repository.py",
    "workspace/test_reports.py",
}
"""Files that put expressions of ours together from constants and escaped words."""


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(file)))


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in FILES}


@cache
def imports_of(file: Path) -> tuple[tuple[str, bool], ...]:
    """The modules that a file imports, and whether it does so later than it is imported itself."""
    return tuple(
        (module, is_later)
        for node, is_later in statements_of(tree_of(file), is_later=False)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in modules_of(node, name_of(file))
    )


def statements_of(tree: ast.AST, *, is_later: bool) -> Iterator[tuple[ast.AST, bool]]:
    for node in ast.iter_child_nodes(tree):
        # Expressions are nine in ten nodes, and contain no statement.
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        yield node, is_later
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        yield from statements_of(node, is_later=is_later or is_function or is_for_types)


def modules_of(node: ast.Import | ast.ImportFrom, name: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"{name}:{node.lineno} imports by dots"
    for alias in node.names:
        member = f"{node.module}.{alias.name}"
        yield member if member in MODULES or node.module == "proctor" else str(node.module)


def imported_parts(file: Path) -> set[str]:
    names = [module.split(".") for module, _ in imports_of(file)]
    ours = [(name[1:] or ["__init__"])[0] for name in names if name[0] == "proctor"]
    return {*ours} - {"__version__"}


def layer_of(part: str) -> int:
    found = [number for number, layer in enumerate(LAYERS) if part in layer]
    assert found, f"{part} has no place in the picture: put it into LAYERS, and into the documents"
    return found[0]


def test_imports_point_one_way():
    wrong = []
    for file in FILES:
        here = part_of(file)
        if name_of(file) == PUBLIC_STATISTICS:
            continue
        for other in imported_parts(file) - {here}:
            known = any({here, other} <= layer for layer in NEIGHBORS_KNOW_EACH_OTHER)
            if layer_of(here) >= layer_of(other) and not known:
                wrong.append(f"{name_of(file)} must not know {other}")
    assert wrong == []


def test_commands_and_pages_reach_the_library_through_its_door():
    past = {
        name_of(file): DOOR & imported_parts(file)
        for file in FILES
        if part_of(file) in ("cli", "web", "agentcore")
    }
    assert {name: parts for name, parts in past.items() if parts} == {}


def test_statistics_know_no_store_no_job_and_no_runner():
    others = {"store", "evaluators", "job", "context", "models", "scenario", "dialogue"}
    files = [file for file in FILES if name_of(file) != PUBLIC_STATISTICS]
    known = {name_of(file): imported_parts(file) & others for file in files}
    assert {name for name, parts in known.items() if parts and name.startswith("stats/")} == set()


def test_no_job_imports_another():
    wrong = [
        f"{name_of(file)} imports {module}"
        for file in FILES
        if part_of(file) == "jobs" and len(file.relative_to(SOURCE).parts) > 2
        for module, _ in imports_of(file)
        if module.startswith("proctor.jobs.") and module.split(".")[2] != file.relative_to(SOURCE).parts[1]
    ]
    assert wrong == []


def test_small_programs_know_nothing_of_proctor():
    """They start many times, or where nothing of it is installed."""
    programs = (
        "processes/warden.py",
        "sandbox/launcher.py",
        "sandbox/relay.py",
        "models/local_server.py",
        "workspace/large_files.py",
    )

    known = {name: imported_parts(SOURCE / name) for name in programs}

    assert not any(known.values()), known


def test_no_module_imports_itself_through_others():
    knows = {
        module: {
            other
            for other, is_later in imports_of(file)
            if other in MODULES and other != module and not is_later
        }
        for module, file in MODULES.items()
    }
    done: set[str] = set()

    def walk(module, path):
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module in done:
            return
        for other in sorted(knows[module]):
            walk(other, [*path, module])
        done.add(module)

    for module in sorted(knows):
        walk(module, [])


def sql_in(file: Path) -> list[str]:
    """Texts of a file that are parts of SQL statements; its docstrings are not among them."""
    documents = {id(node.value) for node in nodes_of(file) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in nodes_of(file)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documents
        and SQL.search(node.value)
    ]


def test_sql_is_in_the_store_alone():
    outside = [
        f"{name_of(file)}: {text[:60]}"
        for file in FILES
        if part_of(file) != "store" and not name_of(file).startswith(SQL_OUTSIDE_THE_STORE)
        for text in sql_in(file)
    ]
    assert outside == []
    assert sql_in(SOURCE / "store" / "aggregates.py"), "the pattern finds SQL where there is some"


def test_nothing_outside_the_jobs_compares_the_name_of_one():
    compared = [
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        if part_of(file) != "jobs"
        for node in nodes_of(file)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in JOBS
    ]
    assert compared == []


def dotted(node: ast.AST) -> str:
    """The name that an expression is, such as `os.environ`; a call of a mere name ends with `()`."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return f"{name}()"
        case ast.Attribute(value=ast.Name(id=name)):
            return f"{name}.{node.attr}"
    return ""


def test_only_the_edge_prints_reads_the_environment_or_exits():
    speaking = [
        f"{name_of(file)}:{node.lineno}: {dotted(node)}"
        for file in FILES
        if part_of(file) not in SPEAKS and name_of(file) not in SPEAKS
        for node in nodes_of(file)
        if dotted(node) in EDGE
    ]
    assert speaking == []


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is written in the code, apart from escaped words and named constants."""
    match node:
        case ast.JoinedStr():
            return all(
                is_constant(part.value) for part in node.values if isinstance(part, ast.FormattedValue)
            )
        case ast.BinOp():
            return is_constant(node.left) and is_constant(node.right)
        case ast.Name():
            return node.id.isupper()
        case ast.Call():
            return dotted(node.func) == "re.escape"
    return isinstance(node, ast.Constant)


def test_regular_expressions_of_others_are_compiled_in_one_place():
    """`proctor.patterns` gives one up that takes too long."""
    places = {
        name_of(file)
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.Call) and dotted(node.func) in RE_CALLS
        if node.args and not is_constant(node.args[0])
    }
    assert places - OWN_EXPRESSIONS == {"patterns.py"}
    assert places >= OWN_EXPRESSIONS, "remove those that are gone"


def names_in(file: Path) -> set[str]:
    """Names and attributes that a file uses, and the modules that it imports."""
    used = {node.id for node in nodes_of(file) if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes_of(file) if isinstance(node, ast.Attribute)}
    return used | {module for module, _ in imports_of(file)}


def test_the_server_starts_no_process_but_by_the_launcher():
    """It calls the library. A process is for a run that outlives the page, for a plan that takes too long to
    check, and to build sessions while spans arrive: `api/launch.py` starts them, with the plan as data."""
    servers = [file for file in FILES if part_of(file) in ("web", "agentcore")]
    wrong = {name_of(file): names_in(file) & STARTS_PROCESSES for file in servers}
    launcher = next(
        node
        for node in tree_of(SOURCE / "api" / "launch.py").body
        if isinstance(node, ast.ClassDef) and node.name == "Launcher"
    )

    assert {name: names for name, names in wrong.items() if names} == {}
    assert names_in(SOURCE / "api" / "launch.py") & STARTS_PROCESSES, "the names are found where they are"
    public = [node for node in launcher.body if is_public(node)]
    assert [(node.name, [each.arg for each in node.args.args[1:]]) for node in public] == [
        ("launch", ["request", "name"]),
        ("check_plan", ["request"]),
        ("start_builder", []),
    ]


def is_public(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"


def test_every_module_and_all_that_is_public_says_what_it_is_for():
    silent = [name_of(file) for file in FILES if tree_of(file).body and not ast.get_docstring(tree_of(file))]
    silent += [
        f"{name_of(file)}: {node.name}"
        for file in FILES
        for node in tree_of(file).body
        if is_public(node) and not ast.get_docstring(node)
    ]
    assert silent == [], "why would one call these?"


def loaded(tmp_path: Path, *words: str, **variables: str) -> set[str]:
    """The modules a command has loaded when it is done."""
    program = (
        "import sys\nfrom proctor.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "sys.stderr.write('\\nLOADED ' + ' '.join(sys.modules))\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PROCTOR_HOME": str(tmp_path / "home"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_SECONDS,
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


async def test_a_batch_of_model_calls_loads_what_the_calls_need_and_no_more(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "runId: one\nmatrix: [{prompt: Say OK, model: openai/gpt-4o-mini, expect: {contains: OK}}]\n"
    )
    async with ModelServer() as server:
        variables = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        modules = await asyncio.to_thread(loaded, tmp_path, "batch", str(plan), **variables)

    needed = {
        "client",
        "http",
        "openai",
        "anthropic",
        "prices",
        "providers",
        "rate_limits",
        "worst_case",
        "local",
    }
    needed |= {"local_server", "router", "routes", "scripted"}
    ours = {name.removeprefix("proctor.models.") for name in modules if name.startswith("proctor.models.")}
    assert ours == needed
    others = {"aiohttp", "genai_prices.data", "jinja2", "numpy", "scipy", "fastapi", "jsonschema", "rich"}
    assert modules & others == set()
    assert not [
        name for name in modules if name.startswith(("proctor.agents.", "proctor.workspace", "proctor.web"))
    ]


def test_a_batch_loads_no_part_of_the_store_that_it_has_no_use_for(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("runId: one\nmatrix: [{prompt: Say OK, model: scripted/ok}]\n")
    others = {"aiohttp", "genai_prices", "jinja2", "cryptography", "numpy", "fastapi", "tomllib"}
    parts = (
        "aggregates",
        "annotations",
        "definitions",
        "evaluations",
        "intake",
        "key_rotation",
        "scores",
        "sessions",
    )
    parts += ("search", "session_selection", "transcripts")
    unused = others | {f"proctor.store.{part}" for part in parts}
    families = ("proctor.telemetry", "proctor.records", "proctor.evaluators")

    found = loaded(tmp_path, "batch", str(plan), "--json")

    assert "proctor.store.store" in found
    assert found & unused == set()
    assert len([name for name in found if name.split(".")[0] == "proctor"]) <= 70
    assert [name for name in found if name.startswith(families)] == []


def test_looking_at_runs_loads_no_network_and_no_plan_reader(tmp_path):
    # pydantic is not in this list: typer loads it to read any option.
    heavy = {"aiohttp", "yaml", "jinja2", "psycopg", "duckdb", "numpy", "scipy", "genai_prices"}

    assert loaded(tmp_path, "runs", "--json") & {*heavy, "proctor.jobs.coding.schema"} == set()
