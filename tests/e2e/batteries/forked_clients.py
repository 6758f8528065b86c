"""Dozens of client processes for the batteries. A program that has imported everything once forks
them.

A program of such clients calls run_clients. Each client works, batch after batch, until it cannot
go on, and then answers orders. Test and client talk over a socket, in lines of JSON.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys

SECONDS_BETWEEN_BATCHES = 0.01
_PR_SET_PDEATHSIG = 1


def run_clients(make):
    """The program. `make(number, *arguments)` makes the client of each process, which has

    work()       runs one batch. Once, when the client has worked for some time, it returns the
                 message that says so; otherwise None
    over         whether the client cannot work any more
    obey(order)  returns the answer to an order
    """
    first, count, *rest = sys.argv[1:]
    descriptors, arguments = [int(text) for text in rest[:int(count)]], rest[int(count):]
    for number, descriptor in enumerate(descriptors):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # No client outlives the test, not even a stopped one.
            for other in descriptors:
                if other != descriptor:
                    os.close(other)
            _live(make, int(first) + number, descriptor, arguments)
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    for _ in descriptors:
        os.wait()


def _live(make, number, descriptor, arguments):
    with socket.socket(fileno=descriptor) as end, end.makefile("rw") as orders:
        client = make(number, *arguments)
        while not client.over:
            if (told := client.work()) is not None:
                print(json.dumps(told | {"pid": os.getpid()}), file=orders, flush=True)
            select.select([], [], [], SECONDS_BETWEEN_BATCHES)
        for line in orders:
            print(json.dumps(client.obey(json.loads(line))), file=orders, flush=True)


class ForkedClient:
    """A client as the test sees it. `told` is what said that it works."""

    def __init__(self, end):
        self._orders = end.makefile("rw")
        self.told = self.answer()
        self.pid = self.told["pid"]

    def order(self, what):
        print(json.dumps(what), file=self._orders, flush=True)

    def answer(self):
        line = self._orders.readline()
        assert line, "a client has ended before its time"
        return json.loads(line)

    def ask(self, what):
        self.order(what)
        return self.answer()

    def send(self, number):
        os.kill(self.pid, number)


@contextlib.contextmanager
def forked_clients(program, count, first, *arguments):
    """Starts `count` clients of a program, numbered from `first` on, and waits until all of them
    work. The end of the block kills those that live."""
    ends = [socket.socketpair() for _ in range(count)]
    descriptors = [end.fileno() for _, end in ends]
    command = [sys.executable, "-B", program, *map(str, (first, count, *descriptors, *arguments))]
    with subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], pass_fds=descriptors) as forker:
        try:
            for ours, theirs in ends:
                theirs.close()
                ours.settimeout(200)
            yield [ForkedClient(ours) for ours, _ in ends]
        finally:
            forker.kill()  # The kernel kills its children too.
            for ours, _ in ends:
                ours.close()
