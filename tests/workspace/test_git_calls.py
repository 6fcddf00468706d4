"""Every place in the code that starts git is listed here, with the reason why it is no session's worktree.

White box on purpose: a call that bypasses `tree_git` works until somebody attacks it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
    "workspace/base_objects.py:_made": "a store of objects, from those of the user's repository",
    "workspace/merge_queue.py:_advance": "the user's checkout, which follows its branch",
    "workspace/worktree.py:_fill_submodules": "submodules of the user's checkout, before any program has run",
    "tasks/history.py:write_version": "a new folder with files of the user's repository",
    "workspace/worktree.py:Worktree.git": "makes the one for a session's worktree",
    "workspace/agent_repository.py:_SCRIPT": "in a sandbox",
    "agents/scripted.py:_commit": "the agent, confined as any other",
}


SHELL = re.compile(
    r"(?:^|[;&|]\s*|\n)git (?:-\S+ )*(?:add|commit|status|diff|reset|checkout|pack-objects|clone)\b"
)
"""A command line of git in a shell script."""


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each node with the name of the function or constant that it is in."""

    def below(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}".removeprefix(".")
            elif not name and isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
                inner = child.targets[0].id
            yield inner, child
            yield from below(child, inner)

    yield from below(tree, "")


def starts_git(node: ast.AST) -> bool:
    """Whether a node makes a `Git`, moves one to another folder, or is the command line of one."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        receiver = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        return name in ("Git", "TreeGit") or (name == "at" and receiver.endswith("git"))
    if isinstance(node, ast.List | ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
        return node.elts[0].value == "git"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(SHELL.search(node.value))


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
    if not ast.unparse(call.func).endswith(("git", "git.run", "git.at", "git.binary")):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = (part for value in given for part in ast.walk(value))
    return bool(
        {part.attr for part in parts if isinstance(part, ast.Attribute)} & {"repository", "admin", "folder"}
    )


def test_git_of_a_worktree_is_the_one_with_a_control_repository() -> None:
    assert Worktree.git.fget.__annotations__["return"] is TreeGit
