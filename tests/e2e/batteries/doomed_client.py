"""A client that comes to a bad end in test_battery_clients.py; forked_clients.py starts it.

    doomed_client.py ... ADDRESS LEASE_MS
"""

import random

import pool_view
from forked_clients import run_clients
from pagoda_client import Client, OperationError, connect, handles

TOKENS_PER_BLOCK = 4
RAW_BLOCKS = 3
# A client reports that it works after so many batches.
WARM_UP = 5


class Doomed:
    """A session that maps the pools for writing and writes its slots, batch after batch, until the
    daemon refuses it."""

    def __init__(self, number, address, lease_ms):
        self.client = Client(connect(address), f"doomed-{number}", int(lease_ms))
        self.kv = pool_view.map_pool(self.client.pools()[0])
        self.refused = ""
        self._mark = -1.0 - number
        self._rng = random.Random(number)
        self._raw = [block.slot_index for block in self.client.allocate(RAW_BLOCKS)]
        self._batches = 0
        self._sequence = 0
        self._tokens = self._computed = 0
        self._table = []
        self._open()

    @property
    def over(self):
        return bool(self.refused)

    def work(self):
        """Writes, then runs a batch: its sequence grows, the written tokens are declared computed,
        and a long sequence is freed and opened again."""
        self._scribble(self._mark)
        try:
            self._computed = self._tokens  # It no longer writes tokens that it declares or frees, even if no answer comes.
            done = self.client.append(self._sequence, self._fresh_tokens(3), self._computed)
            self._tokens = done.token_count
            for table in done.added:
                self._table[table.first_block:] = [block.slot_index for block in handles(table.blocks)]
            if self._tokens > 40:
                self._table = []
                self.client.free_sequence(self._sequence)
                self._open()
        except OperationError as error:
            self.refused = error.reason
        self._batches += 1
        return {} if self._batches == WARM_UP else None

    def obey(self, order):
        if order == "scribble":
            for value in range(50):
                self._scribble(self._mark - value / 64)
            return {"refused": self.refused, "slots": self._writable()}
        assert order == "acknowledge"
        self.client.close()
        return {}

    def _fresh_tokens(self, count):
        return [self._rng.randrange(1 << 32) for _ in range(count)]

    def _open(self):
        self._sequence += 1
        self._tokens, self._computed = 6, 0
        added = self.client.add(self._sequence, self._fresh_tokens(self._tokens))
        self._table = [block.slot_index for block in handles(added.tables[0].blocks)]

    def _writable(self):
        """The slots that this client may write: its raw blocks, and the unpublished blocks of its
        sequence."""
        return self._raw + self._table[self._computed // TOKENS_PER_BLOCK:]

    def _scribble(self, mark):
        for slot in self._writable():
            self.kv[slot] = mark


if __name__ == "__main__":
    run_clients(Doomed)
