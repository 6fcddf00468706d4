"""A small file cannot fill the memory when it is unpacked."""

import gzip


def spans(count: int) -> bytes:
    return gzip.compress(b'{"resourceSpans": [' + b"{}," * count + b"{}]}", 1)


def test_a_file_that_is_much_larger_when_unpacked_is_rejected(proctor):
    # 36 MB, which gzip packs into 200 KB. Parsed, it takes ten times as much.
    (proctor.folder / "spans.json.gz").write_bytes(spans(12_000_000))

    imported = proctor("import", "otlp", "spans.json.gz")

    assert imported.returncode == 2
    assert "skipped spans.json.gz: larger than 32 MiB when unpacked" in imported.stderr


def test_a_file_of_nothing_but_empty_objects_is_rejected_before_it_is_parsed(proctor):
    # 12 MB: not too large, but it would take 300 MB of memory.
    (proctor.folder / "spans.json.gz").write_bytes(spans(4_000_000))

    imported = proctor("import", "otlp", "spans.json.gz")

    assert imported.returncode == 2
    assert "it has 4,000,003 objects and lists, and little else" in imported.stderr
