"""`proctor evaluators pairwise`: which of two sessions of one task is better, in both orders."""

from typing import Annotated

import typer

from proctor.cli import output
from proctor.cli.output import Json, count, print_json, print_result
from proctor.cli.run import terminal_context
from proctor.evaluators.pairwise import QUESTION


def pairwise(
    context: typer.Context,
    run: Annotated[list[str], typer.Option(help="Run with sessions to compare (repeatable).")],
    by: Annotated[
        str, typer.Option(help="Factor whose levels are compared, such as model (default: runs).")
    ] = "",
    judge: Annotated[str, typer.Option(help="Judge model, as provider/model.")] = "",
    question: Annotated[str, typer.Option(help="What the judge is asked.")] = QUESTION,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the calls; call nothing.")] = False,
    as_json: Json = False,
) -> int:
    """Compare sessions of the same tasks pair by pair, each in both orders, and rank runs or models.

    A session wins if it does in both orders; otherwise the pair is a tie. Nothing is stored.

    Example:  proctor evaluators pairwise --run nightly-41 --run nightly-42 --judge openai/gpt-4.1
    """
    from proctor.api.pairwise import compare_pairwise, find_pairs, pairwise_document

    with terminal_context(context.obj) as ctx:
        pairs = find_pairs(ctx, run, by=by)
        result = compare_pairwise(ctx, pairs, judge=judge, question=question, dry_run=dry_run)
    if result is None:
        print(f"{count(len(pairs), 'pair')} of sessions, {count(2 * len(pairs), 'call')}")
        return output.SUCCEEDED
    if as_json:
        print_json(result.document)
    else:
        print_result(pairwise_document(result))
    return output.SOME_DID_NOT if result.errors else output.SUCCEEDED
