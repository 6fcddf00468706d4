"""Options that many commands have, each with one meaning and one wording.

Knows nothing of what a command does with them.
"""

from typing import Annotated

import typer

Run = Annotated[str, typer.Argument(help="The run's id, or an unambiguous beginning of it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]
Jsonl = Annotated[
    bool, typer.Option("--jsonl", help="Print a JSON record for the launch, each item and the end.")
]
RetryErrors = Annotated[bool, typer.Option("--retry-errors", help="Also repeat items that ended in `error`.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also repeat items that ended in `fail` or `timeout`.")
]
