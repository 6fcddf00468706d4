"""Write docs/commands.md from the help of the commands.

python tools/write_command_manual.py
"""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from proctor.cli import main
from proctor.cli.output import placeholder

MANUAL = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
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
    below = getattr(command, "commands", None)
    if below is None:
        yield _usage(name, command)
        yield _table(command)
        return
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
    rows += [f"| {_option(param)} | {_cell(param.help)} | {_default(param)} |" for param in _options(command)]
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


def _default(param: Any) -> str:
    if param.required:
        return "required"
    return "" if param.is_flag or param.default in (None, "", False) else f"`{param.default}`"


if __name__ == "__main__":
    MANUAL.write_text(manual(), encoding="utf-8")
    print(f"wrote {MANUAL.relative_to(Path.cwd()) if MANUAL.is_relative_to(Path.cwd()) else MANUAL}")
