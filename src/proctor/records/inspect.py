"""Inspect's logs, `.eval` and JSON: each sample is a session, with the scores it was given.

The conversation is the sample's messages; the events say when, how long and for how much. Samples of an
`.eval` file are read one at a time. A log whose run was interrupted is read as far as it goes.

Knows nothing of Inspect's code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.imported import ImportedSession
from proctor.records._files import Read, head_of, load_json, told, unreadable
from proctor.records._inspect_sample import session_of
from proctor.records._packed import Packed, opened
from proctor.records._values import a_map, maps_in

kind = "inspect"
endings = (".eval",)

HEADER, START, SAMPLES = "header.json", "_journal/start.json", "samples/"


def recognises(path: Path) -> bool:
    """Whether a file is called like a log and begins like one."""
    if path.name.endswith(endings):
        return head_of(path).startswith(b"PK")
    head = head_of(path, (".json",))
    return all(word in head for word in (b'"eval"', b'"task_id"', b'"dataset"', b'"status"'))


def read(path: Path) -> Read:
    """The sessions of a log."""
    try:
        if head_of(path).startswith(b"PK"):
            with opened(path) as packed:
                yield from _read_packed(path, packed)
        else:
            yield from _read_whole(path, load_json(path))
    except (ValueError, OSError) as error:
        yield unreadable(path, error)


def _read_packed(path: Path, packed: Packed) -> Read:
    names = packed.names
    about = next((name for name in (HEADER, START) if name in names), "")
    if not about:
        raise ValueError(f"it is no log: it has neither {HEADER} nor {START}")
    header = a_map(packed.load(about))
    for name in names:
        if not name.startswith(SAMPLES) or not name.endswith(".json"):
            continue
        if name.count("/") == 1:
            yield told(path, lambda it=name: _session(packed.load(it), header), name)  # type: ignore[misc]
        elif name.endswith("/sample.json"):
            yield unreadable(path, "it is kept in pieces; have Inspect write it as one", name)


def _read_whole(path: Path, document: Any) -> Read:
    header = a_map(document)
    if "eval" not in header:
        raise ValueError("it is no log: it has no `eval`")
    for number, sample in enumerate(maps_in(header.get("samples")), start=1):
        yield told(path, lambda it=sample: _session(it, header), f"sample {number}")  # type: ignore[misc]


def _session(sample: Any, header: Mapping[str, Any]) -> ImportedSession:
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        raise ValueError("it is no sample: it has no messages")
    return session_of(sample, header, kind)
