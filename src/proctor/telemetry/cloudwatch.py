"""Spans and event records in CloudWatch Logs.

Content stands in an agent's own log group; spans stand there too, or apart in `aws/spans`, each with the
name of the group it belongs to. Both are read, page by page, and only what was asked for is kept.

Knows nothing of sessions, or of where documents go.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from proctor.errors import NotFound, UsageError
from proctor.telemetry.decoding import Decoded
from proctor.telemetry.documents import Document, log_group_of, service_of, session_key_of
from proctor.telemetry.files import documents_in

SPANS = "aws/spans"
"""Where spans go that were sent without what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroups:
    """What to read of CloudWatch Logs."""

    names: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    """Every group whose name begins so."""
    service: str = ""
    """Empty: every service."""
    session_ids: Sequence[str] = ()
    """Empty: every session."""
    start: datetime | None = None
    end: datetime | None = None
    """The first moment that no longer counts."""


def logs_client(*, region: str = "", endpoint_url: str = "") -> Any:
    """A client for CloudWatch Logs with the credentials that boto3 finds."""
    # An extra: imported only by those who use it.
    try:
        import boto3
    except ImportError as error:
        raise UsageError(
            "reading CloudWatch Logs needs boto3\nInstall it: pip install 'proctor[aws]'"
        ) from error
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.client("logs", region_name=region or None, endpoint_url=endpoint_url or None)
    except (BotoCoreError, ValueError) as error:
        raise UsageError(
            f"CloudWatch Logs cannot be reached: {error}\nName a region with --region."
        ) from error


def read_log_groups(client: Any, wanted: LogGroups) -> Iterator[tuple[str, Document]]:
    """Every document of these groups, with the group it belongs to."""
    groups = [*wanted.names, *(name for prefix in wanted.prefixes for name in _beginning(client, prefix))]
    if not groups:
        raise NotFound("there is no such log group\nName one with --log-group, or the beginning of several.")
    for group in dict.fromkeys(groups):
        for document in _documents(client, group, wanted):
            yield log_group_of(document) or group, document
    if SPANS not in groups:
        for document in _spans_apart(client, wanted):
            home = log_group_of(document)
            if home in groups or not home:
                yield home or groups[0], document


def _spans_apart(client: Any, wanted: LogGroups) -> Iterator[Document]:
    try:
        yield from _documents(client, SPANS, wanted)
    except NotFound:
        return


def _documents(client: Any, group: str, wanted: LogGroups) -> Iterator[Document]:
    for event in _events(client, group, wanted):
        for document in _in_event(event).documents:
            if _is_wanted(document, wanted):
                yield document


def _in_event(event: dict[str, Any]) -> Decoded:
    try:
        return documents_in({"message": event.get("message", "")})
    except ValueError:
        # A record of something else: an agent may log what it likes.
        return Decoded([])


def _is_wanted(document: Document, wanted: LogGroups) -> bool:
    if wanted.service and service_of(document) not in ("", wanted.service):
        return False
    named = session_key_of(document)
    # A span that names no session may still belong to one of these, by its trace.
    return not wanted.session_ids or not named or named in wanted.session_ids


def _events(client: Any, group: str, wanted: LogGroups) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"logGroupName": group}
    if wanted.start:
        asked["startTime"] = _milliseconds(wanted.start)
    if wanted.end:
        # The interface counts the end in.
        asked["endTime"] = _milliseconds(wanted.end - timedelta(milliseconds=1))
    if wanted.service:
        asked["filterPattern"] = f'"{wanted.service}"'
    yield from _paged(client, "filter_log_events", "events", asked, f"the log group {group}")


def _beginning(client: Any, prefix: str) -> Iterator[str]:
    asked = {"logGroupNamePrefix": prefix}
    found = _paged(client, "describe_log_groups", "logGroups", asked, f"log groups beginning with {prefix}")
    return (group["logGroupName"] for group in found)


def _paged(
    client: Any, operation: str, items: str, asked: dict[str, Any], what: str
) -> Iterator[dict[str, Any]]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        for page in client.get_paginator(operation).paginate(**asked):
            yield from page.get(items, ())
    except ClientError as error:
        told = error.response.get("Error", {})
        if told.get("Code") == "ResourceNotFoundException":
            raise NotFound(f"there is no {what.removeprefix('the ')}") from error
        raise UsageError(f"CloudWatch Logs refuses to show {what}: {told.get('Message') or error}") from error
    except BotoCoreError as error:
        raise UsageError(f"CloudWatch Logs cannot be reached: {error}") from error


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
