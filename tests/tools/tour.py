"""Runs the tour of docs/tour.md as printed.

    /usr/bin/python3 tests/tools/tour.py BUILD_DIR [PAGE]

The page's ```sh blocks run in order in one shell, at the repository's root, with `build/release`
read as BUILD_DIR. A command that fails ends the tour. A
```text block after a command shows the output: each of its lines must come, in that order, with the
same numbers. Only these can differ: the width of gaps, times of day, and numbers that depend on the
machine. A duration can be 100 times shorter or 1,000 times longer, and a rate ("tokens/s", "... per
second", the last column of a table under "OPERATIONS/S") as much lower or higher. "..." stands for
anything, and other lines can come between.

The tour starts a daemon at the ports that it names. If another program listens there, the tour does
not begin: it would use the reader's daemon.
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

TIMEOUT_SECONDS = 150
MARK = "@@ step"
NUMBER = r"\d+(?:[.,]\d+)*"
CLOCK = r"\d\d:\d\d:\d\d\.\d{3}"
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
DURATION = rf"{NUMBER} (?:{'|'.join(SECONDS)})\b(?: {NUMBER} (?:{'|'.join(SECONDS)})\b)*"
# The factors by which another machine can be faster or slower than the page's machine. A duration
# can always be up to ALWAYS_SECONDS, because other work can interrupt anything short.
MOST_FASTER, MOST_SLOWER = 100, 1000
ALWAYS_SECONDS = 10.0


def tour_steps(page):
    """The tour as [(commands, expected output)]."""
    steps = []
    for kind, body in re.findall(r"^```(sh|text)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
        if kind == "sh":
            steps.append((body.rstrip("\n"), ""))
        else:
            commands, shown = steps.pop()
            steps.append((commands, shown + body.rstrip("\n")))
    return steps


def number_of(text):
    return float(text.replace(",", ""))


def seconds_of(duration):
    """The seconds of "59 min 59 s" and the like."""
    return sum(number_of(number) * SECONDS[unit] for number, unit in re.findall(rf"({NUMBER}) (\w+)", duration))


def duration_may_be(shown, came):
    shown, came = seconds_of(shown), seconds_of(came)
    return shown / MOST_FASTER <= came <= max(shown * MOST_SLOWER, ALWAYS_SECONDS)


def rate_may_be(shown, came):
    shown, came = number_of(shown), number_of(came)
    return shown / MOST_SLOWER <= came <= shown * MOST_FASTER


class Line:
    """A printed line, to compare with another one. `ends_in_rate`: it belongs to a table whose last
    column has rates."""

    def __init__(self, line, ends_in_rate=False):
        self._checks = []  # By group of the pattern: (the shown text, a check whether another text is allowed).
        pieces = re.split(rf"(\.\.\.|{CLOCK}|{DURATION}|{NUMBER}|\s+)", line.strip())
        last = max((i for i, piece in enumerate(pieces) if re.fullmatch(NUMBER, piece)), default=None)
        pattern = []
        for i, piece in enumerate(pieces):
            is_rate = "".join(pieces[i + 1:]).startswith(" tokens/s") or " per second" in line or (ends_in_rate and i == last)
            if piece == "...":
                pattern.append(r".*")
            elif re.fullmatch(CLOCK, piece):
                pattern.append(CLOCK)
            elif re.fullmatch(DURATION, piece):
                pattern.append(f"({DURATION})")
                self._checks.append((piece, duration_may_be))
            elif re.fullmatch(NUMBER, piece) and is_rate:
                pattern.append(f"({NUMBER})")
                self._checks.append((piece, rate_may_be))
            elif re.fullmatch(NUMBER, piece):
                pattern.append(rf"(?<![\d.,]){re.escape(piece)}(?![.,]?\d)")
            elif piece.isspace():
                pattern.append(r"\s+")
            else:
                pattern.append(re.escape(piece))
        self._pattern = re.compile("".join(pattern))

    def comes_in(self, line):
        found = self._pattern.search(line)
        return found is not None and all(may_be(shown, came) for (shown, may_be), came in zip(self._checks, found.groups()))


def lines_of(text):
    """The lines of a shown text that are not empty, as [(line, Line)]."""
    lines = []
    in_rates = False
    for line in text.splitlines():
        in_rates = bool(line.strip()) and (in_rates or line.rstrip().endswith("/S"))
        if line.strip():
            lines.append((line, Line(line, ends_in_rate=in_rates)))
    return lines


def missing_line(expected, actual):
    """The first line of `expected` that does not come in `actual` after the lines before it. None
    if all come."""
    lines = iter(actual.splitlines())
    for shown, wanted in lines_of(expected):
        if not any(wanted.comes_in(line) for line in lines):
            return shown
    return None


def busy_ports(steps):
    """The local ports that the tour names and that a process listens on."""
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
    # A file, not a pipe: the tour leaves a daemon in the background, which must not keep the reader
    # of a pipe waiting.
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
    page = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else tree.ROOT / "docs" / "tour.md"
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
            print(f"--- a line of the page was not printed: {missing}")
    print(f"tour: {len(printed)} of {len(steps)} steps ran, exit status {status}, {failures} steps not as shown")
    return 1 if status or failures or not steps or len(printed) != len(steps) else 0


if __name__ == "__main__":
    sys.exit(main())
