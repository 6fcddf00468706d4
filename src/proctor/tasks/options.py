"""Options of reading tasks: columns of datasets, a prompt template, and where repositories are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from proctor.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How tasks of other formats are read; empty: as the file suggests."""

    prompt_column: str = ""
    expect_column: str = ""
    template: str = ""
    """Prompt of each row, with `{column}` for its values."""
    check: str = ""
    """Command that writes a JUnit report, for tasks that name tests but not how they are run."""
    setup: str = ""
    """Command run before the agent, for tasks that name none."""
    judge: str = ""
    """Model that judges rubrics, for tasks that name none."""
    repos: Mapping[str, Path] = field(default_factory=dict)
    """Local clones by `owner/name`, or a folder of clones under the key `` (empty)."""

    def repository(self, name: str, folder: Path) -> Path | None:
        """The local repository of `owner/name`, or of a path relative to `folder`; None: there is none."""
        if name in self.repos:
            return self.repos[name]
        path = Path(name).expanduser()
        if (folder / path).is_dir():
            return (folder / path).resolve()
        root = self.repos.get("")
        if root is None:
            return None
        owner, _, short = name.rpartition("/")
        places = (f"{owner}/{short}", f"{owner}/{short}.git", f"{owner}__{short}", short, f"{short}.git")
        return next((root / place for place in places if (root / place).is_dir()), None)


def read_repos(text: str) -> dict[str, Path]:
    """Parse `--repos`: a folder of clones, or `owner/name=PATH`, separated by commas."""
    repos: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, path = part.rpartition("=")
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(
                f"there is no folder {folder}\nGive --repos a folder of clones, or owner/name=PATH."
            )
        repos[name if equals else ""] = folder
    return repos


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOverrides:
    """The same options as texts, as commands and plans have them; empty: not set."""

    prompt_column: str = field(
        default="", metadata={"help": "Column of a dataset with the prompts.", "metavar": "NAME"}
    )
    expect_column: str = field(
        default="", metadata={"help": "Column of a dataset with the answers.", "metavar": "NAME"}
    )
    template: str = field(
        default="", metadata={"help": "Prompt of each row, with {column} for its values.", "metavar": "TEXT"}
    )
    check: str = field(
        default="",
        metadata={
            "help": "Check of tasks that have none; of SWE-bench rows, one that writes JUnit to "
            "$PROCTOR_TEST_REPORT.",
            "metavar": "COMMAND",
        },
    )
    setup: str = field(
        default="", metadata={"help": "Command of SWE-bench rows before the agent.", "metavar": "COMMAND"}
    )
    judge: str = field(
        default="",
        metadata={"help": "Model that judges rubrics of tasks that name none.", "metavar": "MODEL"},
    )
    repos: str = field(
        default="",
        metadata={
            "help": "Clones of the tasks' repositories: a folder, or owner/name=PATH,….",
            "metavar": "PATH",
        },
    )

    def texts(self) -> dict[str, str]:
        """These options alone, by name."""
        return {each.name: getattr(self, each.name) for each in fields(ReadOverrides)}

    def reading(self) -> ReadOptions:
        """The options of the readers. Raises `UsageError`."""
        return ReadOptions(
            prompt_column=self.prompt_column,
            expect_column=self.expect_column,
            template=self.template,
            check=self.check,
            setup=self.setup,
            judge=self.judge,
            repos=read_repos(self.repos),
        )


NO_OVERRIDES = ReadOverrides()
"""Tasks are read as their files suggest."""
