"""A small file cannot fill the memory when it is unpacked."""

import gzip

SPANS = b'{"resourceSpans": [' + b"{}," * 12_000_000 + b"{}]}"
"""36 MB, which gzip packs into 200 KB. Parsed, it takes ten times as much."""


def test_a_file_that_is_much_larger_when_unpacked_is_rejected(proctor):
    (proctor.folder / "spans.json.gz").write_bytes(gzip.compress(SPANS, 1))

    imported = proctor("import", "otlp", "spans.json.gz")

    assert imported.returncode == 2
    assert "skipped spans.json.gz: larger than 32 MiB when unpacked" in imported.stderr
