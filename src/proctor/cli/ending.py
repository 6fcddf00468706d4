"""How a command ends: what went wrong as words and an exit code.

The library raises; this is the one place that turns an error into a line.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from typer.exceptions import TyperException

from proctor.cli.words import printable
from proctor.errors import PlanError, ProctorError, StoreError, StoreUnavailable, UsageError

SUCCEEDED, SOME_DID_NOT, BAD_USAGE, CUT_SHORT, CTRL_C = 0, 1, 2, 3, 130


@dataclass(slots=True)
class End:
    """The exit code a command comes to."""

    code: int | None = None


@contextmanager
def told(*, as_json: bool) -> Iterator[End]:
    """Turn whatever goes wrong inside into words and an exit code."""
    end = End()
    try:
        yield end
    except PlanError as error:
        problems = [
            {
                "file": p.at.file,
                "line": p.at.line,
                "column": p.at.column,
                "problem": p.problem,
                "remedy": p.remedy,
            }
            for p in error.problems
        ]
        end.code = _say(str(error), BAD_USAGE, as_json=as_json, problems=problems)
    except (UsageError, TyperException) as error:
        words = error.format_message() if isinstance(error, TyperException) else str(error)
        end.code = _say(words, BAD_USAGE, as_json=as_json)
    except StoreUnavailable as error:
        end.code = _say(str(error), BAD_USAGE, as_json=as_json)
    except StoreError as error:
        end.code = _say(str(error), CUT_SHORT, as_json=as_json)
    except ProctorError as error:
        end.code = _say(str(error), SOME_DID_NOT, as_json=as_json)
    except KeyboardInterrupt:
        end.code = CTRL_C
    except (BrokenPipeError, SystemExit):
        # The reader of our output has gone (`| head`), at which typer exits; Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        end.code = SUCCEEDED


def unknown_command(name: str, commands: Mapping[str, Any]) -> UsageError:
    """The error for a command there is none of, with the nearest there is."""
    near = get_close_matches(name, commands, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else "`proctor --help` lists them."
    return UsageError(f"there is no command `{name}`\n{remedy}")


def _say(words: str, code: int, *, as_json: bool, **more: Any) -> int:
    if as_json:
        print(json.dumps({"error": words, **more}, ensure_ascii=False))
    print(printable(f"proctor: {words}", lines=True), file=sys.stderr)
    return code
