"""The special functions of scipy, without the rest of `scipy.special`.

The package also loads numpy's test tools and Fortran support, and wraps its functions for other array
libraries: 0.2 s of every analysis. The functions here are the same objects.
"""

import importlib
import sys
from types import ModuleType

import scipy

NAME = "scipy.special"


def _functions() -> ModuleType:
    if NAME in sys.modules:
        return sys.modules[NAME]
    # A package without content, so that importing the extension module does not run the real one's.
    package = ModuleType(NAME)
    package.__path__ = [f"{folder}/special" for folder in scipy.__path__]
    sys.modules[NAME] = package
    try:
        return importlib.import_module(f"{NAME}._ufuncs")
    except ImportError:
        del sys.modules[NAME]
        return importlib.import_module(NAME)
    finally:
        if sys.modules.get(NAME) is package:
            del sys.modules[NAME]


_module = _functions()
bdtr = _module.bdtr
betaincinv = _module.betaincinv
chdtri = _module.chdtri
fdtrc = _module.fdtrc
gammaln = _module.gammaln
ndtri = _module.ndtri
stdtr = _module.stdtr
stdtrit = _module.stdtrit
