"""Fixtures: each test has a daemon of its own, and clients that know only the generated messages.

CMake sets PAGODA_BIN, the folder with pagodad, and PYTHONPATH, the folder with the generated
modules of pagoda/v1 and google/rpc. Each room imports the modules beside this file, and so do the
programs that its tests start.
"""

import contextlib
import os
import pathlib

import pytest

from pagoda_daemon import Daemon

os.environ["PYTHONPATH"] = os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ["PYTHONPATH"]])


@pytest.fixture
def start_daemon(tmp_path):
    """start_daemon(**sections) starts a daemon with a changed configuration. Each daemon is stopped
    at the end, even after a failure."""
    with contextlib.ExitStack() as running:
        def start(**sections):
            folder = tmp_path / f"daemon-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return running.enter_context(Daemon(folder, **sections))

        yield start


@pytest.fixture
def daemon(start_daemon):
    """A running daemon with 64 small blocks and no engine. It is stopped at the end, with every
    check of Daemon.stop."""
    return start_daemon()


@pytest.fixture(params=["grpc", "rings"])
def transport(request, monkeypatch):
    """The way of a Python client's batches on a Unix socket. A module that uses it runs once for
    each way."""
    if request.param == "rings":
        pytest.importorskip("pagoda._native", reason="the build has no native extension for the Python package")
    monkeypatch.setenv("PAGODA_TRANSPORT", {"grpc": "grpc", "rings": "auto"}[request.param])
    return request.param
