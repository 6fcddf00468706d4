"""`proctor init`, `schema` and `completion`: a first plan, and help for editors and shells."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from proctor.api.first_plan import (
    FirstPlan,
    has_mock,
    prompt_plan,
    suggested_prompt,
    suggested_work,
    work_plan,
)
from proctor.api.plans import FIRST, job_names, recognize, schema_text
from proctor.api.runs import dry_run, read_plan
from proctor.api.shims import write_shims
from proctor.cli import main, output
from proctor.cli.output import (
    Json,
    print_json,
    print_next,
    print_note,
    printable,
    write_file,
)
from proctor.cli.run import terminal_context
from proctor.context import ModelOptions
from proctor.errors import UsageError
from proctor.git import Git
from proctor.job import PlanText
from proctor.json_values import JsonMap
from proctor.lazy_import import load
from proctor.secrets import visible

init_app = typer.Typer(add_completion=False)
schema_app = typer.Typer(add_completion=False)
completion_app = typer.Typer(add_completion=False)
shims_app = typer.Typer(add_completion=False)
apps = {"init": init_app, "schema": schema_app, "completion": completion_app, "shims": shims_app}
SCHEMA_FOLDER = ".proctor"
"""Folder beside a plan in which `proctor init` writes the schema for editors."""

# `proctor init`


@init_app.command()
def init(
    context: typer.Context,
    who: Annotated[
        str,
        typer.Option(
            "--agents", "--models", help="Agents or models to compare, comma-separated.", metavar="NAMES"
        ),
    ] = "",
    prompt: Annotated[str, typer.Option(help="What to ask of them.", metavar="TEXT")] = "",
    check: Annotated[
        str,
        typer.Option(
            help="Command that must pass; without a repository: text of a right answer.", metavar="TEXT"
        ),
    ] = "",
    repeats: Annotated[int, typer.Option(min=0, help="Repeats of each item.", metavar="N")] = 0,
    budget: Annotated[float, typer.Option(min=0, help="Most to spend, in US dollars.", metavar="USD")] = 0,
    out: Annotated[Path, typer.Option("--out", help="Plan file to write.", metavar="FILE")] = Path(
        "proctor-plan.yaml"
    ),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; take the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: Json = False,
) -> int:
    """Ask five questions, and write a first plan for the repository in this folder.

    Agents get a model whose key is set; where nothing can be used, a mock works. Outside a git repository,
    the plan asks models a prompt. Editors complete and check it by the schema that is written beside it.

    Example:  proctor init
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists\nChoose another file with --out, or pass --force to replace it.")
    git = _repository()
    folder = out.resolve().parent
    with terminal_context(context.obj, [folder, Path.cwd()]) as ctx:
        models = ctx.models(ModelOptions(folders=(folder, Path.cwd())), records=False)
        suggested = (
            suggested_work(git, models, os.environ) if git else suggested_prompt(models, os.environ, who)
        )
        options = {"who": who, "prompt": prompt, "check": check, "repeats": repeats, "budget": budget}
        asks = not yes and not as_json and sys.stdin.isatty()
        answers = _completed(options, suggested, is_coding=git is not None, asks=asks)
        plan = work_plan(git, answers, folder, os.environ) if git else prompt_plan(answers)
        text = _text(plan, out, git)
        # Raises for what is wrong by itself; what is missing on this machine can still be installed.
        read = read_plan(ctx, PlanText(text=text, path=out, folder=folder))
        write_file(out, text)
        schema = out.parent / SCHEMA_FOLDER / f"{read.job.name}.schema.json"
        write_file(schema, schema_text(read.job.name))
        if as_json:
            print_json({"plan": str(out), "schema": str(schema), "job": read.job.name})
        print_note(f"wrote {printable(out)} and {printable(schema)}")
        if git and not answers.check:
            print_note(
                "note: nothing checks the work: set `scriptCommand` to a command that passes when it is done"
            )
        if has_mock(plan):
            print_note(
                f"note: the plan uses the mock `{answers.who}`, since no agent or model can be used here; "
                f"set a key, such as OPENAI_API_KEY, then: proctor init --force"
            )
        try:
            dry_run(ctx, read)
        except UsageError as error:
            print_note(f"note: the plan does not run yet:\n{printable(error, lines=True)}")
    print_next([f"proctor batch {out} --dry-run", f"proctor batch {out}"])
    return output.SUCCEEDED


def _repository() -> Git | None:
    git = Git(Path.cwd(), visible(os.environ, named={"HOME"}))
    code, top, _ = git.run("rev-parse", "--show-toplevel")
    if code:
        return None
    if git.run("rev-parse", "--verify", "-q", "HEAD")[0]:
        raise UsageError("the repository has no commit yet\nCommit once: agents work on copies of a branch.")
    return Git(Path(top.strip()), git.environment)


def _completed(options: JsonMap, suggested: FirstPlan, *, is_coding: bool, asks: bool) -> FirstPlan:
    """The answers of the command line, then of the person, else those that are suggested."""
    questions = {
        "who": "Which agents or models" + (" work on the repository?" if is_coding else " answer?"),
        "prompt": "What should they do?" if is_coding else "What should they be asked?",
        "check": "Which command tells whether it worked?"
        if is_coding
        else "What must a right answer contain?",
        "repeats": "How often should each repeat it?",
        "budget": "Most US dollars to spend?",
    }
    answers: dict[str, Any] = {}
    for name, question in questions.items():
        value, default = options[name], getattr(suggested, name)
        if not value and asks:
            value = typer.prompt(question, default=default, type=type(default), err=True)
        answers[name] = value or default
    if answers["check"] != suggested.check:
        # What the suggested check needs.
        answers |= {"setup": "", "read": ()}
    return replace(suggested, **answers)


def _text(plan: JsonMap, out: Path, git: Git | None) -> str:
    body = yaml.safe_dump(dict(plan), sort_keys=False, allow_unicode=True, width=110)
    job = recognize(body).name
    what = f"the repository {printable(git.folder.name)}" if git else "one prompt"
    return (
        f"# yaml-language-server: $schema={SCHEMA_FOLDER}/{job}.schema.json\n"
        f"# A first plan for {what}. Check it without running anything:  proctor batch {out} --dry-run\n"
        f"# Every key: docs/plans.md, or the completion of your editor. `budget` is in US dollars.\n{body}"
    )


# `proctor schema`


@schema_app.command()
def schema(
    job: Annotated[str, typer.Argument(help="Job (default: coding).", metavar="JOB")] = FIRST,
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write (default: standard output).", metavar="FILE")
    ] = None,
) -> int:
    """Print the JSON Schema of a job's plans, for editors and other programs.

    An editor with a YAML language server uses it when a plan begins with
    `# yaml-language-server: $schema=FILE`.

    Example:  proctor schema coding --out plan.schema.json
    """
    text = schema_text(job)
    if out is None:
        print(text, end="")
    else:
        write_file(out, text)
        print_note(f"wrote {printable(out)}")
    return output.SUCCEEDED


# `proctor completion`


Shell = Literal["bash", "zsh", "fish"]


@shims_app.command()
def shims(
    folder: Annotated[Path, typer.Argument(help="Folder to write them to.", metavar="DIR")] = Path(),
    as_json: Json = False,
) -> int:
    """Write modules so that scripts for `batch_runner`, `batch_simulate`, and `patienthub` run unchanged.

    Example:  proctor shims study
    """
    written = write_shims(folder)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    return output.SUCCEEDED


@completion_app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh, or fish.", metavar="SHELL")]) -> int:
    """Print the completion script of a shell: commands, subcommands, and options.

    Example:  proctor completion bash > ~/.local/share/bash-completion/completions/proctor
    """
    words = dict(_completions())
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](words), end="")
    return output.SUCCEEDED


def _completions() -> Iterator[tuple[str, Sequence[str]]]:
    """Each command, with what can follow it."""
    for name, (module, _) in main.COMMANDS.items():
        command: Any = typer.main.get_command(load(f"proctor.cli.{module}").apps[name])
        yield from _completions_of(name, command)


def _completions_of(name: str, command: Any) -> Iterator[tuple[str, Sequence[str]]]:
    options = [word for param in command.params for word in (*param.opts, *param.secondary_opts)]
    long = [word for word in options if word.startswith("--")]
    below = getattr(command, "commands", {})
    values = (
        list(job_names()) if name == "schema" else ["bash", "zsh", "fish"] if name == "completion" else []
    )
    yield name, [*below, *values, *long, "--help"]
    for word, inner in below.items():
        yield from _completions_of(f"{name} {word}", inner)


def _bash(words: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f'    "{name}") echo "{" ".join(following)}" ;;' for name, following in words.items())
    return f"""# Completion of proctor for bash.
_proctor_words() {{
  case "$1" in
{cases}
  esac
}}
_proctor() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(main.COMMANDS)} --help --version" -- "$current"))
    return
  fi
  [ "$COMP_CWORD" -gt 2 ] && words="$(_proctor_words "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}")"
  [ -z "$words" ] && words="$(_proctor_words "${{COMP_WORDS[1]}}")"
  COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
}}
complete -o filenames -F _proctor proctor
"""


def _zsh(words: Mapping[str, Sequence[str]]) -> str:
    return (
        "#compdef proctor\n# Completion of proctor for zsh, by that for bash.\n"
        "autoload -U +X bashcompinit && bashcompinit\n" + _bash(words)
    )


def _fish(words: Mapping[str, Sequence[str]]) -> str:
    lines = ["# Completion of proctor for fish."]
    lines += [
        f"complete -c proctor -n __fish_use_subcommand -a {name} -d {_quoted(summary)}"
        for name, (_, summary) in main.COMMANDS.items()
    ]
    for name, following in words.items():
        condition = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in name.split())[6:]
        options = [word[2:] for word in following if word.startswith("--")]
        below = [word for word in following if not word.startswith("--")]
        lines += [f"complete -c proctor -n '{condition}' -l {option}" for option in options]
        if below:
            lines.append(f"complete -c proctor -n '{condition}' -a '{' '.join(below)}'")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"
