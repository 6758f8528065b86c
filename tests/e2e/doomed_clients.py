"""Clients that come to a bad end in test_battery_clients.py.

    doomed_clients.py ADDRESS LEASE_MS SEED DESCRIPTOR...

forks a client for each descriptor: a socket on which it says that it works, and is told what to do, a line of JSON each.
"""

import ctypes
import json
import os
import random
import select
import signal
import socket
import sys

import pool_view
from pagoda_client import Client, OperationError, connect
from pagoda.v1 import cache_pb2

TOKENS_PER_BLOCK = 4
RAW_BLOCKS = 3
# Batches before a client says that it works.
WARM_UP = 5
SECONDS_BETWEEN_BATCHES = 0.01
_PR_SET_PDEATHSIG = 1


class Doomed:
    """A session that maps the pools for writing and writes what it owns, batch after batch, until it is refused."""

    def __init__(self, address, lease_ms, seed):
        self.client = Client(connect(address), f"doomed-{seed}", lease_ms)
        self.kv = pool_view.map_pool(self.client.pools()[0])
        self.refused = ""
        self._mark = -1.0 - seed
        self._rng = random.Random(seed)
        self._raw = [block.slot_index for block in self.client.allocate(RAW_BLOCKS)]
        self._number = 0
        self._tokens = self._computed = 0
        self._table = []
        self._open()

    def _fresh_tokens(self, count):
        return [self._rng.randrange(1 << 32) for _ in range(count)]

    def _open(self):
        self._number += 1
        self._tokens, self._computed = 6, 0
        self._table = [block.slot_index for block in self.client.add(self._number, self._fresh_tokens(self._tokens)).tables[0].blocks]

    def writable(self):
        """The slots that this client may write: its raw blocks, and those of its sequence that are not published."""
        return self._raw + self._table[self._computed // TOKENS_PER_BLOCK:]

    def scribble(self, mark):
        for slot in self.writable():
            self.kv[slot] = mark

    def work(self):
        """Writes, then a batch: its sequence grows, with what was there declared computed, and is opened anew when it is long."""
        self.scribble(self._mark)
        try:
            done = self.client.append(self._number, self._fresh_tokens(3), self._tokens)
            self._computed, self._tokens = self._tokens, done.token_count
            for table in done.added:
                self._table[table.first_block:] = [block.slot_index for block in table.blocks]
            if self._tokens > 40:
                self.client.free_sequence(self._number)
                self._open()
        except OperationError as error:
            self.refused = error.reason

    def obey(self, order):
        """An order's answer, as JSON can have it."""
        if order == "scribble":
            for value in range(50):
                self.scribble(self._mark - value / 64)
            return {"refused": self.refused, "slots": self.writable()}
        if order == "acknowledge":
            self.client.close()
            return {"acknowledged": True}
        raise ValueError(order)


def live(address, lease_ms, seed, descriptor):
    with socket.socket(fileno=descriptor) as end, end.makefile("rw") as orders:
        doomed = Doomed(address, lease_ms, seed)
        for _ in range(WARM_UP):
            doomed.work()
        print(json.dumps({"pid": os.getpid()}), file=orders, flush=True)
        while not doomed.refused:
            doomed.work()
            select.select([], [], [], SECONDS_BETWEEN_BATCHES)
        for line in orders:
            print(json.dumps(doomed.obey(json.loads(line))), file=orders, flush=True)


def main():
    address, lease_ms, seed, *descriptors = sys.argv[1:]
    descriptors = [int(descriptor) for descriptor in descriptors]
    for number, descriptor in enumerate(descriptors):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Nobody stays behind, stopped or not.
            for other in descriptors:
                if other != descriptor:
                    os.close(other)
            live(address, int(lease_ms), int(seed) + number, descriptor)
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    for _ in descriptors:
        os.wait()


if __name__ == "__main__":
    main()
