"""Starts Pagoda's programs, which are in this package with the libraries that they load.

    subprocess.Popen([pagoda_server.program("pagodad"), "--memory", "8GiB"])
"""

import os
import pathlib
import signal
import sys
from typing import NoReturn

from pagoda_server.version import VERSION as __version__

__all__ = ["__version__", "program"]


def program(name: str) -> str:
    """The path of `pagodad`, `pagodactl`, `pagoda-plan` or `pagoda-engine`."""
    return str(pathlib.Path(__file__).with_name("bin") / name)


def _become(name: str) -> NoReturn:
    """Replaces this process by the program, which keeps its process id and gets its signals."""
    # Python ignores both signals, and an ignored signal stays ignored in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(program(name), sys.argv)


def pagodad() -> NoReturn:
    _become("pagodad")


def pagodactl() -> NoReturn:
    _become("pagodactl")


def pagoda_plan() -> NoReturn:
    _become("pagoda-plan")


def pagoda_engine() -> NoReturn:
    _become("pagoda-engine")
