"""Fixtures: a daemon of its own for each test, and clients that know nothing but the generated messages.

Set by CMake: PAGODA_BIN, the folder with pagodad; PYTHONPATH, the folder with the generated pagoda/v1 and google/rpc modules.
"""

import contextlib

import pytest

from pagoda_daemon import Daemon


@pytest.fixture
def start_daemon(tmp_path):
    """start_daemon(**sections) starts a daemon whose configuration differs; each is stopped at the end, whatever happens to the rest."""
    with contextlib.ExitStack() as running:
        def start(**sections):
            folder = tmp_path / f"daemon-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return running.enter_context(Daemon(folder, **sections))

        yield start


@pytest.fixture
def daemon(start_daemon):
    """A running daemon with 64 small blocks and no engine. Stopped at the end, with every check of Daemon.stop."""
    return start_daemon()
