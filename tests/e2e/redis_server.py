"""A plain redis-server of the test's own, for daemons' stores."""

import shutil
import signal
import socket
import subprocess
import time

from free_ports import free_port

START_SECONDS = 60


class RedisServer:
    """Without files, on a free port of loopback, from `start` on or in a `with` block."""

    program = shutil.which("redis-server")

    def __init__(self):
        self.process = None
        self.has_run = False
        self._take_port()

    def _take_port(self):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    def start(self):
        """On the same port as before. Before the first start another process can take the port;
        then this takes another one."""
        for _ in range(1 if self.has_run else 5):
            if self._started():
                self.has_run = True
                return self
            if not self.has_run:
                self._take_port()
        raise AssertionError("redis-server ended at its start")

    def _started(self):
        """False if the server cannot listen."""
        command = ["setpriv", "--pdeathsig", "KILL", self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                   "--appendonly", "no"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while self.ask("PING") != b"+PONG\r\n":
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)
        return True

    def ask(self, *words):
        """The first bytes of the answer to a command; b"" if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
                one.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words))
                return one.recv(1 << 16)
        except OSError:
            return b""

    def keys(self):
        """How many keys there are."""
        return int(self.ask("DBSIZE").strip(b":\r\n"))

    def pause(self):
        """Connections stay open, and nothing is answered any more."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()
