"""The native extension. `native` is None if the package has none for this Python and this machine,
or if the environment has PAGODA_NATIVE=0. Then everything works in plain Python and over gRPC.

pip hides what setup.py says of it, so a missing extension is a warning when the package is used."""

import importlib
import logging
import os
from typing import Any


def _load() -> Any:
    if os.environ.get("PAGODA_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("pagoda._native")
    except ImportError as error:
        logging.getLogger("pagoda").warning(
            "pagoda runs without its native extension, which is faster and sends batches through shared memory: %s. "
            "PAGODA_NATIVE=1 pip install says what a build of it lacks; PAGODA_NATIVE=0 ends this warning", error)
        return None


native: Any = _load()
