"""Load a module in less time.

Knows nothing of which.
"""

import gc
import sys
from importlib import import_module
from types import ModuleType


def load(name: str) -> ModuleType:
    """Import a module that takes long. Nothing an import makes is ever garbage, and looking for it takes a
    tenth of the time, of large libraries a sixth."""
    if name in sys.modules:
        return sys.modules[name]
    was_looking = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_looking:
            gc.enable()
