"""Every place in the code that starts git is listed here, with the reason why it is no session's worktree.

White box on purpose: a call that bypasses `tree_git` works until somebody attacks it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

import proctor
from proctor.workspace.tree_git import TreeGit
from proctor.workspace.worktree import Worktree

SOURCE = Path(proctor.__file__).parent
STARTS_GIT = {
    "git.py:Git.at": "the same repository in another folder, for the callers below",
    "git.py:Git._run": "the one place where git is started",
    "api/doctor.py:_git": "prints the version",
    "api/doctor.py:_work": "a repository that the doctor makes for a trial",
    "batch/deletion.py:_delete_branch": "the user's repository",
    "cli/setup.py:_repository": "the user's repository",
    "testing/__init__.py:make_git_repository": "a repository for tests",
    "workspace/source_repository.py:_clone": "a mirror of an address",
    "workspace/source_repository.py:address_problem": "no repository",
    "workspace/source_repository.py:open_source": "the user's repository",
    "workspace/starting_files.py:_make_repository": "a new repository with the files of a task",
    "workspace/commit.py:_outside": "a command for the user, in a note",
    "workspace/base_objects.py:_made": "a store of objects, from those of the user's repository",
    "workspace/merge_queue.py:_advance": "the user's checkout, which follows its branch",
    "workspace/worktree.py:_fill_submodules": "submodules of the user's checkout, before any program has run",
    "tasks/history.py:write_version": "a new folder with files of the user's repository",
    "workspace/worktree.py:Worktree.git": "makes the one for a session's worktree",
    "workspace/agent_repository.py:_SCRIPT": "in a sandbox",
    "workspace/agent_repository.py:run_confined": "in a sandbox",
    "workspace/tree_git.py:TreeGit._environment": "the one for a session's worktree",
    "git.py:Git.commit_tree": "the same repository",
    "tasks/formats.py:_write_task": "a command of a task, confined as any other",
    "tasks/rows.py:_apply_script": "a command of a task, confined as any other",
    "cli/sessions.py:diff": "an example in its help",
    "agents/scripted.py:_commit": "the agent, confined as any other",
}


COMMANDS = (
    "add|am|apply|archive|blame|bundle|cat-file|checkout|checkout-index|cherry-pick|clean|clone|commit|config|describe|diff"
    "|diff-files|diff-index|diff-tree|fetch|fsck|gc|grep|init|log|ls-files|ls-tree|merge|mv|notes|pack-objects|pull|push"
    "|read-tree|rebase|reset|restore|rev-list|rev-parse|rm|show|stash|status|submodule|switch|tag|update-index|worktree"
)
SHELL = re.compile(rf"(?:^|[;&|(/]\s*|\n|\benv |\bexec )git (?:-\S+ (?:\S+=\S+ )?)*(?:{COMMANDS})\b")
"""A command line of git in a shell script."""
PLACES = (
    "-C",
    "--git-dir",
    "--work-tree",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_CEILING_DIRECTORIES",
)
"""Options and variables that lead git to another folder or repository."""
OTHER_AT = ("check.at", "np.add.at", "self.findings.at")
"""Methods called `at` that have nothing to do with git."""


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each node with the name of the function or constant that it is in."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        name, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".removeprefix(".")
            elif not name and isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
                inner = child.targets[0].id
            yield inner, child
            waiting.append((inner, child))


def dotted(node: ast.AST) -> str:
    """The name of what is called, as `self.git.run`; a part that is no name is empty."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def starts_git(node: ast.AST) -> bool:
    """Whether a node makes a `Git`, leads one to another place, or is the command line of one."""
    if isinstance(node, ast.Call):
        callee = dotted(node.func)
        name, words = (
            callee.rpartition(".")[2],
            [] if callee.startswith(("beneath.", "as_map")) else node.args,
        )
        keywords = {keyword.arg for keyword in node.keywords}
        moves = (callee.endswith(".at") and callee not in OTHER_AT) or (
            name == "replace" and "folder" in keywords and "git" in ast.unparse(node)
        )
        return name in ("Git", "TreeGit") or moves or bool(keywords & {*PLACES}) or any(map(names_git, words))
    if isinstance(node, ast.List | ast.Tuple):
        return any(map(names_git, node.elts))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.partition("=")[0] in PLACES or bool(SHELL.search(node.value))
    return False


def names_git(node: ast.AST) -> bool:
    """Whether a word of a command is the program."""
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and PurePath(node.value).name == "git"
    )


BYPASSES = """
asyncio.create_subprocess_exec("git", "status", cwd=folder)
os.execvp("git", ["git", "status"])
subprocess.run(["/usr/bin/git", "status"], cwd=folder)
subprocess.run([shutil.which("git") or "", "status"], cwd=folder)
subprocess.run(["env", "git", "log"], cwd=folder)
subprocess.run([*["git"], "status"], cwd=folder)
subprocess.run("git show HEAD", shell=True, cwd=folder)
subprocess.run(["sh", "-c", f"cd {folder} && git log"])
subprocess.run(["sh", "-c", "git -c core.pager=cat log"])
replace(tree.source.git, folder=place)("status")
tree.source.git("-C", str(place), "status")
tree.source.git("--git-dir=" + str(place), "status")
tree.source.git("status", GIT_WORK_TREE=str(place))
users.at(place)("status")
Git(place, environment)("status")
tree.source.git("fetch", str(tree.repository))
"""


@pytest.mark.parametrize("line", BYPASSES.strip().splitlines())
def test_a_new_call_of_git_is_noticed(line: str) -> None:
    nodes = [*ast.walk(ast.parse(line))]
    assert any(starts_git(node) or (isinstance(node, ast.Call) and replaceable(node)) for node in nodes)


def test_git_is_started_only_where_it_is_known_why() -> None:
    found, wrong = set[str](), list[str]()
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        if "git" not in text and "Git" not in text:
            continue
        for name, node in functions(ast.parse(text)):
            place = f"{file.relative_to(SOURCE).as_posix()}:{name}"
            if starts_git(node):
                found.add(place)
            if isinstance(node, ast.Call) and replaceable(node):
                wrong.append(f"{place}: {ast.unparse(node)}")
    assert found == set(STARTS_GIT)
    assert wrong == [], "confined programs may have replaced the folder or repository of a session"


def replaceable(call: ast.Call) -> bool:
    """Whether a call of git is given a path that a confined program may have replaced."""
    if not dotted(call.func).endswith(("git", "git.run", "git.at", "git.binary")):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = (part for value in given for part in ast.walk(value))
    return bool(
        {part.attr for part in parts if isinstance(part, ast.Attribute)} & {"repository", "admin", "folder"}
    )


def test_git_of_a_worktree_is_the_one_with_a_control_repository() -> None:
    assert Worktree.git.fget.__annotations__["return"] is TreeGit
