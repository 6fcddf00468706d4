"""Harbor and Terminal-Bench tasks: a folder with `task.toml` or `task.yaml`.

They are written for containers. One that needs nothing but files runs in a folder that its programs see at
the paths of the container. One that needs its image runs in it where Podman or Docker works, and is not read
elsewhere, with the reason.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml

from proctor.errors import WorkspaceError
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_number, as_text, maps_in, member, texts_in
from proctor.plan.source import bytes_of
from proctor.sandbox import container
from proctor.sandbox.paths import is_system
from proctor.tasks.task import (
    NotRead,
    ReadOptions,
    Task,
    TaskCheck,
    TaskFolder,
    TaskImage,
    TaskSet,
    TaskStep,
    folder_of,
    texts_of,
)
from proctor.workspace.starting_files import digest_of_folder

HARBOR, TERMINAL_BENCH = "harbor", "terminal-bench"
WORK_FOLDER = "/app"
VERIFIER_TIMEOUT_SECONDS = 600.0
AGENT_TIMEOUT_SECONDS = 360.0
TEST_TIMEOUT_SECONDS = 60.0
_CANARY = re.compile(r"^\s*(#|<!--).*canary", re.IGNORECASE)
_INSTALLS = re.compile(r"\b(apt-get|apt|apk|dnf|yum)\s+(-\S+\s+)*(install|add|update)\b")
_NEEDS_NETWORK = re.compile(r"\b(pip3?|uv|uvx|npm|npx|curl|wget)\b")


class NeedsImage(ValueError):
    """A task that cannot run without its container; the text is the reason."""


def read_harbor(folder: Path, options: ReadOptions) -> TaskSet:  # noqa: ARG001
    """The task in a folder with `task.toml`."""
    file = folder / "task.toml"
    try:
        document = tomllib.loads(bytes_of(file).decode("utf-8"))
        return TaskSet(tasks=(_harbor_task(folder.absolute(), document),))
    except (ValueError, WorkspaceError, OSError) as error:
        return TaskSet(tasks=(), not_read=(NotRead(file=file, task=folder.name, reason=str(error)),))


def _harbor_task(folder: Path, document: JsonMap) -> Task:
    environment, verifier = as_map(document, "environment"), as_map(document, "verifier")
    if not (folder / "environment").is_dir():
        raise ValueError("it has no folder `environment`")
    _refuse_special_machines(document)
    work, start, variables, image = _environment(
        folder / "environment", as_text(environment, "workdir"), as_text(environment, "docker_image")
    )
    steps = list(_steps(folder, document))
    own = _verification(folder, None, verifier, steps[0][0] if steps else None)
    name = as_text(document, "task", "name") or folder.name
    places = {work: "work", "/tests": "check_files", "/logs": "logs", "/solution": "solution"}
    first, later = (steps[0], steps[1:]) if steps else (None, [])
    prompt = _instruction((first[0] if first else folder) / "instruction.md")
    solution = _solution(folder, first[0] if first else None)
    metadata = as_map(document, "metadata")
    return Task(
        name=name,
        title=as_text(document, "task", "description") or name,
        file=folder / "task.toml",
        format=HARBOR,
        prompt=prompt,
        difficulty=as_text(metadata, "difficulty"),
        facts={key: value for key, value in metadata.items() if isinstance(value, str)},
        start=start,
        image=image,
        checks=own[0],
        check_files=own[1],
        timeout_seconds=as_number(document, "agent", "timeout_sec"),
        environment={**variables, **_variables(environment)},
        places=places,
        steps=tuple(_step(folder, each, verifier) for each in later),
        min_reward=_minimum(first[1]) if first else None,
        reward=as_text(document, "multi_step_reward_strategy") or "mean",
        solution=solution,
        solution_script="bash /solution/solve.sh" if solution else "",
        network=_network(document),
    )


def _refuse_special_machines(document: JsonMap) -> None:
    environment = as_map(document, "environment")
    if as_text(environment, "os") == "windows":
        raise NeedsImage("it needs Windows")
    if as_number(environment, "gpus"):
        raise NeedsImage("it needs a GPU")
    if (
        member(document, "verifier", "environment")
        or as_text(document, "verifier", "environment_mode") == "separate"
    ):
        raise NeedsImage("its verifier runs in an image of its own")
    for key, what in (("mcp_servers", "MCP servers"), ("healthcheck", "a health check"), ("tpu", "a TPU")):
        if environment.get(key):
            raise NeedsImage(f"its environment has {what}, which need its container")


def _network(document: JsonMap) -> JsonObject:
    """The network of the phases, where the task names one."""
    networks: JsonObject = {}
    for phase, table in (("agent", "agent"), ("check", "verifier")):
        mode = as_text(document, table, "network_mode") or as_text(document, "environment", "network_mode")
        hosts = texts_in(document, table, "allowed_hosts") or texts_in(
            document, "environment", "allowed_hosts"
        )
        if mode == "allowlist" and hosts:
            networks[phase] = hosts
        elif mode == "public":
            networks[phase] = "full"
    return networks


Environment = tuple[str, TaskFolder | None, dict[str, str], TaskImage | None]
"""Working folder, starting files, variables, and the image, where these are not enough."""


def _environment(context: Path, work: str, prebuilt: str) -> Environment:
    """The environment of a task. Raises `NeedsImage` if that takes an image and no engine works here."""
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (context / name).is_file():
            raise NeedsImage(f"it needs its containers ({name})")
    dockerfile = context / "Dockerfile"
    try:
        if prebuilt:
            raise NeedsImage(f"it needs its image {prebuilt}")
        if dockerfile.is_file():
            return *_dockerfile(dockerfile, context, work), None
        files = _texts(context)
        return _work_folder(work or WORK_FOLDER), texts_of(files) if files else None, {}, None
    except NeedsImage as reason:
        return _image(context, work, prebuilt, reason)


def _image(context: Path, work: str, prebuilt: str, reason: NeedsImage) -> Environment:
    """The same in its own image. Raises `reason` if no container engine works here."""
    dockerfile = context / "Dockerfile"
    folder = "" if prebuilt or not dockerfile.is_file() else _last_work_folder(dockerfile)
    work = work or folder or WORK_FOLDER
    if not container.engine() or work == "/" or not work.startswith("/"):
        raise reason
    if prebuilt:
        return work, None, {}, TaskImage(name=prebuilt, digest=digest_of([prebuilt, work]), work=work)
    digest = digest_of([digest_of_folder(context), work])
    name = f"proctor-task-{digest[:16]}"
    return work, None, {}, TaskImage(name=name, digest=digest, work=work, context=context)


def _last_work_folder(dockerfile: Path) -> str:
    folder = PurePosixPath("/")
    for line in dockerfile.read_text(encoding="utf-8", errors="replace").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "WORKDIR":
            folder = folder / rest.strip()
    return "" if folder == PurePosixPath("/") else str(folder)


def _dockerfile(dockerfile: Path, context: Path, work: str) -> tuple[str, TaskFolder | None, dict[str, str]]:
    folder, copies, variables = "", list[tuple[str, str, str]](), dict[str, str]()
    text = dockerfile.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "RUN":
                if not re.fullmatch(r"mkdir (-p )?\S+", rest.strip()):
                    raise NeedsImage(f"it needs its image, which runs `{_clipped(rest)}`")
            case "WORKDIR":
                folder = str(PurePosixPath(folder or "/") / rest.strip())
            case "COPY" | "ADD":
                arguments = [part for part in shlex.split(rest) if not part.startswith("--")]
                if "--from" in rest or "://" in rest or len(arguments) < 2:
                    raise NeedsImage(f"it needs its image, which copies `{_clipped(rest)}`")
                copies += [(source, arguments[-1], folder) for source in arguments[:-1]]
            case "ENV":
                for part in shlex.split(rest):
                    name, equals, value = part.partition("=")
                    if equals:
                        variables[name] = value
    work = _work_folder(work or folder or WORK_FOLDER)
    files: dict[str, str] = {}
    for source, target, base in copies:
        files |= _copied(context, source, target, PurePosixPath(base or "/"), work)
    return work, texts_of(files) if files else None, variables


def _copied(context: Path, source: str, target: str, base: PurePosixPath, work: str) -> dict[str, str]:
    place = base / target
    if not place.is_relative_to(work):
        raise NeedsImage(f"it needs its image, which has files in {place}")
    inside = place.relative_to(work).as_posix()
    path = (context / source.lstrip("/")).resolve()
    if not path.is_relative_to(context.resolve()) or not path.exists():
        raise ValueError(f"its Dockerfile copies `{source}`, which is not in `environment`")
    if path.is_dir():
        return {_joined(inside, name): text for name, text in _texts(path).items()}
    is_folder = target.endswith("/") or target in (".", "./")
    name = _joined(inside, path.name) if is_folder or inside == "." else inside
    return {name: _text(path)}


def _joined(folder: str, name: str) -> str:
    return name if folder in (".", "") else f"{folder}/{name}"


def _work_folder(work: str) -> str:
    path = Path(work)
    if (
        work == "/"
        or not path.is_absolute()
        or is_system(path)
        or work.startswith(("/etc", "/proc", "/dev", "/tmp"))
    ):
        raise NeedsImage(f"its working folder is {work}, which is part of the system")
    return work


def _texts(folder: Path) -> dict[str, str]:
    skipped = {"Dockerfile", ".dockerignore", ".gitkeep", ".DS_Store"}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in skipped)
    return {path.relative_to(folder).as_posix(): _text(path) for path in files}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise NeedsImage(f"{path.name} is not text, and only text is put into a folder") from error


def _variables(table: JsonMap) -> dict[str, str]:
    return {name: str(value) for name, value in as_map(table, "env").items()}


def _instruction(file: Path) -> str:
    if not file.is_file():
        raise ValueError(f"it has no {file.name}")
    lines = file.read_text(encoding="utf-8").splitlines()
    while lines and (_CANARY.match(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    prompt = "\n".join(lines).strip()
    if not prompt:
        raise ValueError(f"{file.name} is empty")
    return prompt


def _steps(folder: Path, document: JsonMap) -> Iterator[tuple[Path, JsonMap]]:
    for step in maps_in(document, "steps"):
        name = as_text(step, "name")
        path = folder / "steps" / name
        if not name or not path.is_dir() or not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"there is no folder for the step `{name}`")
        if (path / "workdir" / "setup.sh").is_file():
            raise NeedsImage(f"the step `{name}` has a set-up script of its container")
        yield path, step


def _step(folder: Path, step: tuple[Path, JsonMap], verifier: JsonMap) -> TaskStep:
    step_folder, settings = step
    checks, files = _verification(folder, step_folder, {**verifier, **as_map(settings, "verifier")}, None)
    workdir = step_folder / "workdir"
    return TaskStep(
        prompt=_instruction(step_folder / "instruction.md"),
        checks=checks,
        check_files=files,
        files=folder_of(workdir) if workdir.is_dir() and any(workdir.iterdir()) else None,
        min_reward=_minimum(settings),
    )


def _minimum(step: JsonMap) -> float | None:
    return as_number(step, "min_reward") or as_number(step, "min_reward", "reward")


def _verification(
    folder: Path, step: Path | None, verifier: JsonMap, first: Path | None
) -> tuple[tuple[TaskCheck, ...], TaskFolder]:
    """The check of the task or of one step: its tests lie over those of the task."""
    files: dict[str, str] = {}
    for source in (folder, step or first):
        if source is not None and (source / "tests").is_dir():
            files |= _texts(source / "tests")
    script = files.get("test.sh")
    if script is None:
        raise ValueError("it has no tests/test.sh")
    if _INSTALLS.search(script):
        raise NeedsImage("its tests install packages of the system in its container")
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in _variables(verifier).items())
    limit = as_number(verifier, "timeout_sec") or VERIFIER_TIMEOUT_SECONDS
    check = TaskCheck(
        criterion="", command=f"{variables}bash /tests/test.sh", verdict="reward", timeout_seconds=limit
    )
    return (check,), texts_of(files)


def _solution(folder: Path, step: Path | None) -> TaskFolder | None:
    for source in (step, folder):
        if source is not None and (source / "solution" / "solve.sh").is_file():
            return texts_of(_texts(source / "solution"))
    return None


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def is_terminal_bench(folder: Path) -> bool:
    """Whether `task.yaml` of a folder is Terminal-Bench's: others have no `instruction`."""
    text = (folder / "task.yaml").read_text(encoding="utf-8", errors="replace")
    return re.search(r"^instruction\s*:", text, re.MULTILINE) is not None


def read_terminal_bench(folder: Path, options: ReadOptions) -> TaskSet:  # noqa: ARG001
    """The task in a folder with Terminal-Bench's `task.yaml`."""
    file = folder / "task.yaml"
    try:
        document = yaml.safe_load(bytes_of(file))
        return TaskSet(tasks=(_terminal_bench_task(folder.absolute(), as_map(document)),))
    except (ValueError, WorkspaceError, OSError, yaml.YAMLError) as error:
        return TaskSet(tasks=(), not_read=(NotRead(file=file, task=folder.name, reason=str(error)),))


def _terminal_bench_task(folder: Path, document: JsonMap) -> Task:
    prompt = as_text(document, "instruction").strip()
    if not prompt:
        raise ValueError("it has no `instruction`")
    compose = next(
        (
            folder / f"docker-compose.{end}"
            for end in ("yaml", "yml")
            if (folder / f"docker-compose.{end}").is_file()
        ),
        None,
    )
    if compose is not None and len(as_map(yaml.safe_load(bytes_of(compose)), "services")) > 1:
        raise NeedsImage("it needs several containers (docker-compose.yaml)")
    work, start, variables, image = WORK_FOLDER, None, dict[str, str](), None
    if (folder / "Dockerfile").is_file():
        try:
            work, start, variables = _dockerfile(folder / "Dockerfile", folder, "")
        except NeedsImage as reason:
            work, start, variables, image = _image(folder, "", "", reason)
    tests = _texts(folder / "tests") if (folder / "tests").is_dir() else {}
    script = folder / "run-tests.sh"
    if script.is_file():
        tests["run-tests.sh"] = _text(script)
        if _INSTALLS.search(tests["run-tests.sh"]):
            raise NeedsImage("its tests install packages of the system in its container")
    elif not tests:
        raise ValueError("it has neither run-tests.sh nor tests")
    command = "bash /tests/run-tests.sh" if script.is_file() else "python3 -m pytest /tests -rA"
    addopts = 'PYTEST_ADDOPTS="-p no:cacheprovider --junitxml=$PROCTOR_TEST_REPORT"'
    solution = folder / "solution.sh"
    return Task(
        name=folder.name,
        title=prompt.splitlines()[0][:80],
        file=folder / "task.yaml",
        format=TERMINAL_BENCH,
        prompt=prompt,
        difficulty=as_text(document, "difficulty"),
        facts={key: as_text(document, key) for key in ("category", "author_name") if as_text(document, key)},
        start=start,
        image=image,
        environment=variables,
        places={work: "work", "/tests": "check_files", "/logs": "logs", "/solution": "solution"},
        checks=(
            TaskCheck(
                criterion="",
                command=f"TEST_DIR=/tests {addopts} {command}",
                verdict="tests",
                timeout_seconds=as_number(document, "max_test_timeout_sec") or TEST_TIMEOUT_SECONDS,
            ),
        ),
        check_files=texts_of(tests),
        timeout_seconds=as_number(document, "max_agent_timeout_sec") or AGENT_TIMEOUT_SECONDS,
        solution=texts_of({"solve.sh": _text(solution)}) if solution.is_file() else None,
        solution_script="bash /solution/solve.sh" if solution.is_file() else "",
        network={"check": "full"} if any(map(_NEEDS_NETWORK.search, tests.values())) else {},
    )
