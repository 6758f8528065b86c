"""The native extension. `native` is None if the package has none for this Python and this machine,
or if the environment has PAGODA_NATIVE=0. Then everything works in plain Python and over gRPC."""

import importlib
import os
from typing import Any


def _load() -> Any:
    if os.environ.get("PAGODA_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("pagoda._native")
    except ImportError:
        return None


native: Any = _load()
