"""Ends deploy/cluster.sh early, in several ways, and checks what it says and leaves.

    /usr/bin/python3 tests/tools/cluster_failures.py BIN_DIR

Exit status 77: no redis-server is installed. cluster_once runs the script to its end.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import tree

SKIPPED = 77
SECONDS = 60
# The longest that a run may take. cluster_once takes half a minute on a machine without other load.
RUN_SECONDS = 120
SCRIPT = tree.ROOT / "deploy" / "cluster.sh"
# What the script prints before it starts something, and so the moments to end it.
STAGES = ("A Redis Cluster", "Three daemons", "a. ", "c. ", "  $ kill -9 ", "f. ")


class Run:
    """The script in a session of its own, as on a terminal, with its temporary folder in `place`.
    `programs` are found before those of the system."""

    def __init__(self, bin_dir, place, programs=None, path=os.environ["PATH"], arguments=("--once",)):
        self.place = place
        environment = {**os.environ, "TMPDIR": str(place), "PATH": f"{programs}:{path}" if programs else path}
        # A process that a shell has started in the background ignores SIGINT, and so do its
        # children. A shell script cannot trap a signal that it was started to ignore.
        self.process = subprocess.Popen([SCRIPT, *arguments, "--bin", bin_dir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment, start_new_session=True,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.printed = ""
        self.watchdog = threading.Timer(RUN_SECONDS, self._give_up)
        self.watchdog.daemon = True
        self.watchdog.start()

    def _give_up(self):
        """Ends whoever waits for the script's output. Its servers end with it."""
        print(f"the script and its commands are killed: they have run for {RUN_SECONDS} s. They printed:\n{self.printed}", flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def read_until(self, text):
        while text not in self.printed:
            line = self.process.stdout.readline()
            assert line, f"the script ended before {text!r}:\n{self.printed}"
            self.printed += line
        return self

    def end(self):
        """Waits for the end. Returns the exit status."""
        try:
            self.printed += self.process.communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            self._give_up()
            raise AssertionError(f"the script has not ended in {SECONDS} s:\n{self.printed}") from None
        finally:
            self.watchdog.cancel()
        return self.process.returncode

    def interrupt(self, number=signal.SIGINT):
        """Does what Ctrl-C does to the script and the commands that it runs in the foreground."""
        os.killpg(self.process.pid, number)
        return self.end()

    def processes(self, name):
        """The ids of the daemons or servers that this run has started."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                executable, *arguments = (entry / "cmdline").read_bytes().decode().split("\0")
                if name in executable and str(self.place) in " ".join([os.readlink(entry / "cwd"), *arguments]):
                    found.append(int(entry.name))
        return found

    def left(self):
        """What must not be left."""
        deadline = time.monotonic() + SECONDS
        while processes := self.processes("redis-server") + self.processes("pagodad"):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        folders = list(self.place.glob("pagoda-cluster.*"))
        memory = list(pathlib.Path("/dev/shm").glob(f"pagoda-cluster-{self.process.pid}-*"))
        return [f"{one}" for one in processes + folders + memory]


def check(run, status, wanted, printed=""):
    got = run.end() if run.process.returncode is None else run.process.returncode
    if got != wanted:
        yield f"{status}: exit status {got}, not {wanted}:\n{run.printed}"
    if printed and not re.search(printed, run.printed):
        yield f"{status}: {printed!r} is not in its output:\n{run.printed}"
    for one in run.left():
        yield f"{status}: left {one}"


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def interrupted(bin_dir, place, stage, number):
    run = Run(bin_dir, place).read_until(stage)
    run.interrupt(number)
    yield from check(run, f"{number.name} at {stage!r}", 128 + number)


def without_redis(bin_dir, place):
    """With every program of the system except Redis's."""
    programs = place / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for one in pathlib.Path(folder).glob("*"):
            if not one.name.startswith(("redis", "valkey")):
                with contextlib.suppress(FileExistsError):
                    (programs / one.name).symlink_to(one)
    yield from check(Run(bin_dir, place, path=str(programs)), "without Redis", SKIPPED, "redis-server is not installed")


def broken_redis(bin_dir, place):
    programs = place / "programs"
    programs.mkdir()
    program(programs, "redis-server", "echo 'the disk is full'; exit 1")
    yield from check(Run(bin_dir, place, programs), "a broken redis-server", 1, "Redis node 1 ended at its start(.|\n)*the disk is full")


def taken_port(bin_dir, place):
    """The first server finds its port taken, between the script's look at it and its own start."""
    programs = place / "programs"
    programs.mkdir()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        redis = shutil.which("redis-server")
        program(programs, "redis-server", f"""if mkdir "{place}/first" 2>/dev/null; then
  exec {redis} "$@" --port {taken.getsockname()[1]}
fi
exec {redis} "$@\"""")
        run = Run(bin_dir, place, programs)
        run.read_until("a. ")
    assert (place / "first").exists()
    run.interrupt()
    yield from check(run, "a port that is taken", 128 + signal.SIGINT)


def killed_daemon(bin_dir, place):
    run = Run(bin_dir, place).read_until("a. ")
    for process in run.processes("pagodad"):
        os.kill(process, signal.SIGKILL)
    yield from check(run, "a killed daemon", 1, "pagodactl .* failed")


def stays_up(bin_dir, place):
    """Without --once, Ctrl-C is the ordinary end."""
    run = Run(bin_dir, place, arguments=()).read_until("Ctrl-C ends them").read_until("status")
    run.interrupt()
    yield from check(run, "Ctrl-C at the end", 0, "nothing is left")


def main():
    bin_dir = pathlib.Path(sys.argv[1]).absolute()
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        print("skipped: redis-server and redis-cli are not installed")
        return SKIPPED
    runs = [(interrupted, stage, signal.SIGINT) for stage in STAGES]
    runs += [(interrupted, "b. ", signal.SIGTERM), (without_redis,), (broken_redis,), (taken_port,), (killed_daemon,), (stays_up,)]
    found = []
    for run, *arguments in runs:
        with tempfile.TemporaryDirectory(prefix="pagoda-cluster-test.") as place:
            found.extend(run(bin_dir, pathlib.Path(place), *arguments))
    return tree.report("early ends", runs, found)


if __name__ == "__main__":
    sys.exit(main())
