"""pagodactl top in a terminal: what it shows, and that the terminal is as before when it ends."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from pagoda_client import Client
from pagodactl import command, run, run_ok

DEADLINE_SECONDS = 30
OTHER_SCREEN, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
ESCAPE = re.compile(rb"\x1b\[[?0-9;]*[A-Za-z]")


class Top:
    """pagodactl top in a pseudo-terminal of its own."""

    def __init__(self, daemon, interval=0.1, rows=30, columns=100, environment=None):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            words = [str(word) for word in command(daemon, "top", "--interval", interval)]
            os.execve(words[0], words, {"TERM": "xterm", **(environment or {})})
        self.written = b""
        self.status = None

    def modes(self):
        return termios.tcgetattr(self.terminal)

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds=0.05):
        """Takes in what was written; False at the end."""
        if select.select([self.terminal], [], [], seconds)[0]:
            try:
                self.written += os.read(self.terminal, 65536)
            except OSError:  # The other end is closed.
                return False
        return True

    def screen(self):
        """The lines of the last whole picture."""
        pictures = self.written.split(b"\x1b[H")
        for picture in reversed(pictures[1:]):
            if b"\x1b[J" in picture:
                # The terminal adds a carriage return before the newline.
                return [ESCAPE.sub(b"", line).decode() for line in re.split(rb"\r+\n", picture.split(b"\x1b[J")[0])]
        return []

    def wait_until(self, condition):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition(self.screen()):
            assert time.monotonic() < deadline, self.written[-4000:]
            assert self.read(), self.written[-4000:]

    def key(self, key):
        os.write(self.terminal, key)

    def end(self):
        """The exit status; takes in all that was written."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.status is None:
            assert time.monotonic() < deadline, self.written[-4000:]
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                self.status = os.waitstatus_to_exitcode(status)
        while select.select([self.terminal], [], [], 0)[0] and self.read(0):
            pass
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def start_top(daemon):
    started = []

    def start(**options):
        started.append(Top(daemon, **options))
        return started[-1]

    yield start
    for top in started:
        top.close()


def shows(text):
    return lambda screen: any(text in line for line in screen)


def test_it_shows_what_changes(daemon, start_top):
    top = start_top()
    top.wait_until(shows("0 sessions, 0 sequences"))
    with Client(daemon.channel) as client:
        client.allocate(32)
        top.wait_until(shows("1 session, 0 sequences"))
        top.wait_until(shows("50.0 % of 64"))
        bar = next(line for line in top.screen() if line.startswith("  primary"))
        assert bar.count("#") == bar.count(".") - 1, bar  # "50.0" also has a point.
    top.wait_until(shows("0.0 % of 64"))
    top.key(b"q")
    assert top.end() == 0


@pytest.mark.parametrize("end", [
    lambda top: top.key(b"q"), lambda top: top.key(b"\x03"), lambda top: os.kill(top.pid, signal.SIGTERM),
    lambda top: os.kill(top.pid, signal.SIGHUP)], ids=["q", "ctrl-c", "sigterm", "sighup"])
def test_the_terminal_is_restored(start_top, end):
    top = start_top()
    top.wait_until(shows("q quits"))
    assert not top.modes()[3] & (termios.ECHO | termios.ICANON)
    end(top)
    # The master's side of a closed terminal still shows the last modes.
    assert top.end() == 0
    assert top.modes()[3] & termios.ECHO and top.modes()[3] & termios.ICANON
    assert top.written.count(OTHER_SCREEN) == 1 and top.written.endswith(b"\x1b[?25h" + BACK)


def test_a_fatal_signal_restores_the_terminal_too(start_top):
    top = start_top()
    top.wait_until(shows("q quits"))
    os.kill(top.pid, signal.SIGABRT)
    assert top.end() == -signal.SIGABRT
    assert top.modes()[3] & termios.ECHO and top.written.endswith(BACK)


def test_stopped_and_continued_it_gives_the_terminal_back_meanwhile(start_top):
    top = start_top()
    top.wait_until(shows("q quits"))
    os.kill(top.pid, signal.SIGTSTP)
    pid, status = os.waitpid(top.pid, os.WUNTRACED)
    assert pid == top.pid and os.WIFSTOPPED(status)
    while select.select([top.terminal], [], [], 0)[0]:
        top.read()
    assert top.modes()[3] & termios.ECHO and top.written.endswith(BACK)
    top.written = b""
    os.kill(top.pid, signal.SIGCONT)
    top.wait_until(shows("q quits"))
    assert OTHER_SCREEN in top.written and not top.modes()[3] & termios.ECHO
    top.key(b"q")
    assert top.end() == 0


def test_a_resize_redraws(start_top):
    top = start_top(interval=3600)
    top.wait_until(lambda screen: screen and len(screen) > 12)
    top.resize(6, 40)
    top.wait_until(lambda screen: len(screen) == 6 and all(len(line) <= 40 for line in screen))
    top.resize(40, 130)
    top.wait_until(lambda screen: shows("q quits")(screen) and len(screen) > 12)
    top.resize(1, 5)
    top.wait_until(lambda screen: screen == ["pagod"])
    top.key(b"q")
    assert top.end() == 0


def test_a_daemon_that_goes_away_is_said_and_waited_for(daemon, start_top):
    top = start_top()
    top.wait_until(shows("up to date"))
    daemon.kill()
    top.wait_until(shows("no answer for"))
    top.wait_until(shows("of 64"))  # The last picture stays.
    daemon.start()
    top.wait_until(lambda screen: screen and not shows("no answer for")(screen))
    top.wait_until(lambda screen: shows("up to date")(screen) and shows("with snapshot 2: ")(screen))
    daemon.kill()
    top.wait_until(shows("no answer for"))
    top.key(b"q")
    assert top.end() == 0


def test_colours_and_unicode_are_those_of_the_environment(start_top):
    plain = start_top(environment={"NO_COLOR": "1", "LC_ALL": "C"})
    plain.wait_until(shows("q quits"))
    assert plain.written.isascii() and b"\x1b[32m" not in plain.written
    rich = start_top(environment={"LC_ALL": "C.UTF-8"})
    rich.wait_until(shows("q quits"))
    rich.wait_until(shows("░"))
    assert b"\x1b[2m" in rich.written


def test_space_holds_the_picture(daemon, start_top):
    top = start_top()
    top.wait_until(shows("q quits"))
    top.key(b" ")
    top.wait_until(shows("paused; space continues"))
    with Client(daemon.channel) as client:
        client.allocate(32)
        # Two resizes are two pictures, drawn after the allocation.
        top.resize(29, 101)
        top.resize(30, 100)
        top.written = b""
        top.wait_until(lambda screen: shows("paused; space continues")(screen) and not shows("50.0 % of 64")(screen))
        top.key(b" ")
        top.wait_until(lambda screen: not shows("paused; space continues")(screen) and shows("50.0 % of 64")(screen))
    top.key(b"q")
    assert top.end() == 0


def test_without_a_terminal_it_is_a_report_an_interval(daemon):
    report = run_ok(daemon, "top", "--once", "--interval", "0.1")
    assert "window full, hit rate" in report and "events      0.0 per second" in report
    assert "\x1b" not in report and "q quits" not in report and "---" not in report
    assert run(daemon, "top", "--once", "--interval", "0.1", "-o", "json").stdout.count("\n") == 1
    assert run(daemon, "top", "--interval", "0").returncode == 2
    with subprocess.Popen(command(daemon, "top", "--interval", "0.1"), stdout=subprocess.PIPE, text=True) as process:
        try:
            reports = 0
            while reports < 3:
                line = process.stdout.readline()
                assert line, "it ended"
                reports += line.startswith("--- ")
            process.send_signal(signal.SIGINT)
            assert "window full" in process.stdout.read()
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()


def test_for_programs_it_is_a_line_an_interval(daemon):
    with subprocess.Popen(command(daemon, "top", "--interval", "0.1", "-o", "json"), stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert [line["events_per_second"] for line in lines] == [0, 0, 0]
            assert lines[0]["status"]["windows"][0]["tiers"][0]["free_blocks"] == 64
            assert lines[0]["time"] < lines[1]["time"] < lines[2]["time"]
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()


def test_no_daemon_is_an_error_and_no_picture(daemon, start_top):
    daemon.kill()
    top = start_top()
    assert top.end() == 3
    assert OTHER_SCREEN not in top.written
