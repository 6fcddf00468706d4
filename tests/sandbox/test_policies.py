"""What a program may do, made from settings: each part of a policy, and what it is by default."""

from pathlib import Path
from typing import Any

import pytest

from proctor import sandbox
from proctor.errors import UsageError
from proctor.sandbox import NOT_CONFINED, Policy, Sandbox, SandboxSettings, read_settings


class Policies:
    """Stands for the module of a kind of sandbox: a confinement is the policy itself."""

    def __init__(self, problem: str = "") -> None:
        self._problem = problem

    def problem(self) -> str:
        return self._problem

    def confine(self, policy: Policy) -> Policy:
        return policy


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, Policies]:
    """Which kinds of sandboxes work: all. No machine has them all, and none can lose one for a test."""
    kinds = {kind: Policies() for kind in ("bubblewrap", "landlock", "container")}
    monkeypatch.setattr(sandbox, "_module", kinds.__getitem__)
    for function in ("available_kind", "problem_of"):
        monkeypatch.setattr(sandbox, function, getattr(sandbox, function).__wrapped__)
    return kinds


def policy_of(own: object, phase: Any = "agent", here: Sandbox | None = None, **more: Any) -> Policy:
    made: Any = (here or Sandbox(user_home=Path("/user"), hidden=(Path("/hidden"),))).confine(
        phase, own, folders=[Path("/session")], home=Path("/session/home"), **more
    )
    assert isinstance(made, Policy)
    return made


def test_a_policy_with_all_settings(kinds: dict[str, Policies]) -> None:
    settings = {
        "container": "image",
        "limits": {"processes": 1, "memory": "2K", "file_size": 3, "open_files": 4},
        "read": ["/data", "~/models"],
        "cache": {"~/.npm": "read", "/cache": "copy"},
    }
    policy = policy_of(
        settings,
        read=[Path("/objects")],
        named=["a", ["b", ("c", 1)], 2, None],
        variables={"V": "1"},
        mounts={"/at": Path("/folder")},
        concealed=[Path("/secret")],
    )
    assert policy == Policy(
        write=[Path("/session")],
        home=Path("/session/home"),
        read=[Path("/objects"), Path("/data"), Path("/user/models")],
        named=["a", "b", "c"],
        hidden=(Path("/hidden"),),
        concealed=[Path("/secret")],
        network="gateway",
        variables={"V": "1"},
        limits={"CORE": 0, "NPROC": 1, "DATA": 2048, "FSIZE": 3, "NOFILE": 4},
        cache={"/user/.npm": "read", "/cache": "copy"},
        user_home=Path("/user"),
        image="image",
        mounts={"/at": Path("/folder")},
    )


@pytest.mark.parametrize(
    ("phase", "own", "usual", "network", "ports"),
    [
        ("setup", None, None, "full", []),
        ("agent", None, None, "gateway", [7]),
        ("check", None, None, "none", []),
        ("agent", None, "none", "none", []),
        ("agent", {"network": "full"}, "none", "full", []),
        ("check", {"network": {"agent": "full"}}, None, "none", []),
        ("check", {"network": "gateway"}, None, "gateway", [7]),
        ("agent", {"network": ["a.test"]}, None, ("a.test",), [7, 3128]),
        (
            "setup",
            {"network": {"setup": ["a.test", "*.b.test:81"]}},
            None,
            ("a.test", "*.b.test:81"),
            [7, 3128],
        ),
    ],
)
def test_the_network_of_a_phase_and_the_ports_that_are_served(kinds, phase, own, usual, network, ports):
    policy = policy_of(own, phase, serve={7: None}, usual_network=usual, variables={"V": "1"})
    assert policy.network == network
    assert list(policy.serve) == ports
    assert policy.variables["V"] == "1"
    assert ("HTTP_PROXY" in policy.variables) is isinstance(network, tuple)


def test_nothing_is_confined_where_that_is_said(kinds: dict[str, Policies]) -> None:
    for here, own in (
        (NOT_CONFINED, None),
        (Sandbox(), "none"),
        (Sandbox(settings="none"), {"read": ["/x"]}),
    ):
        assert here.confine("agent", own, folders=[], home=Path("/")) is None
    with pytest.raises(UsageError, match=r"^the sandbox `none` cannot show a folder at /at$"):
        NOT_CONFINED.confine("agent", None, folders=[], home=Path("/"), mounts={"/at": Path("/x")})
    with pytest.raises(UsageError, match=r"^the sandbox `landlock` cannot show a folder at /at$"):
        policy_of("landlock", mounts={"/at": Path("/folder")})


@pytest.mark.parametrize(
    ("broken", "setting", "kind"),
    [
        ((), "auto", "bubblewrap"),
        (("bubblewrap",), "auto", "landlock"),
        (("bubblewrap", "landlock"), "auto", "none"),
        (("bubblewrap",), "none", "none"),
        (("bubblewrap",), "landlock", "landlock"),
        (("bubblewrap",), "bubblewrap", None),
        (("landlock",), "landlock", None),
    ],
)
def test_the_kind_that_is_used(kinds, broken, setting, kind):
    for name in broken:
        kinds[name] = Policies(f"no {name}")
    if kind:
        assert Sandbox().kind_of(setting) == kind
        return
    with pytest.raises(UsageError) as raised:
        Sandbox().kind_of(setting)
    assert str(raised.value) == (
        f"the sandbox `{setting}` does not work here: no {setting}\n"
        "Install it, or write `sandbox: auto` for the strongest that works."
    )


def test_what_landlock_can_and_cannot(kinds: dict[str, Policies]) -> None:
    own = {"kind": "landlock", "network": {"agent": "none"}, "cache": {"/c": "read"}}
    assert Sandbox().kind_of(own) == "landlock"
    for more in (
        {"network": {"setup": "full", "check": ["a.test"]}},
        {"cache": {"/c": "read", "/d": "copy"}},
    ):
        with pytest.raises(UsageError, match=r"^the sandbox `landlock` "):
            Sandbox().kind_of({**own, **more})
        assert Sandbox().kind_of({**own, **more, "kind": "bubblewrap"}) == "bubblewrap"


def test_summaries(kinds: dict[str, Policies]) -> None:
    here = Sandbox()
    begin = "agents and checks are confined by bubblewrap; network: "
    assert here.summary(None) == f"{begin}setup full, agent gateway, check none"
    assert here.summary(None, "none") == f"{begin}setup full, agent none, check none"
    own = {"network": {"agent": "full", "check": ["a.test", "b.test"]}}
    assert here.summary(own, "none") == f"{begin}setup full, agent full, check a.test, b.test"
    assert here.summary("none") == "`sandbox: none`: agents and checks are not confined"
    without = {name: Policies(f"no {name}") for name in ("bubblewrap", "landlock")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "_module", without.__getitem__)
        assert here.summary(None) == (
            "agents and checks are NOT confined, because no sandbox works here"
            " (bubblewrap: no bubblewrap; landlock: no landlock)"
        )
        without["landlock"] = Policies()
        usual = "agents and checks are confined by landlock; network: setup full, agent gateway, check none"
        assert here.summary(None) == f"{usual}; bubblewrap is stronger: no bubblewrap"
        assert here.summary("landlock") == usual
        assert here.evaluator_summary().endswith("network: none; bubblewrap is stronger: no bubblewrap")

    begin = "functions and programs of evaluators are"
    assert here.evaluator_summary() == f"{begin} confined by bubblewrap; network: none"
    other = Sandbox(settings={"network": {"check": "full", "agent": "none"}})
    assert other.evaluator_summary() == f"{begin} confined by bubblewrap; network: full"
    assert NOT_CONFINED.evaluator_summary() == f"{begin} NOT confined"


def test_evaluators_of_a_plan_with_an_image_run_in_another_sandbox(kinds: dict[str, Policies]) -> None:
    here = Sandbox(settings={"network": "full"}, user_home=Path("/user"))
    assert here.for_evaluators({"container": "image", "read": ["/x"]}) == Sandbox(
        settings={"network": "full", "read": ["/x"], "kind": "auto"}, user_home=Path("/user")
    )
    assert here.for_evaluators("landlock").settings == {"network": "full", "kind": "landlock"}
    assert here.for_evaluators().settings == {"network": "full"}
    with pytest.raises(UsageError, match=r"^`sandbox` has no setting `x`"):
        here.settings_of({"x": 1})


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (1, 1),
        (2**62 - 1, 2**62 - 1),
        ("1", 1),
        ("7K", 7 * 1024),
        ("7M", 7 * 1024**2),
        ("7 GiB", 7 * 1024**3),
        (" 7TB ", 7 * 1024**4),
        (0, None),
        (-1, None),
        ("0", None),
        (2**62, None),
        (True, None),
        (1.5, None),
        ("1.5K", None),
        ("7  K", None),
        (None, None),
    ],
)
def test_the_size_of_a_limit(written: object, size: int | None) -> None:
    if size:
        assert read_settings({"limits": {"memory": written}}).limits == {"memory": size}
        return
    with pytest.raises(
        ValueError, match=r"^`limits.memory` should be a number above 0, or a size like 512M$"
    ):
        read_settings({"limits": {"memory": written}})


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        (None, SandboxSettings()),
        ({}, SandboxSettings()),
        ("auto", SandboxSettings(kind="auto")),
        ({"kind": None, "read": None, "cache": None, "limits": None, "network": None}, SandboxSettings()),
        ({"kind": "container", "container": "i"}, SandboxSettings(kind="container", container="i")),
        ({"read": "/x"}, SandboxSettings(read=("/x",))),
        ({"cache": "~/x"}, SandboxSettings(cache={"~/x": "read"})),
        ({"cache": ["/x", "/y"]}, SandboxSettings(cache={"/x": "read", "/y": "read"})),
        ({"network": {"agent": None, "setup": "none"}}, SandboxSettings(network={"setup": "none"})),
        ({"network": "full"}, SandboxSettings(network={"setup": "full", "agent": "full", "check": "full"})),
        (
            {"network": {"agent": ["*.a.test:65535", "x"]}},
            SandboxSettings(network={"agent": ("*.a.test:65535", "x")}),
        ),
    ],
)
def test_settings_are_read(value: object, settings: SandboxSettings) -> None:
    assert read_settings(value) == settings
    assert (SandboxSettings().kind, SandboxSettings().container, SandboxSettings().read) == ("auto", "", ())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "should be one of auto, bubblewrap, landlock, container, none, or settings: kind, container, "),
        ({"kind": 3}, "`kind` should be text"),
        ({"container": 3}, "`container` should be text"),
        ({"container": "i", "kind": "auto"}, "`container` should name an image, and `kind` be `container`"),
        ({"read": {"x": 1}}, "`read` should be a list of paths that begin with / or ~"),
        ({"read": ["/x", "y"]}, "`read` should be a list of paths"),
        ({"read": ["/x", 3]}, "`read` should be a list of paths"),
        ({"cache": ["x"]}, "`cache` should be a list of paths"),
        ({"cache": {"x": "read"}}, "`cache` should be a list of folders, or give each folder"),
        ({"cache": {"/x": "read", "/y": None}}, "`cache` should be a list of folders"),
        ({"limits": []}, "`limits` should have settings: processes, memory, file_size, open_files"),
        ({"network": []}, "`network` should be one of gateway, none, full, or a list of hosts"),
        ({"network": [3]}, "`network` has `3`, which is not a host name"),
        ({"network": ["a.test", "b.test/x"]}, "`network` has `b.test/x`, which is not a host name"),
        ({"network": ["a.test:123456"]}, "`network` has `a.test:123456`"),
        ("firejail", "`kind` should be one of"),
        ({"netwrk": "none"}, "has no setting `netwrk`"),
        ({"network": {"deploy": "none"}}, "`network` has no phase `deploy`"),
        ({"limits": {"cpu": 1}}, "`limits` has no setting `cpu`"),
        ({"kind": "container"}, "`container` should name an image"),
        ({"cache": {"~/.npm": "write"}}, "`cache` should be a list of folders, or give each folder"),
    ],
)
def test_settings_that_cannot_be_are_refused(value: object, problem: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_settings(value)
    assert str(raised.value).startswith(problem)
