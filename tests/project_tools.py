"""The programs in `tools/` as modules."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[1] / "tools"


def load_tool(name: str) -> Any:
    """The module of `tools/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
