"""Runs the README's tour as printed.

    /usr/bin/python3 tests/tools/readme.py BUILD_DIR [README]

The tour is the section TOUR_HEADING. Its ```sh blocks run in order in one shell, at the repository's root, with `build/release` read
as BUILD_DIR; a command that fails ends it. A ```text block after one shows what comes: each of its lines must come, in that order.
Numbers, units of time and the width of gaps may differ, "..." stands for anything, and other lines may come between.

The tour starts a daemon at the ports that it names. Where somebody listens there already, it does not begin: it would drive the
reader's daemon.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import tree

TOUR_HEADING = "five-minute tour"
TIMEOUT_SECONDS = 150
MARK = "@@ step"
NUMBER = r"\d[\d.,]*"
DURATION = NUMBER + r" (?:us|ms|s)\b"


def tour_steps(page):
    """The tour as [(commands, expected output)]."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    tour = next(section for section in sections if TOUR_HEADING in section.partition("\n")[0])
    steps = []
    for kind, body in re.findall(r"^```(sh|text)\n(.*?)^```$", tour, flags=re.MULTILINE | re.DOTALL):
        if kind == "sh":
            steps.append((body.rstrip("\n"), ""))
        else:
            commands, shown = steps.pop()
            steps.append((commands, shown + body.rstrip("\n")))
    return steps


def pattern_of(line):
    """A printed line as a pattern: a number stands for any number, "..." for anything, a gap for any gap."""
    parts = []
    for piece in re.split(rf"(\.\.\.|{DURATION}|{NUMBER}|\s+)", line.strip()):
        if piece == "...":
            parts.append(r".*")
        elif re.fullmatch(DURATION, piece):
            parts.append(DURATION)
        elif re.fullmatch(NUMBER, piece):
            parts.append(NUMBER)
        elif piece.isspace():
            parts.append(r"\s+")
        else:
            parts.append(re.escape(piece))
    return re.compile("".join(parts))


def missing_line(expected, actual):
    """The first line of `expected` that does not come in `actual` after the ones before it; None where all come."""
    lines = iter(actual.splitlines())
    for wanted in expected.splitlines():
        if wanted.strip() and not any(pattern_of(wanted).search(line) for line in lines):
            return wanted
    return None


def busy_ports(steps):
    """The local ports that the tour names and somebody listens on."""
    busy = []
    for port in sorted({int(port) for step in steps for port in re.findall(r"127\.0\.0\.1:(\d+)", step[0] + step[1])}):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                busy.append(port)
    return busy


def run_tour(steps, build_dir):
    """Runs the steps; returns the exit status and what each step that was reached printed."""
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for number, (commands, _) in enumerate(steps):
        script += [f"echo '{MARK} {number}'", commands.replace("build/release", str(build_dir))]
    # A file, not a pipe: the daemon that the tour leaves in the background must not hold the reader up.
    with tempfile.TemporaryFile("w+") as output:
        environment = {name: value for name, value in os.environ.items() if name != "PAGODA_ENDPOINT"}
        shell = subprocess.Popen(["bash", "-c", "\n".join(script)], cwd=tree.ROOT, env=environment, stdout=output,
                                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = shell.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            status = f"none within {TIMEOUT_SECONDS} s"
        output.seek(0)
        printed = re.split(rf"^{MARK} \d+\n", output.read(), flags=re.MULTILINE)[1:]
    return status, printed


def main():
    build_dir = pathlib.Path(sys.argv[1]).resolve()
    page = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else tree.ROOT / "README.md"
    steps = tour_steps(page.read_text())
    for port in busy_ports(steps):
        print(f"tour: port {port} is busy, perhaps by a pagodad of yours: end it (ss -ltnp 'sport = :{port}' shows it) and try again")
        return 1
    status, printed = run_tour(steps, build_dir)
    failures = 0
    for number, (commands, expected) in enumerate(steps):
        if number >= len(printed):
            print(f"--- not reached:\n{commands}")
            continue
        missing = missing_line(expected, printed[number])
        print(f"$ {commands}\n{printed[number]}")
        if missing is not None:
            failures += 1
            print(f"--- the README shows a line that did not come: {missing}")
    print(f"tour: {len(printed)} of {len(steps)} steps ran, exit status {status}, {failures} steps not as shown")
    return 1 if status or failures or not steps or len(printed) != len(steps) else 0


if __name__ == "__main__":
    sys.exit(main())
