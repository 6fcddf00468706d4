"""What confined programs plant for Proctor's own git starts no program and leads nowhere, in any phase."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox import problem_of
from proctor.tasks.markdown import read_task
from proctor.tasks.task import Task, TaskCheck, TaskStep, texts_of
from proctor.testing import make_git_repository
from scripted_benchmarks import run_scripted

SET = 'git config -f "$G/config"'
"""Every trick is planted with `RUN`, a command that leaves a file outside of the sandbox if it runs there."""
PROGRAMS = {
    # Programs that settings name.
    "clean": f"{SET} filter.a.clean \"$RUN; cat\"; echo '*.py filter=a' >> .gitattributes",
    "smudge": f"{SET} filter.b.smudge \"$RUN; cat\"; echo '*.txt filter=b' >> .gitattributes",
    "process": f"{SET} filter.c.process \"$RUN\"; echo '*.md filter=c' >> .gitattributes",
    "required": f"{SET} filter.d.clean \"$RUN; cat\"; {SET} filter.d.required true; echo '*.x filter=d' >> .gitattributes",  # noqa: E501
    "fsmonitor": f'{SET} core.fsmonitor "$RUN; false"',
    "hooks path": f"mkdir -p ~/hooks; hook ~/hooks; {SET} core.hooksPath ~/hooks",
    "hooks": 'mkdir -p "$G/hooks" "$A/hooks"; hook "$G/hooks"; hook "$A/hooks"',
    "hooks of the user": "hook .githooks",
    "ssh": f'{SET} core.sshCommand "$RUN"',
    "ssh variant": f'{SET} remote.origin.url ssh://x/y; {SET} remote.origin.uploadpack "$RUN"',
    "proxy": f'{SET} core.gitProxy "$RUN"',
    "pager": f'{SET} core.pager "$RUN"; {SET} pager.status "$RUN"',
    "editor": f'{SET} core.editor "$RUN"; {SET} sequence.editor "$RUN"',
    "ask": f'{SET} core.askPass "$RUN"',
    "signing": f'{SET} gpg.program "$RUN"; {SET} commit.gpgSign true; {SET} gpg.ssh.program "$RUN"',
    "credentials": f'{SET} credential.helper "!$RUN"',
    "external diff": f'{SET} diff.external "$RUN"',
    "textconv": f"{SET} diff.e.textconv \"$RUN; cat\"; echo '*.py diff=e' >> .gitattributes",
    "diff command": f"{SET} diff.f.command \"$RUN\"; echo '*.txt diff=f' >> .gitattributes",
    "merge driver": f"{SET} merge.g.driver \"$RUN\"; echo '*.py merge=g' >> .gitattributes",
    "alias": f'for name in status add commit diff; do {SET} alias.$name "!$RUN"; done',
    "pack hook": f'{SET} uploadpack.packObjectsHook "$RUN"',
    "trailer": f'{SET} trailer.x.command "$RUN"',
    "diff filter": f'{SET} interactive.diffFilter "$RUN"',
    "promisor": f'{SET} remote.p.promisor true; {SET} remote.p.url "$PWD"; {SET} remote.p.uploadpack "$RUN"',
    "submodule command": f'{SET} submodule.s.update "!$RUN"; {SET} submodule.s.url .',
    # Where settings are read from.
    "include": f'printf "[core]\\n\\tfsmonitor = \\"$RUN; false\\"\\n" > ~/more; {SET} include.path ~/more',
    "include if": f"{SET} includeIf.gitdir:/.path ~/more",
    "worktree settings": f'{SET} extensions.worktreeConfig true; cp ~/more "$A/config.worktree"',
    "user settings": "cp ~/more ~/.gitconfig; mkdir -p ~/.config/git; cp ~/more ~/.config/git/config",
    "attributes file": f"echo '* filter=a' > ~/attributes; {SET} core.attributesFile ~/attributes",
    "own attributes": 'mkdir -p "$G/info"; echo \'* filter=a\' > "$G/info/attributes"',
    "user attributes": "mkdir -p ~/.config/git; echo '* filter=a' > ~/.config/git/attributes",
    "filter of the user": "mkdir -p tools; cp ~/canary.sh tools/clean.sh; echo '*.py filter=mine' >> .gitattributes",  # noqa: E501
    "large files": "printf '[lfs]\\n\\turl = ssh://x/y\\n' > .lfsconfig; echo '*.bin filter=lfs' >> .gitattributes; echo 1 > a.bin",  # noqa: E501
    "modules": 'git config -f .gitmodules submodule.s.update "!$RUN"; git config -f .gitmodules submodule.s.path s',  # noqa: E501
}
"""Programs for git to start, planted at once."""
LOCKS = {"locks": 'touch "$A/index.lock" "$G/config.lock" "$A/HEAD.lock"'}
STATE = {
    # Other repositories.
    "nested": "git init -q nested; cp ~/more nested/.git/config; hook nested/.git/hooks; echo 1 > nested/file",  # noqa: E501
    "nested link": 'git init -q ~/evil; cp ~/more ~/evil/.git/config; mkdir -p far; echo "gitdir: $HOME/evil/.git" > far/.git; echo 1 > far/file',  # noqa: E501
    "nested symlink": "mkdir -p near; ln -sfn ~/evil/.git near/.git; echo 1 > near/file",
    "submodule": "git init -q sub && git -C sub commit -q --allow-empty -m x && git add sub; cp ~/more sub/.git/config",  # noqa: E501
    "bare": "git init -q --bare bare; cp ~/more bare/config; hook bare/hooks",
    "common folder": 'mkdir -p main common/objects common/refs; echo \'ref: refs/heads/x\' > main/HEAD; echo ../common > main/commondir; git config -f common/config core.bare false; git config -f common/config core.repositoryFormatVersion 0; git config -f common/config extensions.worktreeConfig true; git config -f main/config.worktree core.worktree "$PWD"; git config -f main/config.worktree core.fsmonitor "$RUN; false"',  # noqa: E501
    "outer": "git init -q ..; cp ~/more ../.git/config",
    "other worktree": 'mkdir -p "$G/worktrees/x"; cp ~/more "$G/worktrees/x/config.worktree"; head -c 9000000 /dev/zero > "$G/worktrees/x/HEAD"',  # noqa: E501
    # Objects, references and index.
    "replaced": "git replace -f HEAD $(git commit-tree -m x $(git write-tree))",
    "grafts": 'mkdir -p "$G/info"; git rev-parse HEAD > "$G/info/grafts"',
    "alternates": 'echo "$OUTSIDE/shop/.git/objects" >> "$G/objects/info/alternates"',
    "assumed": "git update-index --assume-unchanged shop.py; echo '# more' >> shop.py",
    "split index": "git update-index --split-index",
    "untracked cache": "git update-index --untracked-cache",
    "index fsmonitor": "git update-index --fsmonitor; git update-index --fsmonitor-valid shop.py",
    "sparse": f'{SET} core.sparseCheckout true; echo none > "$G/info/sparse-checkout"',
    # Files that are not what they seem.
    "file link": 'ln -sfn "$OUTSIDE/.bashrc" link.txt; ln -sfn "$OUTSIDE/.ssh/authorized_keys" key.txt',
    "folder link": 'ln -sfn "$OUTSIDE/.ssh" checks; ln -sfn "$OUTSIDE" files',
    "hard link": "ln -f shop.py ~/same.py",
    "pipes": "mkdir -p pipes; mkfifo pipes/.gitignore pipes/.gitattributes; ln -s pipes/.gitignore pipes/x",
    "case": "mkdir -p .GIT git~1; cp ~/more .GIT/config; cp ~/more git~1/config",
    "program": "cp ~/canary.sh git; cp ~/canary.sh git-lfs; chmod +x git git-lfs",
}
"""Repositories, objects, references and files that are not what git expects, planted at once."""
# Hooks of the programs would stop what changes references, and locks what changes settings.
TOGETHER = {**STATE, **PROGRAMS, **LOCKS}
ALONE = {
    "core.worktree": f'{SET} core.worktree "$OUTSIDE"; {SET} core.bare false',
    "format": f"{SET} core.repositoryFormatVersion 99; {SET} extensions.refStorage evil",
    "commondir": 'cp -r "$G" ~/evil; cp ~/more ~/evil/config; echo ~/evil > "$A/commondir"',
    "gitdir": 'git init -q ~/evil; cp ~/more ~/evil/.git/config; echo "gitdir: $HOME/evil/.git" > .git',
    "own repository": "rm -f .git; git init -q; cp ~/more .git/config; hook .git/hooks",
    "linked link": 'rm -f .git; ln -s "$OUTSIDE/shop/.git" .git',
    "linked index": 'rm "$A/index"; ln -s "$OUTSIDE/.bashrc" "$A/index"',
    "linked objects": 'mv "$G/objects" ~/aside; ln -s "$OUTSIDE/shop/.git/objects" "$G/objects"',
    "linked references": 'rm -rf "$G/refs/heads"; ln -s "$OUTSIDE" "$G/refs/heads"',
    "linked head": 'rm "$A/HEAD"; ln -s "$OUTSIDE/.ssh/id" "$A/HEAD"',
    "linked settings": 'rm "$G/config"; ln -s "$OUTSIDE/.bashrc" "$G/config"',
    "piped head": 'rm "$A/HEAD"; mkfifo "$A/HEAD"',
    "piped index": 'rm "$A/index"; mkfifo "$A/index"; rm "$G/config"; mkfifo "$G/config"',
    "huge head": 'head -c 20000000 /dev/zero > "$A/HEAD"',
    "broken index": 'echo broken > "$A/index"; echo broken > "$G/packed-refs"',
    "unreadable": "chmod 000 . shop.py",
    "other branch": 'echo "$SECRET" > "$A/HEAD"; echo "$SECRET" > "$G/refs/heads/main"',
}
"""Tricks that would undo others."""
UNCONFINED = {
    "linked tree": 'cd ..; mv "$T" ~/aside; ln -s "$OUTSIDE" "$T"',
    "linked home": 'cd ..; mv home aside; ln -s "$OUTSIDE" home',
    "linked logs": 'rm -rf ../logs; ln -s "$OUTSIDE" ../logs',
    "linked repository": 'mv "$G" ~/aside; ln -s "$OUTSIDE/shop/.git" "$G"',
    "no repository": 'rm -rf "$G"',
    "no tree": 'cd ..; rm -rf "$T"',
    "file for a tree": 'cd ..; rm -rf "$T"; echo x > "$T"',
}
"""Tricks with folders that a confined program can neither rename nor remove."""
PLANT = """
PATH="${PATH#.:}"; OUTSIDE=%(outside)s; SECRET=%(secret)s
mkdir -p ~; cat > ~/canary.sh <<'END'
#!/bin/sh
touch %(canaries)s/%(name)s
END
chmod +x ~/canary.sh; RUN="sh $HOME/canary.sh"; T="$(basename "$PWD")"
G="$(git rev-parse --path-format=absolute --git-common-dir)"; A="$(git rev-parse --path-format=absolute --git-dir)"
hook() { mkdir -p "$1" && (cd "$1" && tee pre-commit post-checkout post-index-change reference-transaction \\
 fsmonitor-watchman post-merge pre-auto-gc commit-msg prepare-commit-msg post-commit proc-receive update \\
 post-rewrite < ~/canary.sh && chmod -R +x .); }
printf "[core]\\n\\tfsmonitor = \\"$RUN; false\\"\\n[filter \\"a\\"]\\n\\tclean = \\"$RUN; cat\\"\\n" > ~/more
{ %(tricks)s
} > /dev/null 2>&1
"""  # noqa: E501


class User:
    """A user's HOME with a repository, and a folder for what escapes."""

    def __init__(self, folder: Path) -> None:
        self.home, self.canaries = folder / "user", folder / "canaries"
        self.canaries.mkdir()
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id").write_text("key")
        (self.home / ".bashrc").write_text("mine")
        self.repository = make_git_repository(
            self.home / "shop",
            {"shop.py": "total = 1\n", "notes.txt": "x\n", "tools/clean.sh": "cat\n", ".gitignore": "*.o\n"},
        )
        self.git("config", "--global", "core.hooksPath", ".githooks")
        self.git("config", "filter.mine.clean", "sh tools/clean.sh; cat")
        self.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
        self.git("checkout", "-q", "-b", "secret")
        (self.repository / "secret.txt").write_text("of another branch")
        self.git("add", "--all")
        self.git("commit", "-q", "-m", "secret")
        self.secret = self.git("rev-parse", "HEAD").strip()
        self.git("checkout", "-q", "main")
        self.before = self.files()

    def git(self, *words: str, folder: Path | None = None, check: bool = True) -> str:
        """git as the user runs it."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ("-c", "user.name=U", "-c", "user.email=u@x")
        ended = subprocess.run(
            ["git", *identity, *words],
            cwd=folder or self.repository,
            env=environment,
            check=check,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return ended.stdout

    def files(self) -> dict[str, str]:
        """Everything in the HOME but what publishing a session adds, and the base branch that is merged to."""  # noqa: E501
        skipped = ("shop/.git/objects", "shop/.git/refs/heads/batch", "shop/.git/logs", "shop/.git/lfs")
        found = dict[str, str]()
        for path in sorted(self.home.rglob("*")):
            name = str(path.relative_to(self.home))
            if not name.startswith(skipped) and not path.is_dir():
                found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes().hex()
        return found

    def script(self, name: str, tricks: Mapping[str, str]) -> str:
        """A shell script that plants tricks."""
        lines = "\n".join(f"({trick})" if alone else trick for trick, alone in _with_kind(tricks))
        values = {"outside": self.home, "canaries": self.canaries, "secret": self.secret, "name": name}
        return PLANT % {**values, "tricks": lines}

    def check(self) -> None:
        """Nothing ran or was followed outside of the sandbox."""
        assert [path.name for path in self.canaries.iterdir()] == []
        assert self.files() == self.before


def _with_kind(tricks: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    for trick in tricks.values():
        yield trick, "cd .." in trick


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture
def kind(request: pytest.FixtureRequest, workshop: Any, user: User) -> str:
    """A kind of sandbox, for a workshop of that user whose PATH has a relative folder."""
    if request.param != "none" and (problem := problem_of(request.param)):
        pytest.skip(problem)
    environment = {"PATH": f".:{os.environ['PATH']}", "HOME": str(user.home)}
    workshop.context = replace(workshop.context, environment=environment)
    return str(request.param)


def coding_item(user: User, sandbox: str, phase: str, name: str, tricks: Mapping[str, str]) -> dict[str, Any]:
    """An item in which one phase plants tricks; of all, the check runs before the agent, too."""
    script = {phase: f"{user.script(f'{phase}-{name}'.replace(' ', '-'), tricks)}\ntrue"}
    return {
        "repo": str(user.repository),
        "prompt": f"{phase} {name}",
        "setup": script.get("setup", "true"),
        "scriptCommand": script.get("check", "true"),
        "command": script.get("agent", "true") + "\necho 1 > work.o; echo 2 > work.txt",
        "baseline": name == "all",
        "sandbox": sandbox,
        "keep": "always",
    }


@pytest.mark.parametrize(
    ("kind", "phase"),
    [("bubblewrap", "setup"), ("landlock", "agent"), ("bubblewrap", "check")],
    indirect=["kind"],
)
async def test_settings_start_no_program(workshop: Any, user: User, kind: str, phase: str) -> None:
    await workshop.run(json.dumps({"matrix": [coding_item(user, kind, phase, "all", TOGETHER)]}))

    user.check()
    [item] = workshop.items()
    assert item["status"] == "success", item["error"]
    branch = workshop.store.read.session(item["sessionId"])["branch"]
    published = user.git("ls-tree", "-r", "--name-only", branch).split()
    assert "work.txt" in published and "work.o" not in published and "secret.txt" not in published
    [tree] = (workshop.folder / "home/worktrees").glob("*/work/shop")
    use_git(user, tree)
    user.check()


def use_git(user: User, tree: Path) -> None:
    """Use git in a kept worktree and in every folder below it, as its user would."""
    for words in (["status"], ["diff"], ["log", "-p", "--all"], ["stash", "list"], ["add", "--all"]):
        user.git(*words, folder=tree, check=False)
    places = (
        "nested",
        "nested/nested-repository",
        "far",
        "near",
        "sub",
        "bare",
        "bare/hooks",
        "main",
        "..",
        "../home/evil",
    )
    for folder in (tree / place for place in places):
        if folder.is_dir():
            user.git("status", folder=folder, check=False)


def every_second(tricks: Mapping[str, str], first: int) -> dict[str, str]:
    return {name: tricks[name] for name in list(tricks)[first::2]}


# Half of them in each phase: setup comes before every other use of the tree, an agent before the commit.
@pytest.mark.parametrize(
    ("kind", "phase", "tricks"),
    [
        ("bubblewrap", "setup", every_second(ALONE, 0)),
        ("landlock", "agent", every_second(ALONE, 1)),
        ("none", "setup", every_second(UNCONFINED, 0)),
        ("none", "agent", every_second(UNCONFINED, 1)),
    ],
    ids=["setup", "agent", "unconfined setup", "unconfined agent"],
    indirect=["kind"],
)
async def test_what_replaces_a_repository_or_tree_leads_nowhere(workshop, user, kind, phase, tricks):
    items = [coding_item(user, kind, phase, name, {name: trick}) for name, trick in tricks.items()]
    await workshop.run(json.dumps({"matrix": items, "concurrency": 4}))

    user.check()
    for item in workshop.items():
        assert item["status"] in ("success", "fail"), (item["prompt"], item["error"])
        branch = workshop.store.read.session(item["sessionId"])["branch"]
        assert "secret.txt" not in user.git("ls-tree", "-r", "--name-only", branch).split()
    for tree in (workshop.folder / "home/worktrees").glob("*/work/shop"):
        for words in (["status"], ["log", "-p"]):
            user.git(*words, folder=tree, check=False)
    user.check()


@pytest.mark.parametrize("kind", ["landlock"], indirect=True)
async def test_a_check_cannot_turn_a_merge(workshop: Any, user: User, kind: str) -> None:
    """The second of two merges is checked again, in a worktree of its own."""
    items = [coding_item(user, kind, "check", f"merge-{number}", TOGETHER) for number in range(2)]
    for number, item in enumerate(items):
        more = {"command": f"echo {number} > work{number}.txt", "mergeOnPass": True, "baseline": False}
        items[number] = {**item, **more}
    await workshop.run(json.dumps({"matrix": items, "concurrency": 2}))

    assert [item["status"] for item in workshop.items()] == ["success", "success"]
    assert {"work0.txt", "work1.txt"} <= {path.name for path in user.repository.iterdir()}
    assert [path.name for path in user.canaries.iterdir()] == []
    added = {"work0.txt", "work1.txt", ".git/refs/heads/main", ".git/index", ".git/ORIG_HEAD"}
    changed = {name for name, _ in set(user.files().items()) ^ set(user.before.items())}
    assert changed <= {f"shop/{name}" for name in added}


@pytest.mark.parametrize(
    ("kind", "tricks"),
    [
        ("landlock", TOGETHER),
        ("none", {"linked tree": UNCONFINED["linked tree"]}),
        ("none", {"gitdir": ALONE["gitdir"], "linked logs": UNCONFINED["linked logs"]}),
    ],
    ids=["together", "linked tree", "gitdir and linked logs"],
    indirect=["kind"],
)
async def test_a_check_cannot_turn_the_second_try_or_the_next_step(workshop, user, kind, tricks):
    (user.home.parent / "task.md").write_text(f"---\nsandbox: {kind}\n---\n# Task: Escape\n\nDo it.\n")
    command = f"{user.script('check', tricks)}\nexit 1"
    checks = (TaskCheck(criterion="one", command=command), TaskCheck(criterion="two", command="false"))
    # Its folder is emptied just after the check before it, which has planted the tricks.
    reward = TaskCheck(criterion="r", command="exit 1", verdict="reward")
    files = texts_of({".bashrc": "planted", "checks/authorized_keys": "planted", "files/.bashrc": "planted"})
    task: Task = replace(
        read_task(user.home.parent / "task.md"),
        start=texts_of({"shop.py": "total = 1\n"}),
        checks=checks,
        check_files=files,
        retry_with_output=True,
        steps=(TaskStep(prompt="More", checks=(checks[0], reward), check_files=files, files=files),),
    )
    await run_scripted(workshop, task, [{"write": {"path": "work.txt", "content": "2"}}])

    user.check()
    [item] = workshop.items("run")
    assert (item["status"], item["reason"]) == ("fail", "checks_failed"), item["error"]
    assert len(workshop.store.read.of_session("iterations", item["sessionId"])) == 3


def test_the_same_tricks_start_programs_where_nothing_is_in_their_way(user: User, tmp_path: Path) -> None:
    """So the tries above prove something."""
    tree = tmp_path / "plain"
    user.git("worktree", "add", "-q", str(tree), "main", "-b", "plain")
    names = ("clean", "fsmonitor", "hooks of the user", "textconv", "filter of the user", "common folder")
    for number, name in enumerate(names):
        script = user.script(name.replace(" ", "-"), {name: (PROGRAMS | STATE)[name]})
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / f"agent{number}")}
        subprocess.run(["sh", "-c", script], cwd=tree, env=environment, check=False)
    (tree / "shop.py").write_text("total = 3\n")
    for words in (["add", "--all"], ["commit", "-q", "-m", "x"], ["log", "-p"]):
        user.git(*words, folder=tree, check=False)
    user.git("status", folder=tree / "main", check=False)
    expected = {name.replace(" ", "-") for name in names} - {"clean"}
    assert {path.name for path in user.canaries.iterdir()} == expected
