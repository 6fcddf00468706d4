"""`sandbox:` of plans, tasks and `proctor.toml`: what is accepted, what is refused, what takes precedence."""

from pathlib import Path

import pytest

from commands import Command
from proctor.bootstrap import load_settings
from proctor.errors import PlanError, UsageError
from proctor.jobs.coding.plan import read_plan
from proctor.sandbox import (
    Sandbox,
    SandboxSettings,
    available_kind,
    merge_settings,
    problem_of,
    read_settings,
)
from proctor.sandbox.paths import around, unreadable_in
from proctor.sandbox.proxy import is_allowed
from proctor.tasks.markdown import read_task


def test_all_settings_are_read() -> None:
    settings = read_settings(
        {
            "kind": "bubblewrap",
            "network": {"setup": ["packages.example.com", "*.example.org"], "check": "none"},
            "limits": {"processes": 200, "memory": "4G", "file_size": "512 MiB"},
            "read": ["/data", "~/models"],
            "cache": {"~/.npm": "read", "/var/cache/pip": "copy"},
        }
    )

    assert settings == SandboxSettings(
        kind="bubblewrap",
        network={"setup": ("packages.example.com", "*.example.org"), "check": "none"},
        limits={"processes": 200, "memory": 4 << 30, "file_size": 512 << 20},
        read=("/data", "~/models"),
        cache={"~/.npm": "read", "/var/cache/pip": "copy"},
    )
    assert read_settings("none").kind == "none"
    assert read_settings({"container": "python:3.12"}).kind == "container"
    assert set(read_settings({"network": "full"}).network.values()) == {"full"}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("firejail", "`kind` should be one of"),
        (3, "should be one of auto, bubblewrap"),
        ({"netwrk": "none"}, "has no setting `netwrk`"),
        ({"network": "some"}, "`network` should be one of gateway, none, full, or a list of hosts"),
        ({"network": {"deploy": "none"}}, "`network` has no phase `deploy`"),
        ({"network": ["https://packages.example.com/"]}, "not a host name"),
        ({"limits": {"memory": "lots"}}, "`limits.memory` should be a number above 0"),
        ({"limits": {"cpu": 1}}, "`limits` has no setting `cpu`"),
        ({"kind": "container"}, "`container` should name an image"),
        ({"kind": "none", "container": "x"}, "`container` should name an image"),
        ({"read": ["data"]}, "begin with / or ~"),
        ({"cache": {"~/.npm": "write"}}, "give each folder `read` or `copy`"),
    ],
)
def test_what_cannot_be_is_refused(value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", "\\(")):
        read_settings(value)


def test_the_nearer_place_takes_precedence() -> None:
    everywhere = {"container": "python:3.12", "network": {"check": "full"}, "limits": {"processes": 9}}
    item = {"kind": "bubblewrap", "network": {"agent": "none"}}

    assert merge_settings(everywhere, item) == {
        "kind": "bubblewrap",
        "network": {"check": "full", "agent": "none"},
        "limits": {"processes": 9},
    }
    assert merge_settings(everywhere, None, "none") == {
        "kind": "none",
        "network": {"check": "full"},
        "limits": {"processes": 9},
    }
    assert merge_settings(None, None) is None


PLAN = """
defaults: {sandbox: {network: {check: full}}}
matrix:
  - repo: shop
    prompt: Repair it.
    command: ["true"]
    sandbox: %s
"""


def test_a_plan_sets_the_sandbox_of_its_items_and_their_ids_stay(tmp_path: Path) -> None:
    confined = read_plan(PLAN % "{kind: bubblewrap}", file="plan.yaml", folder=tmp_path)
    other = read_plan(PLAN % "none", file="plan.yaml", folder=tmp_path)
    [item], [same] = list(confined.items()), list(other.items())

    assert item.settings["sandbox"] == {"kind": "bubblewrap", "network": {"check": "full"}}
    assert item.id == same.id
    assert "sandbox" not in item.inputs


def test_a_wrong_sandbox_is_refused_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"plan.yaml:7:14: .*`sandbox`") as error:
        read_plan(PLAN % "{network: sometimes}", file="plan.yaml", folder=tmp_path)
    assert "`network` should be one of gateway, none, full" in str(error.value)


def test_a_task_sets_its_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "task.md"
    file.write_text("---\ncheck: 'true'\nsandbox: {network: full}\n---\n# Task: One\n\nDo it.\n")
    assert read_task(file).sandbox == {"network": "full"}

    file.write_text("---\ncheck: 'true'\nsandbox: nowhere\n---\n# Task: One\n\nDo it.\n")
    with pytest.raises(PlanError, match="`kind` should be one of"):
        read_task(file)


def test_proctor_toml_sets_the_sandbox_of_all_runs(proctor: Command, repository: Path) -> None:
    (proctor.folder / "plan.yaml").write_text(
        f"matrix: [{{repo: {repository}, prompt: Go., command: 'touch x', sandbox: {{network: none}}}}]"
    )
    toml = proctor.folder / "proctor.toml"
    toml.write_text("[sandbox]\nkind = 'none'\n")
    assert (
        "note: `sandbox: none`: agents and checks are not confined"
        in proctor("batch", "plan.yaml", "--dry-run").stderr
    )

    toml.write_text("[sandbox]\nkind = 'nothing'\n")
    refused = proctor("batch", "plan.yaml", "--dry-run")
    assert refused.returncode == 2
    assert "[sandbox]: `kind` should be one of" in refused.stderr


def test_the_dry_run_says_how_agents_are_confined(proctor: Command, repository: Path) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    (proctor.folder / "plan.yaml").write_text(
        f"matrix: [{{repo: {repository}, prompt: Go., command: 'touch x'}}]"
    )
    shown = proctor("batch", "plan.yaml", "--dry-run").stderr

    assert (
        "note: agents and checks are confined by bubblewrap; network: setup full, agent gateway, check none"
        in shown
    )


def test_a_machine_without_a_sandbox_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.sandbox.problem_of", lambda kind: f"no {kind}")
    available_kind.cache_clear()
    try:
        summary = Sandbox().summary(None)
        with pytest.raises(UsageError, match="the sandbox `landlock` does not work here: no landlock"):
            available_kind("landlock")
    finally:
        available_kind.cache_clear()
    assert summary == (
        "agents and checks are NOT confined, because no sandbox works here"
        " (bubblewrap: no bubblewrap; landlock: no landlock)"
    )


def test_hosts_are_matched_by_name_and_port() -> None:
    hosts = ["packages.test", "*.example.com", "api.test:8443"]

    assert is_allowed("packages.test", 443, hosts)
    assert is_allowed("Packages.Test.", 80, hosts)
    assert is_allowed("a.example.com", 443, hosts)
    assert is_allowed("api.test", 8443, hosts)
    assert not is_allowed("evil-packages.test", 443, hosts)
    assert not is_allowed("packages.test.evil.net", 443, hosts)
    assert not is_allowed("packages.test", 22, hosts)
    assert not is_allowed("example.com", 443, hosts)
    assert not is_allowed("api.test", 443, hosts)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"network": ["packages.test"]}, "cannot restrict the network to hosts"),
        ({"cache": {"~/.npm": "copy"}}, "copies"),
    ],
)
def test_what_landlock_cannot_do_is_refused_before_the_run(settings: dict[str, object], problem: str) -> None:
    if missing := problem_of("landlock"):
        pytest.skip(missing)
    with pytest.raises(UsageError, match=problem):
        Sandbox().summary({"kind": "landlock", **settings})


def test_evaluators_beside_the_store_are_found_and_the_store_is_not(proctor: Command) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    sandbox = load_settings([], home=str(proctor.folder / "home"), store=str(proctor.folder / "results.db"))
    (proctor.folder / "results.db").write_text("rows")
    (proctor.folder / "graders.py").write_text("")
    visible = {path.name for path in around(proctor.folder, sandbox.confinement.hidden)}

    assert "graders.py" in visible
    assert not {"results.db", "home"} & visible


def test_files_and_folders_that_not_everybody_may_read_are_found(tmp_path: Path) -> None:
    modes = {"open": 0o755, "open/inner": 0o755, "keys": 0o700, "listed": 0o754}
    for name, mode in modes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    for name, mode in {"plain": 0o644, "key": 0o640, "open/inner/key": 0o600, "keys/key": 0o600}.items():
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to(tmp_path / "key")
    (tmp_path / "open" / "up").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")

    files, folders = unreadable_in(str(tmp_path))

    assert sorted(files) == [tmp_path / "key", tmp_path / "open" / "inner" / "key"]
    assert sorted(folders) == [tmp_path / "keys", tmp_path / "listed"]
