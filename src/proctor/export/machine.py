"""What the machine is on which a benchmark ran: times mean little without it.

Reads what the system tells anyone; what cannot be found out is null.

Knows nothing of benchmarks.
"""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 5
LISTED_MODELS = 10
GB = 1024**3


def machine_info(now: datetime, folder: Path, ollama_models: Sequence[str] | None = None) -> dict[str, Any]:
    """System, processor, memory, disk of `folder`, graphics card and what a running Ollama has."""
    return {
        "timestamp": now.isoformat(),
        "system": {
            "platform": platform.system(),
            "release": platform.release(),
            "version": platform.version(),
            "architecture": platform.machine(),
            "hostname": socket.gethostname(),
            "python_version": platform.python_version(),
        },
        "cpu": _processor(),
        "memory": _memory(),
        "disk": _disk(folder),
        "gpu": _graphics(),
        "ollama": _ollama(ollama_models),
    }


def _processor() -> dict[str, Any]:
    facts = _facts(Path("/proc/cpuinfo"))
    cores = {
        (package, core)
        for package, core in zip(facts.get("physical id", []), facts.get("core id", []), strict=False)
    }
    return {
        "physical_cores": len(cores) or None,
        "logical_cores": os.cpu_count(),
        "frequency": _number(next(iter(facts.get("cpu MHz", [])), "")),
        "model": next(iter(facts.get("model name", [])), "") or platform.processor() or None,
    }


def _memory() -> dict[str, Any]:
    facts = _facts(Path("/proc/meminfo"))
    sizes = {name: _number(values[0].partition(" ")[0]) for name, values in facts.items()}

    def gigabytes(name: str) -> float | None:
        kilobytes = sizes.get(name)
        return None if kilobytes is None else round(kilobytes * 1024 / GB, 2)

    return {"total_gb": gigabytes("MemTotal"), "available_gb": gigabytes("MemAvailable")}


def _disk(folder: Path) -> dict[str, Any] | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"total_gb": round(usage.total / GB, 2), "free_gb": round(usage.free / GB, 2)}


def _graphics() -> dict[str, Any] | None:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return {"apple_silicon": True}
    words = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    listed = _printed("nvidia-smi", *words).splitlines()
    parts = [part.strip() for part in listed[0].split(",")] if listed else []
    if len(parts) != 3:
        return None
    return {"nvidia": {"model": parts[0], "memory_mb": _number(parts[1]), "driver": parts[2]}}


def _ollama(models: Sequence[str] | None) -> dict[str, Any] | None:
    if models is None:
        return None
    version = _printed("ollama", "--version").strip().rpartition(" ")[2] or None
    return {"version": version, "models_count": len(models), "models": list(models)[:LISTED_MODELS]}


def _printed(program: str, *words: str) -> str:
    if not shutil.which(program):
        return ""
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _facts(file: Path) -> dict[str, list[str]]:
    """`name : value` lines, every value of a name in order."""
    found: dict[str, list[str]] = {}
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
