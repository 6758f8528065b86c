"""Fixtures: a daemon of its own for each test, and clients that know nothing but the generated messages.

Set by CMake: PAGODA_BIN, the folder with pagodad; PYTHONPATH, the folder with the generated pagoda/v1 and google/rpc modules.
"""

import pytest

from pagoda_daemon import Daemon


@pytest.fixture
def daemon(tmp_path):
    """A running daemon with 64 small blocks and no engine. Stopped at the end, with every check of Daemon.stop."""
    with Daemon(tmp_path) as running:
        yield running


@pytest.fixture
def start_daemon(tmp_path):
    """start_daemon(**sections) starts a daemon whose configuration differs; all are stopped at the end."""
    running = []

    def start(**sections):
        folder = tmp_path / f"daemon-{len(running)}"
        folder.mkdir()
        running.append(Daemon(folder, **sections).start())
        return running[-1]

    yield start
    for one in running:
        one.stop()
