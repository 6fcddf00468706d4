"""An engine that stands in for Podman: it runs commands on this machine, and its images are folders."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.sandbox import available_kind, container, problem_of

ENGINE = """#!{python}
import json, os, pathlib, re, shutil, sys
arguments = sys.argv[1:]
log = open({log!r}, "a")
print(json.dumps([arguments, sorted(os.environ)]), file=log, flush=True)
images = pathlib.Path({log!r} + ".images")
images.mkdir(exist_ok=True)
if arguments[:2] == ["image", "inspect"]:
    sys.exit(not (images / arguments[2]).exists())
if arguments[0] == "build":
    (images / arguments[2]).write_text(arguments[3])
if arguments[0] == "create":
    print(f"container-of-{{arguments[1]}}")
if arguments[0] == "cp":
    container, inside = arguments[1].split(":")
    context = (images / container.removeprefix("container-of-")).read_text()
    shutil.copytree(context + "/image" + inside.removesuffix("/."), arguments[2], dirs_exist_ok=True)
if arguments[0] != "run":
    sys.exit(0)
VALUED = {{"--name", "--label", "--cap-drop", "--security-opt", "--user", "--network", "--pids-limit",
          "--memory", "--ulimit", "--volume", "--workdir", "--env"}}
FLAGS = {{"--rm", "--interactive", "--init"}}
volumes, folder, environment, position = {{}}, "/", {{}}, 1
while arguments[position].startswith("--"):
    option = arguments[position]
    if option in FLAGS:
        position += 1
        continue
    if option not in VALUED:
        sys.exit(f"unknown flag: {{option}}")
    value = arguments[position + 1]
    if option == "--volume":
        source, target = value.split(":")[:2]
        volumes[target] = source
    elif option == "--workdir":
        folder = value
    elif option == "--env":
        name, equals, given = value.partition("=")
        environment[name] = given if equals else os.environ[name]
    position += 2
image, *command = arguments[position:]
if image != "image:1" and not (images / image).exists():
    sys.exit(f"no such image: {{image}}")
targets = re.compile("|".join(map(re.escape, sorted(volumes, reverse=True))))
def outside(text):
    return targets.sub(lambda match: volumes[match[0]], text)
command = [outside(word) for word in command]
environment = {{name: outside(value) for name, value in environment.items()}}
os.chdir(volumes.get(folder, folder))
os.execvpe(command[0], command, {{"PATH": os.environ["PATH"], **environment}})
"""


@pytest.fixture
def engine_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the calls of an engine on the PATH."""
    engine, log = tmp_path / "bin" / "podman", tmp_path / "calls"
    engine.parent.mkdir()
    engine.write_text(ENGINE.format(python=f"{sys.base_prefix}/bin/python3", log=str(log)))
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    caches = (available_kind, problem_of, container.engine)
    for each in caches:
        each.cache_clear()
    yield log
    for each in caches:
        each.cache_clear()
