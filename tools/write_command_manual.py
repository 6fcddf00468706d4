"""Write what is generated from code: docs/commands.md, the man page, and the schemas of plans.

python tools/write_command_manual.py
"""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from proctor.api.plans import generated_schema
from proctor.cli import main
from proctor.cli.output import placeholder
from proctor.jobs import jobs

ROOT = Path(__file__).resolve().parents[1]
MANUAL = ROOT / "docs" / "commands.md"
MAN_PAGE = ROOT / "docs" / "proctor.1"
SCHEMAS = ROOT / "src" / "proctor" / "schemas"
HEAD = """# Commands

Written by `make docs` from the commands' own `--help`; do not edit it by hand.

```
{help}
```
"""


def manual() -> str:
    """The whole manual."""
    parts = [HEAD.format(help=_overview())]
    for word, (module, _) in main.COMMANDS.items():
        app = import_module(f"proctor.cli.{module}").apps[word]
        parts.extend(_chapters(f"proctor {word}", typer.main.get_command(app), depth=2))
    return "\n".join(parts)


def _overview() -> str:
    with redirect_stdout(io.StringIO()) as printed:
        main.main(["--help"])
    return printed.getvalue().strip()


def _chapters(name: str, command: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}\n"
    yield _prose(command.help or "")
    below = getattr(command, "commands", {})
    # A group may also be called alone, as `proctor models`.
    if not below or command.invoke_without_command:
        yield _usage(name, command)
        yield _table(command)
    for word, inner in below.items():
        yield from _chapters(f"{name} {word}", inner, depth + 1)


def _prose(text: str) -> str:
    """The help as it is printed, its example set apart."""
    said, example, shown = text.partition("Example:")
    words = " ".join(said.split()) + "\n"
    return words + (f"\n```\n{shown.strip()}\n```\n" if example else "")


def _usage(name: str, command: Any) -> str:
    arguments = [_argument(param) for param in command.params if not _is_option(param)]
    return f"Usage: `{' '.join([name, *arguments, '[OPTIONS]'])}`\n"


def _table(command: Any) -> str:
    rows = [
        f"| `{_cell(_argument(param))}` | {_cell(param.help)} | |"
        for param in command.params
        if not _is_option(param)
    ]
    rows += [f"| {_option(param)} | {_meaning(param)} | {_default(param)} |" for param in _options(command)]
    return "\n".join(["| argument or option | meaning | default |", "|---|---|---|", *rows, ""])


def _options(command: Any) -> list[Any]:
    return [param for param in command.params if _is_option(param) and not param.hidden]


def _is_option(param: Any) -> bool:
    return bool(param.opts[0].startswith("-"))


def _argument(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _option(param: Any) -> str:
    value = f" {placeholder(param)}".rstrip()
    return ", ".join(f"`{word}{value}`" for word in (*param.opts, *param.secondary_opts))


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def _meaning(param: Any) -> str:
    """The help of an option, with the limits of its number."""
    lowest, highest = getattr(param, "min", None), getattr(param, "max", None)
    if lowest is None:
        return _cell(param.help)
    limits = f"At least {lowest}" if highest is None else f"{lowest} to {highest}"
    return f"{_cell(param.help)} {limits}."


def _default(param: Any) -> str:
    if param.required:
        return "required"
    return "" if param.is_flag or param.default in (None, "", False) else f"`{param.default}`"


# The man page


def man_page() -> str:
    """The man page: the overview, then each command with its options."""
    parts = [
        '.TH PROCTOR 1 "" "Proctor" "User commands"',
        ".SH NAME\nproctor \\- run AI agents in batches, record every step, score and compare the results",
        ".SH SYNOPSIS\n.B proctor\n.I COMMAND\n[OPTIONS]",
        f".SH DESCRIPTION\n.nf\n{_roff(_overview())}\n.fi",
        ".SH COMMANDS",
    ]
    for word, (module, _) in main.COMMANDS.items():
        app = import_module(f"proctor.cli.{module}").apps[word]
        parts.extend(_man_sections(f"proctor {word}", typer.main.get_command(app)))
    return "\n".join(parts) + "\n"


def _man_sections(name: str, command: Any) -> Iterator[str]:
    words, example, shown = (command.help or "").partition("Example:")
    yield f".SS {_roff(name)}\n{_roff(' '.join(words.split()))}"
    if example:
        yield f".PP\n.RS\n.nf\n{_roff(shown.strip())}\n.fi\n.RE"
    for param in _options(command):
        names = ", ".join((*param.opts, *param.secondary_opts))
        yield f".TP\n.B {_roff(f'{names} {placeholder(param)}'.rstrip())}\n{_roff(param.help or '')}"
    for word, inner in getattr(command, "commands", {}).items():
        yield from _man_sections(f"{name} {word}", inner)


def _roff(text: str) -> str:
    """A text in which nothing is a request or an escape."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def generated() -> dict[Path, str]:
    """Each file that is written from code, with its text."""
    schemas = {SCHEMAS / f"{job.name}.schema.json": job.name for job in jobs() if job.plan_model}
    return {
        MANUAL: manual(),
        MAN_PAGE: man_page(),
        **{path: generated_schema(name) for path, name in schemas.items()},
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
