"""How a repository installs its dependencies and runs its tests, guessed from its files.

Read are settings of test runners, package managers, tox, nox, continuous integration, and the Makefile.
Nothing is run.
"""

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import yaml

from proctor.errors import UsageError
from proctor.git import Git
from proctor.json_values import JsonMap, as_list, as_map, as_text, parse_json
from proctor.workspace.hidden_tests import is_test


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCommands:
    """The commands of a repository, and the files they were guessed from."""

    __test__ = False

    check: str
    check_source: str
    setup: str = ""
    """Empty: none is needed, or none is known."""
    setup_source: str = ""


def guess_check(git: Git) -> tuple[str, str]:
    """The command of a repository's tests, and what it was guessed from. Raises `UsageError`."""
    guessed = _Repository(git).check()
    if guessed is None:
        raise UsageError(
            f"how {git.folder} runs its tests is not known\nGive the command:  --check 'COMMAND'"
        )
    return guessed


def guess_commands(git: Git) -> TestCommands:
    """The command of a repository's tests and the one that installs what they need. Raises `UsageError`."""
    check, source = guess_check(git)
    setup, setup_source = _Repository(git).setup(check)
    return TestCommands(check=check, check_source=source, setup=setup, setup_source=setup_source)


def python_setup(git: Git) -> str:
    """The command that makes a virtual environment `.venv` with a project and what its tests need."""
    return _Repository(git).python_setup()


def advised_setup(git: Git, check: str, output: str) -> str:
    """Options to try where tests did not run, by their command and its output; empty: none are known."""
    repository = _Repository(git)
    if "python" in check and re.search(r"No module named|ModuleNotFoundError|ImportError", output):
        program = re.sub(r"\b(env PYTHONPATH=\S+ )?python3?\b", ".venv/bin/python", check, count=1)
        return f"--setup {shlex.quote(repository.python_setup())} --check {shlex.quote(program)}"
    setup, _ = repository.setup(check)
    return f"--setup {shlex.quote(setup)}" if setup else ""


# Commands in files of continuous integration that run tests, in ecosystems whose files do not tell.
_TEST_COMMANDS = re.compile(
    r"""make\ (?:check|tests?|unit)\b
    |ctest\b
    |(?:\./)?mvnw?\ .*\b(?:test|verify)\b
    |(?:\./)?gradlew?\ .*\b(?:test|check)\b
    |bundle\ exec\ (?:rspec|rake)\b
    |rspec\b
    |rake\ test\b
    |(?:vendor/bin/)?phpunit\b
    |composer\ (?:run\ )?test\b
    |(?:dotnet|mix|swift|deno|bun|stack|cabal)\ test\b
    |zig\ build\ test\b
    |dune\ (?:runtest|test)\b
    |python3?\ (?:\S+/)?(?:runtests|run_tests)\.py""",
    re.VERBOSE,
)
_PIP_FILES = re.compile(
    r"(?:requirements|reqs)/(?:tests?|dev|ci)(?:\.txt|\.in)|(?:test|dev)[-_]requirements\.txt"
    r"|requirements[-_](?:tests?|dev)\.txt"
)
_TEST_EXTRAS = ("tests", "test", "testing", "dev")
_NO_TEST_STEP = re.compile(
    r"\b(?:lint|eslint|prettier|xo|standard|biome|tslint|stylelint|tsc --noEmit|typecheck|type-check|audit"
    r"|cspell|format|aud|attw|publint|evalmd|ls-engines)\b"
)
_MOST_SCRIPTS = 5
"""Scripts that each only start the next one."""
_SCRIPT_CALL = re.compile(r"(?:npm|yarn|pnpm|bun)(?: run(?:-script)?)? ([\w:.-]+)(?: .*)?")


class _Repository:
    """The files of a commit, as far as they tell how its tests are run."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._files = set(git("ls-tree", "-r", "--name-only", "HEAD").splitlines())

    def _text(self, path: str) -> str:
        return self._git.run("show", f"HEAD:{path}")[1] if path in self._files else ""

    def check(self) -> tuple[str, str] | None:
        """The command of the tests and its source; None: not known."""
        files = self._files
        for path in (
            "pyproject.toml",
            "setup.cfg",
            "tox.ini",
            "pytest.ini",
            "noxfile.py",
            *self._requirements,
        ):
            if "pytest" in self._text(path) or (path == "pytest.ini" and path in files):
                return f"{self._source_path}python3 -m pytest -q", path
        if "package.json" in files:
            return self._node_check(), "package.json"
        if "go.mod" in files:
            return "go test ./...", "go.mod"
        if "Cargo.toml" in files:
            return "cargo test", "Cargo.toml"
        if "pom.xml" in files:
            return f"{self._maven} -q -B -o test", "pom.xml"
        if any(is_test(path) and path.endswith(".py") for path in files):
            return self._tox_check() or self._python_check()
        if re.search(r"^test:", self._text("Makefile"), re.MULTILINE):
            return "make test", "Makefile"
        return next(self._ci_checks(), None)

    @property
    def _maven(self) -> str:
        return "./mvnw" if "mvnw" in self._files else "mvn"

    @property
    def _source_path(self) -> str:
        # Tests must import the tree, not an installed copy of the project.
        has_source = any(re.match(r"src/.*\.py$", path) for path in self._files)
        return "env PYTHONPATH=src " if has_source else ""

    @cached_property
    def _requirements(self) -> Sequence[str]:
        return sorted(path for path in self._files if _PIP_FILES.fullmatch(path))

    def _python_check(self) -> tuple[str, str]:
        # Test functions of a module: unittest runs only those of classes.
        marks = r"^((import|from) pytest|(async )?def test_)"
        uses_pytest = self._git.run("grep", "-q", "-E", marks, "HEAD", "--", "*.py")[0] == 0
        uses_pytest |= any(path.rpartition("/")[2] == "conftest.py" for path in self._files)
        program = "python3 -m pytest -q" if uses_pytest else "python3 -m unittest"
        return f"{self._source_path}{program}", "its test files"

    def _tox_check(self) -> tuple[str, str] | None:
        """The first command of tox or nox, where it is neither pytest nor another environment's."""
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(self._text("tox.ini"))
        except configparser.Error:
            return None
        if parser.has_section("testenv"):
            section = parser["testenv"]
            for line in section.get("commands", "").splitlines():
                if command := _plain_tox(line):
                    folder = _plain_tox(section.get("changedir", "") or section.get("change_dir", ""))
                    prefix = f"cd {shlex.quote(folder)} && " if folder else ""
                    return f"{prefix}{command}", "tox.ini"
        for call in re.findall(r"session\.run\(([^)]*)\)", self._text("noxfile.py")):
            words = re.findall(r"""["']([^"']+)["']""", call)
            if "unittest" in words or any(word.endswith(".py") for word in words):
                return _with_python3(" ".join(words)), "noxfile.py"
        return None

    def _ci_checks(self) -> Iterator[tuple[str, str]]:
        paths = [
            path for path in sorted(self._files) if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)
        ]
        for path in (*paths, ".gitlab-ci.yml", ".travis.yml", ".circleci/config.yml"):
            try:
                document = yaml.safe_load(self._text(path)) if path in self._files else None
            except yaml.YAMLError:
                continue
            for line in _lines_in(document):
                if _TEST_COMMANDS.match(line) and "${{" not in line:
                    yield line, path

    # Node

    @cached_property
    def _package(self) -> JsonMap:
        try:
            return as_map(parse_json(self._text("package.json")))
        except ValueError:
            return {}

    def _node_check(self) -> str:
        """The runner that the script `test` starts, after the steps of `pretest` that build something."""
        name, script = "test", as_text(self._package, "scripts", "test")
        for _ in range(_MOST_SCRIPTS):
            called = _SCRIPT_CALL.fullmatch(script.strip())
            if not called or not (body := as_text(self._package, "scripts", called[1])):
                break
            name, script = called[1], body
        runner = _node_runner(script)
        if not runner:
            return "npm test" if name == "test" else f"npm run {name}"
        before = self._steps(as_text(self._package, "scripts", "pretest"))
        return " && ".join([*dict.fromkeys(before), runner])

    def _steps(self, script: str) -> Iterator[str]:
        """The steps of a script, without those that only look at the code."""
        for step in filter(None, map(str.strip, script.split("&&"))):
            called = _SCRIPT_CALL.fullmatch(step)
            body = as_text(self._package, "scripts", called[1]) if called else ""
            if not _NO_TEST_STEP.search(step) and not _NO_TEST_STEP.search(body):
                yield step if called else f"npx {step}"

    # Dependencies

    def setup(self, check: str) -> tuple[str, str]:
        """The command that installs what tests need, and its source; empty: none is known."""
        files = self._files
        if re.search(r"\b(npx|npm|node|yarn|pnpm)\b", check) and "package.json" in files:
            if not (self._package.get("dependencies") or self._package.get("devDependencies")):
                return "", ""
            locks = {
                "package-lock.json": "npm ci --no-audit --no-fund",
                "npm-shrinkwrap.json": "npm ci --no-audit --no-fund",
                "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
                "yarn.lock": "yarn install --frozen-lockfile",
            }
            for lock, command in locks.items():
                if lock in files:
                    return command, lock
            # Without a lock file, old peer dependencies contradict newer ones.
            return "npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps", "package.json"
        if "cargo " in check and re.search(r"^\[.*dependencies", self._text("Cargo.toml"), re.MULTILINE):
            return "cargo fetch", "Cargo.toml"
        if "go test" in check and "require" in self._text("go.mod"):
            return "go mod download", "go.mod"
        if re.match(r"(?:\./)?mvnw? ", check) and "pom.xml" in files:
            # Only running tests downloads the runner of tests.
            return f"{self._maven} -q -B test -Dmaven.test.failure.ignore", "pom.xml"
        return "", ""

    def python_setup(self) -> str:
        """A virtual environment with the project and what its tests need."""
        words = ["-e", "."] if {"pyproject.toml", "setup.py", "setup.cfg"} & self._files else []
        try:
            project = tomllib.loads(self._text("pyproject.toml"))
        except tomllib.TOMLDecodeError:
            project = {}
        extras, groups = (
            as_map(project, "project", "optional-dependencies"),
            as_map(project, "dependency-groups"),
        )
        if extra := next((name for name in _TEST_EXTRAS if name in extras), ""):
            words = ["-e", f".[{extra}]"]
        if group := next((name for name in _TEST_EXTRAS if name in groups), ""):
            words += [each for each in as_list(groups, group) if isinstance(each, str)]
        if path := next(iter(self._requirements), ""):
            words += ["-r", path]
        if not any("pytest" in word for word in words):
            words.append("pytest")
        quoted = " ".join(word if re.fullmatch(r"[\w./=-]+", word) else f'"{word}"' for word in words)
        return f"python3 -m venv .venv && .venv/bin/python -m pip install -q {quoted}"


def _node_runner(script: str) -> str:
    """The runner of tests in a script of npm, with its arguments; empty: none that is known."""
    if re.search(r"\bvitest\b", script):
        return "npx vitest run"
    if match := re.search(r"(?<![\w/-])(?:jest|mocha|tape)\b[^&|;]*", script):
        return f"npx {match[0].strip()}"
    if match := re.search(r"\bnode\s[^&|;]*--test\b[^&|;]*", script):
        return match[0].strip()
    return ""


def _plain_tox(text: str) -> str:
    """A line of tox without its placeholders; empty: it runs no tests."""
    line = re.sub(r"\{posargs(?::([^}]*))?\}", lambda match: match[1] or "", text.strip().lstrip("-!"))
    line = line.replace("{envpython}", "python3").replace("{toxinidir}/", "").replace("{toxinidir}", ".")
    is_other = re.search(r"\{|\b(pip|flake8|ruff|mypy|black|isort|sphinx-build|coverage (?!run))", line)
    return "" if is_other else _with_python3(re.sub(r"^coverage run\s+", "python3 ", line.strip()))


def _with_python3(command: str) -> str:
    return re.sub(r"^python(?=\s)", "python3", command)


def _lines_in(document: object) -> Iterator[str]:
    """Every line of every script in a document of continuous integration."""
    if isinstance(document, Mapping):
        for name, part in document.items():
            if name in ("run", "script", "command"):
                texts = part if isinstance(part, list) else [part]
                for text in texts:
                    yield from map(str.strip, str(text).splitlines())
            if isinstance(part, Mapping | list):
                yield from _lines_in(part)
    elif isinstance(document, list):
        for part in document:
            yield from _lines_in(part)
