"""pagodactl as an operator runs it, and pagoda-plan with the same options."""

import json
import os
import pathlib
import subprocess

from google.protobuf import json_format

PAGODACTL = pathlib.Path(os.environ["PAGODA_BIN"]) / "pagodactl"
PAGODA_PLAN = PAGODACTL.with_name("pagoda-plan")
RUN_SECONDS = 60


def command(daemon, *arguments, program=PAGODACTL):
    return [program, "--endpoint", f"unix:{daemon.unix_socket}", *map(str, arguments)]


def run(daemon, *arguments, program=PAGODACTL):
    """The ended process, with what it wrote."""
    return subprocess.run(command(daemon, *arguments, program=program), capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


def run_ok(daemon, *arguments, program=PAGODACTL):
    """What it wrote to standard output; fails where it failed."""
    ended = run(daemon, *arguments, program=program)
    assert ended.returncode == 0, ended
    return ended.stdout


def run_json(daemon, *arguments, program=PAGODACTL):
    return json.loads(run_ok(daemon, *arguments, "-o", "json", program=program))


def run_message(daemon, message, *arguments):
    """What `-o json` wrote, read into the message. It has every field of the JSON, else this
    fails."""
    return json_format.Parse(run_ok(daemon, *arguments, "-o", "json"), message)
