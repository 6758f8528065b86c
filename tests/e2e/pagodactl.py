"""pagodactl as an operator runs it."""

import json
import os
import pathlib
import subprocess

PAGODACTL = pathlib.Path(os.environ["PAGODA_BIN"]) / "pagodactl"
RUN_SECONDS = 60


def command(daemon, *arguments):
    return [PAGODACTL, "--endpoint", f"unix:{daemon.unix_socket}", *map(str, arguments)]


def run(daemon, *arguments):
    """The ended process, with what it wrote."""
    return subprocess.run(command(daemon, *arguments), capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


def run_ok(daemon, *arguments):
    """What it wrote to standard output; fails where it failed."""
    ended = run(daemon, *arguments)
    assert ended.returncode == 0, ended
    return ended.stdout


def run_json(daemon, *arguments):
    return json.loads(run_ok(daemon, *arguments, "-o", "json"))
