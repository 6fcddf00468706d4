"""Certificates of servers in tests."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, alternative: str) -> tuple[Path, Path]:
    """A certificate that only its own holders trust, and its key, as PEM files."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = f"openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN={name}"
    files = ["-addext", f"subjectAltName={alternative}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made.split(), *files], check=True, capture_output=True)
    return certificate, key
