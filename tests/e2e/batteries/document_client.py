"""A client that computes documents under the daemons of test_battery_restart.py. forked_clients.py
starts it.

    document_client.py ... ADDRESS

It works until its daemon has ended, and checks every byte of each match. Then it goes on writing to
the slots that it could write last.
"""

import random

import documents
import grpc
import pool_view
from forked_clients import run_clients
from pagoda_client import Client, OperationError, connect, handles
from pagoda.v1 import cache_pb2, types_pb2

MOST_SEQUENCES = 4
# A client reports that it works when it has freed so many sequences.
WARM_UP = 3
GARBAGE = -1.0


class Running:
    """One of the client's sequences: a document as far as it got."""

    def __init__(self, number, document, slots, token_count, computed_tokens):
        self.number = number
        self.document = document
        self.tokens = documents.tokens(document)
        self.known = documents.values(self.tokens)
        self.slots = slots
        self.token_count = token_count
        self.computed_tokens = computed_tokens


class Writer:
    """A session that adds, grows, forks, cuts and frees sequences, with real bytes in their
    blocks."""

    def __init__(self, number, address):
        self.client = Client(connect(address), f"writer-{number}")
        pools = self.client.pools()
        (primary,) = [pool for pool in pools if pool.tier == types_pb2.TIER_PRIMARY]
        self.kv = pool_view.map_pool(primary)
        self.over = False
        self.wrong = []  # Matches that returned wrong KV.
        self.matched = 0
        self._dice = random.Random(number)
        self._running = []
        self._next = 1
        self._freed = 0

    def work(self):
        freed = self._freed
        try:
            self._dice.choice([self._add, self._grow, self._grow, self._grow, self._fork, self._cut, self._free])()
        except (OperationError, grpc.RpcError, KeyError) as error:  # KeyError: a broken call has no details.
            if getattr(error, "reason", "") != "BLOCKS_EXHAUSTED":
                self.over = True
        return {} if self._freed == WARM_UP and freed < WARM_UP else None

    def obey(self, order):
        if order == "scribble":  # Overwrites all slots that this client can write, as far as it knows.
            for sequence in self._running:
                end = len(sequence.slots) * self.kv.shape[4]
                garbage = [GARBAGE] * end
                documents.write(self.kv, sequence.slots, garbage, sequence.computed_tokens, end)
            return {"wrong": self.wrong, "matched": self.matched, "freed": self._freed}
        assert order == "acknowledge"
        request = cache_pb2.CloseSessionRequest(session=self.client.session)
        self.client.stub.CloseSession(request, timeout=20, wait_for_ready=True)  # The next daemon answers, as soon as it serves.
        return {}

    def _sequence(self):
        return self._dice.choice(self._running) if self._running else None

    def _add(self):
        if len(self._running) == MOST_SEQUENCES:
            return
        document = self._dice.randrange(documents.COUNT)
        count = self._dice.randrange(1, documents.COMMON_TOKENS + 4)
        number = self._take_number()
        added = self.client.add(number, documents.tokens(document)[:count])
        self.client.wait(added.ready_ticket)
        slots = [block.slot_index for block in handles(added.tables[0].blocks)]
        sequence = Running(number, document, slots, count, added.matched_tokens)
        self._running.append(sequence)
        self.matched += added.matched_tokens
        if not documents.is_written(self.kv, slots, sequence.known, 0, added.matched_tokens):
            self.wrong.append(f"the first {added.matched_tokens} tokens of document {document}")
        self._compute(sequence)
        self._commit(sequence)

    def _grow(self):
        """Appends tokens and writes them. It declares them with the next tokens or, sometimes, at
        once."""
        sequence = self._sequence()
        if sequence is None or sequence.token_count == documents.TOKENS:
            return
        count = min(self._dice.randrange(1, 9), documents.TOKENS - sequence.token_count)
        written = sequence.computed_tokens = sequence.token_count  # The tokens count as declared from now on, even if no answer comes.
        done = self.client.append(sequence.number, sequence.tokens[written:written + count], written)
        sequence.token_count = done.token_count
        self._take(sequence, done.added, done.ready_ticket)
        self._compute(sequence)
        if self._dice.random() < 0.3:
            self._commit(sequence)

    def _fork(self):
        """A relative goes on where the common tokens end; the document itself goes on at the
        sequence's end."""
        sequence = self._sequence()
        if sequence is None or len(self._running) == MOST_SEQUENCES or sequence.computed_tokens < sequence.token_count:
            return
        document = sequence.document
        if sequence.token_count <= documents.COMMON_TOKENS:
            document = documents.relative(document, self._dice)
        number = self._take_number()
        forked = self.client.fork(sequence.number, number)
        slots = [block.slot_index for block in handles(forked.tables[0].blocks)]
        self._running.append(Running(number, document, slots, forked.token_count, forked.computed_tokens))

    def _cut(self):
        sequence = self._sequence()
        if sequence is None:
            return
        done = self.client.truncate(sequence.number, self._dice.randrange(1, sequence.token_count + 1))
        sequence.token_count, sequence.computed_tokens = done.token_count, done.computed_tokens
        self._take(sequence, done.tables, done.ready_ticket)
        self._compute(sequence)

    def _free(self):
        sequence = self._sequence()
        if sequence is not None:
            self._running.remove(sequence)
            self.client.free_sequence(sequence.number)
            self._freed += 1

    def _commit(self, sequence):
        sequence.computed_tokens = sequence.token_count
        self.client.commit(sequence.number, sequence.token_count)

    def _take_number(self):
        self._next += 1
        return self._next

    def _take(self, sequence, tables, ready_ticket):
        for table in tables:
            sequence.slots[table.first_block:] = [block.slot_index for block in handles(table.blocks)]
        self.client.wait(ready_ticket)

    def _compute(self, sequence):
        documents.write(self.kv, sequence.slots, sequence.known, sequence.computed_tokens, sequence.token_count)


if __name__ == "__main__":
    run_clients(Writer)
