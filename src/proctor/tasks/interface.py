"""What the tests of a commit use that nobody can guess: new names, changed signatures, exact texts."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{2,}")
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|`(?:[^`\\\n]|\\.)*`")
_COMMENT = re.compile(r"\s*(?:#(?!\[)|//|/?\*|<!--|--\s)")
_DEFINITION = re.compile(
    r"^\s*(?:@?[\w.]+\s+)*?(?:export\s+|default\s+|pub(?:\([^)]*\))?\s+|public\s+|protected\s+|static\s+|async\s+"
    r"|const\s+|unsafe\s+|extern\s+|abstract\s+|final\s+|override\s+)*"
    r"(?:def|class|function\*?|func(?:\s*\([^)]*\))?|fn|struct|enum|trait|type|interface|module|macro_rules!"
    r"|(?<!\s)(?:const|let|var|static))\s+([\w$]+)"
)
_CONTAINER = re.compile(
    r"^(\s*)(?:export\s+|default\s+|pub(?:\([^)]*\))?\s+|public\s+|abstract\s+|unsafe\s+)*"
    r"(?:class\s+\w+|impl\b[^{]*|trait\s+\w+|interface\s+\w+|struct\s+\w+|enum\s+\w+|type\s+\w+\s+(?:struct|interface)"
    r"|module\s+\w+)"
)
_FUNCTION_VALUE = re.compile(
    r"^(\s*(?:export\s+)?(?:const|let|var)\s+[\w$]+)\s*=\s*(?:async\s+)?"
    r"(?:function\b\s*\*?\s*[\w$]*\s*(?=\()|(?=\([^()]*\)\s*=>))"
)
_FIELD = re.compile(
    r"^\s+(?:pub(?:\([^)]*\))?\s+|public\s+|readonly\s+|static\s+)*([A-Za-z_$][\w$]*)\??"
    r"(?:\s*:\s*[^=]+|\s+[\w\[\]*.{}<>]+(?:\s+`[^`]*`)?)\s*(?:=.*)?,?\s*$"
)
MOST_NAMES, MOST_TEXTS, LONGEST_TEXT, LONGEST_SIGNATURE, SIGNATURE_LINES = 40, 12, 160, 240, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """What a task must tell besides its statement."""

    new: tuple[str, ...] = ()
    """Names that only the solution has; with their signatures where they are defined."""
    changed: tuple[str, ...] = ()
    """New signatures of functions that were there before."""
    texts: tuple[str, ...] = ()
    """Strings that tests compare with."""

    @property
    def size(self) -> int:
        """The number of things told."""
        return len(self.new) + len(self.changed) + len(self.texts)

    def markdown(self) -> str:
        """As a section of a task; empty: nothing is told."""
        parts = [
            f"{title}\n\n" + "\n".join(f"- {each}" for each in listed)
            for title, listed in (
                ("Tests use these new names:", self.new),
                ("Tests use these functions with a new signature:", self.changed),
                ("Tests expect these texts:", self.texts),
            )
            if listed
        ]
        return "## Interface\n\n" + "\n\n".join(parts) if parts else ""


def interface_of(
    source_patch: str, test_patch: str, files: Mapping[str, str], is_known: Callable[[str], bool]
) -> Interface:
    """What tests use of a solution.

    `files` are the solution's source files as they are with the commit, `is_known` says whether a text occurs
    in the files of its parent.
    """
    source, tests = _added(source_patch), _added(test_patch)
    source_names, test_names = _names(source), _names(tests) - _definitions(tests).keys()
    shared = sorted(source_names & test_names)
    removed = [line[1:] for line in source_patch.splitlines() if re.match(r"-(?!-- )", line)]
    before, after = _definitions(removed), _definitions(source)
    changed = [name for name in shared if before.get(name, "") != after.get(name, "") and name in before]
    # Most names are around the change: looking through all files takes longer.
    old = [line for patch in (source_patch, test_patch) for line in patch.splitlines() if line[:1] in " -"]
    around = _names(old)
    fresh = [
        name for name in shared if name not in around and not _is_local(name, source) and not is_known(name)
    ]
    new = [_told(name, files) for name in fresh]
    signatures = [
        told for name in changed if name in after and " " in (told := _told(name, files)).strip("`")
    ]
    # A parameter is in the signature of its function.
    told = " ".join(each for each in (*new, *signatures) if " " in each)
    new = [each for each in new if " " in each or not re.search(rf"\b{re.escape(each.strip('`'))}\b", told)]
    return Interface(
        new=tuple(dict.fromkeys(new))[:MOST_NAMES],
        changed=tuple(dict.fromkeys(signatures))[:MOST_NAMES],
        texts=tuple(_expected_texts(source, tests, is_known, " ".join(new)))[:MOST_TEXTS],
    )


def _added(patch: str) -> list[str]:
    """The added lines of code, without whole lines of comment."""
    lines = [line[1:] for line in patch.splitlines() if re.match(r"\+(?!\+\+ )", line)]
    return [line for line in lines if not _COMMENT.match(line)]


def _names(lines: Sequence[str]) -> set[str]:
    return {name for line in lines for name in _NAME.findall(_STRING.sub(" ", line))}


def _is_local(name: str, lines: Sequence[str]) -> bool:
    """Whether a name is that of a variable in a function, which no test can use."""
    mark = re.escape(name)
    own = [line for line in lines if re.search(rf"(?<![\w$]){mark}(?![\w$])", line)]
    declares = rf"\s+(?:(?:let|const|var)\s+(?:mut\s+)?)?{mark}\s*(?::=|=(?!=)|:\s*\w+\s*=)"
    uses = rf"[.:]{mark}\b|\b(?:def|func|function|fn|class)\s+{mark}\b|{mark}\s*[,:)].*\{{\s*$"
    return any(re.match(declares, line) for line in own) and not any(re.search(uses, line) for line in own)


def _definitions(lines: Sequence[str]) -> dict[str, str]:
    """The line that defines each name."""
    return {match[1]: " ".join(line.split()) for line in lines if (match := _DEFINITION.match(line))}


def _told(name: str, files: Mapping[str, str]) -> str:
    """A name with its signature and where it belongs, as far as the files tell."""
    for text in files.values():
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if name not in line:
                continue
            definition, field = _DEFINITION.match(line), _FIELD.match(line)
            if definition and definition[1] == name:
                signature = _signature(lines[number : number + SIGNATURE_LINES])
            elif field and field[1] == name and _container(lines, number):
                # Without tags of Go and values.
                signature = re.split(r"\s+`|\s*=\s", line.strip().rstrip(",;"))[0]
            else:
                continue
            if len(signature) <= LONGEST_SIGNATURE and "`" not in signature:
                owner = _container(lines, number)
                return f"`{signature}` in `{owner}`" if owner else f"`{signature}`"
    return f"`{name}`"


def _signature(lines: Sequence[str]) -> str:
    """A definition up to its body."""
    text, depth = "", 0
    # A function that is a value is told as any other.
    value, is_function = _FUNCTION_VALUE.subn(r"\1", lines[0])
    for line in (re.sub(r"\)\s*=>.*", ") {", value) if is_function else value, *lines[1:]):
        for sign in line:
            if depth == 0 and (sign == "{" or (sign == ";" and text.strip())):
                return _one_line(text)
            depth += (sign in "([") - (sign in ")]")
            text += sign
        if depth <= 0 and re.search(r":\s*(?:#.*)?$|=>\s*$|=\s*$", text):
            return _one_line(re.sub(r"\s*(?::|=>?)\s*(?:#.*)?$", "", text))
        if depth <= 0 and not re.search(r"[,(\[]\s*$|->\s*$|\bwhere\s*$", text):
            return _one_line(text)
        text += " "
    return _one_line(text)


def _one_line(text: str) -> str:
    text = re.sub(r"\s+=\s.*$", "", text) if not re.search(r"[(\[]", text.partition("=")[0]) else text
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r",\s*([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", re.sub(r" ([)\]])", r"\1", text)))


def _container(lines: Sequence[str], number: int) -> str:
    """The class or type that a line is in; empty: none."""
    indent = _indent(lines[number])
    for line in reversed(lines[:number]):
        if line.strip() and _indent(line) < indent:
            if match := _CONTAINER.match(line):
                return " ".join(match[0].split())
            if _indent(line) == 0:
                return ""
            indent = _indent(line)
    return ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _expected_texts(
    source: Sequence[str], tests: Sequence[str], is_known: Callable[[str], bool], told: str
) -> Iterator[str]:
    """The strings of tests that the solution contains and the parent does not."""
    written = "\n".join(source)
    seen = set[str]()
    for line in tests:
        for literal in _STRING.findall(line):
            text = literal[1:-1]
            if (
                text in seen
                or not 3 <= len(text) <= LONGEST_TEXT
                or not re.search(r"[A-Za-z]{2}", text)
                or "`" in text
            ):
                continue
            seen.add(text)
            if (
                re.search(rf"(?<!\w){re.escape(text)}(?!\w)", written)
                and text not in told
                and not is_known(text)
            ):
                yield f"`{text}`"
