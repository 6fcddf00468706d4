"""Which code a script loads, and which programs it starts in its place: read from its text, never executed.

Only for programs that the user installed or named: what a confined program wrote is not followed. A file is
found if the script loads it by name: `import helper`, `require("./lib/x.js")`, `source "$DIR/lib.sh"`. Data,
settings and keys beside a script are not code, whatever loads them.
"""

import ast
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

LARGEST_BYTES = 256 * 1024
"""Larger files are programs and bundles, which load nothing from beside them."""
_HIGHEST = 4
"""How many folders above a script the `package.json` of its package is looked for."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
_SUFFIXES = {
    **dict.fromkeys((".py", ".pyw"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"), "node"),
    **dict.fromkeys((".sh", ".bash"), "sh"),
    ".rb": "ruby",
    ".pl": "perl",
    ".pm": "perl",
}
"""Languages by the suffix of a file."""
_LANGUAGES = {
    **dict.fromkeys(_SHELLS, "sh"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno", "tsx", "ts-node"), "node"),
    "ruby": "ruby",
    "perl": "perl",
}
_VERSION = re.compile(r"[\d.]+$")
_ENDINGS = {
    "node": ("", ".js", ".mjs", ".cjs", ".ts", ".mts", "/index.js", "/index.mjs", "/index.ts"),
    "ruby": ("", ".rb"),
    "perl": ("",),
}
"""What may follow the name of a module. TypeScript writes `./x.js` for `./x.ts`."""
_LOADED = {
    "node": re.compile(r"""(?:\bfrom|\bimport|\brequire)\s*\(?\s*["'](\.{1,2}/[^"'\n]+)["']"""),
    "ruby": re.compile(r"""\b(?:require_relative|load)\s*\(?\s*["']([^"'\n]+)["']"""),
    "perl": re.compile(r"""\b(?:require|do)\s*\(?\s*["']([^"'\n]+)["']"""),
}
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|local\s+|readonly\s+)?(\w+)=(.*)$")
_OWN_FOLDER = re.compile(r"\$0|\$\{0|BASH_SOURCE|\$\{?\(%\):-%")
"""How a shell script finds its own folder."""
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_DIRNAME = re.compile(r"\$\(dirname[^()]*(?:\([^()]*\)[^()]*)?\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}")
_WORD = re.compile(r"""[^\s"'`;|&()<>]+""")
_OUTSIDE_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl")
"""Programs of an interpreter outside the script's folder. Shell scripts need to be executable: settings are
sourced, too."""


@dataclass(frozen=True)
class Script:
    """A program that is text."""

    file: Path
    text: str

    @cached_property
    def first_line(self) -> list[str]:
        """The words of the line that names its interpreter; empty: it has none."""
        line, _, _ = self.text.partition("\n")
        return line[2:].split() if line.startswith("#!") else []

    @cached_property
    def interpreter(self) -> tuple[str, ...]:
        """The program that runs it; empty: none is named."""
        words = self.first_line
        if len(words) > 1 and words[0].endswith("/env"):
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word] or words
        return tuple(words[:1])

    @cached_property
    def language(self) -> str:
        """`python`, `node`, `sh`, `ruby`, `perl`, or empty."""
        if known := _SUFFIXES.get(self.file.suffix):
            return known
        name = Path(self.interpreter[0]).name if self.interpreter else ""
        if name.startswith(("python", "pypy")):
            return "python"
        return _LANGUAGES.get(_VERSION.sub("", name), "")

    @property
    def is_node(self) -> bool:
        """Whether it loads packages as Node does."""
        return self.language == "node"

    @property
    def root(self) -> Path:
        """The folder of its code: its own, or that of its package of Node."""
        packages = self.file.parents[:_HIGHEST] if self.is_node else ()
        with_package = (folder for folder in packages if is_file(folder / "package.json"))
        return next(with_package, self.file.parent)

    def named(self, folder: Path) -> list[Path]:
        """The files outside of the system that a shell script names by their path. `folder` is where it is
        called: a link to the script may be there."""
        if self.language != "sh":
            return []
        folders = dict.fromkeys((folder, self.file.parent))
        return list(dict.fromkeys(path for own in folders for path in self._paths(own)))

    def sourced(self) -> Iterator[Path]:
        """The files in its folder that a shell script names and that are shell scripts, too."""
        yield from (
            path
            for path in self._paths(self.file.parent)
            if path.suffix in (".sh", ".bash") and path.is_relative_to(self.file.parent)
        )

    def _paths(self, folder: Path) -> Iterator[Path]:
        """Existing files that a shell script names; what its variables mean is known for the simplest."""
        known = dict[str, str]()
        for line in self.text.splitlines():
            if line.lstrip().startswith("#"):
                continue
            expanded = _expanded(line, folder, known)
            if match := _ASSIGNMENT.match(expanded):
                known[match[1]] = _value(match[2], folder)
            for word in _WORD.findall(expanded):
                _, _, value = word.rpartition("=")
                if value.startswith("/") and len(value) < os.pathconf("/", "PC_PATH_MAX"):
                    place = Path(os.path.normpath(value))
                    if is_file(place):
                        yield place


def _expanded(line: str, folder: Path, known: dict[str, str]) -> str:
    line = _DIRNAME.sub(str(folder), line)
    return _VARIABLE.sub(lambda match: known.get(match[1], match[0]), line)


def _value(value: str, folder: Path) -> str:
    """The value of an assignment: a path, or a folder found from that of the script."""
    value = value.strip()
    if _OWN_FOLDER.search(value) or (str(folder) in value and value.startswith(("$(", '"$(', "`"))):
        return os.path.normpath(folder / "/".join([".."] * value.count("/..")))
    return value.strip("\"'")


def is_program(path: Path) -> bool:
    """Whether a file is a program, or one that an interpreter gets as its argument."""
    return os.access(path, os.X_OK) or path.suffix in _OUTSIDE_SUFFIXES


def is_file(path: Path | str) -> bool:
    """Whether a path is that of a file; no error without permission to look."""
    return os.path.isfile(path)  # noqa: PTH113


def read_script(file: Path) -> Script | None:
    """The text of a program; None: it is none, or too large."""
    try:
        state = os.stat(file)  # noqa: PTH116 (one for each program that is started)
    except OSError:
        return None
    return _read(file, state.st_mtime_ns, state.st_size) if state.st_size <= LARGEST_BYTES else None


@lru_cache(maxsize=512)
def _read(file: Path, changed: int, size: int) -> Script | None:  # noqa: ARG001 (another file when they differ)
    try:
        with file.open("rb") as opened:
            content = opened.read(2)
            if content != b"#!" and file.suffix not in _SUFFIXES:
                return None
            content += opened.read(LARGEST_BYTES)
    except OSError:
        return None
    return None if b"\0" in content else Script(file, content.decode("utf-8", "replace"))


def code_of(script: Script) -> Iterator[Script]:
    """The code that a script loads from its folder, or its package of Node, and what that code loads."""
    root, seen, pending = script.root, {script.file}, [script]
    while pending:
        for file in _loaded(pending.pop(), root):
            if file in seen or not _is_inside(file, root):
                continue
            seen.add(file)
            if file.suffix in _SUFFIXES and (code := read_script(file)) is not None:
                yield code
                pending.append(code)


def _is_inside(file: Path, root: Path) -> bool:
    """Whether a file is in a folder, neither hidden nor reached by a link that leads out of it."""
    inside = file.relative_to(root).parts if file.is_relative_to(root) else (".",)
    is_hidden = any(part.startswith(".") for part in inside)
    return not is_hidden and Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root))


@lru_cache(maxsize=512)
def _loaded(script: Script, root: Path) -> tuple[Path, ...]:
    """The files that a script loads itself."""
    if script.language == "python":
        return tuple(_imported(script, root))
    if script.language == "sh":
        return tuple(script.sourced())
    return tuple(_required(script))


def _required(script: Script) -> Iterator[Path]:
    pattern = _LOADED.get(script.language)
    for name in pattern.findall(script.text) if pattern else ():
        names = [f"{name}{ending}" for ending in _ENDINGS[script.language]]
        if script.is_node and name.endswith(".js"):
            names.append(f"{name[:-3]}.ts")
        places = (os.path.normpath(script.file.parent / each) for each in names)
        yield from map(Path, filter(is_file, places))


def _imported(script: Script, root: Path) -> Iterator[Path]:
    """The modules of a folder that a Python program imports."""
    try:
        tree = ast.parse(script.text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = root
            if node.level:
                parents = script.file.parents
                base = parents[min(node.level, len(parents)) - 1]
            names = node.module.split(".") if node.module else []
            yield from _module(base, names)
            for alias in node.names:
                yield from _module(base, [*names, alias.name])


def _module(folder: Path, names: list[str]) -> Iterator[Path]:
    """The files of a module: those of the packages that contain it, and its own."""
    with suppress(OSError, ValueError):
        for name in names:
            module = folder / f"{name}.py"
            if is_file(module):
                yield module
                return
            folder = folder / name
            for own in ("__init__.py", "__main__.py"):
                if is_file(folder / own):
                    yield folder / own
