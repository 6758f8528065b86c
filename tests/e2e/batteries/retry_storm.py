"""A client that works through a bad connection and knows what the daemon must hold at the end: the
sessions of test_battery_retries.py."""

import dataclasses
import random
import threading

import pagoda
import pagoda.client
from pagoda._contract import v1
from pagoda._rows import rows

BATCH = 10
MOST_SEQUENCES = 12
MOST_RAW_BLOCKS = 64
# By default the package sends a batch at most four times. About two of 20,000 batches would lose
# all four answers, and then the client cannot know whether the batch ran.
# python/test_python_loss.py tests that case. Nine losses in a row do not happen.
TRIES = 9
# Operations that hand out blocks. Their answers name all of these blocks.
GIVING = ("allocate_blocks", "add_sequence", "reserve_tokens", "append_tokens", "fork_sequence", "truncate_sequence")
KINDS = ("open", "append", "reserve", "commit", "fork", "truncate", "free", "allocate", "give_back")


class Wire:
    """Stands between a client and its batches, and counts: batches, how often they were sent, and
    each pair of a block id and a generation in the answers. If `named` is false, it removes the
    retry_id from the batches, so a batch that is sent again runs again."""

    def __init__(self, client, named):
        self._execute = client._calls.execute
        self._named = named
        self.sent = 0
        self.uses = set()  # Pairs of a block id and a generation.
        client._calls.execute = self

    def __call__(self, request, **options):
        self.sent += 1
        message = v1.ExecuteRequest.FromString(request.SerializeToString())
        if not self._named:
            message.batch.retry_id = 0
        response = self._execute(message, **options)
        for outcome in response.result.results:
            if (kind := outcome.WhichOneof("result")) in GIVING:
                self._count(getattr(outcome, kind))
        return response

    def _count(self, result):
        tables = [table for name in ("tables", "added") for table in getattr(result, name, ())]
        for handles in [getattr(result, "blocks", b""), *(table.blocks for table in tables)]:
            self.uses.update((block_id, generation) for block_id, generation, _ in rows(handles).tolist())


@dataclasses.dataclass
class Expected:
    """A sequence as it must be."""

    token_count: int
    computed_tokens: int


class Worker(threading.Thread):
    """One session that runs `operations` operations in batches, of the `kinds` named, and records
    every deviation in `differences`. Its session stays open until close()."""

    def __init__(self, endpoint, seed, operations, *, kinds=KINDS, named=True):
        super().__init__(name=f"storm-{seed}", daemon=True)
        self.client = pagoda.connect(endpoint, name=self.name, timeout=60, transport="grpc")
        self.wire = Wire(self.client, named)
        self.differences = []
        self.ran = 0  # Operations.
        self.batches = self.sent_again = 0
        self.allocated = self.given_back = 0  # Raw blocks.
        self.expected = {}  # By sequence, an Expected.
        self.raw = []
        self._operations = operations
        self._kinds = kinds
        self._rng = random.Random(seed)

    def run(self):
        try:
            while self.ran < self._operations and not self.differences:
                self._run_a_batch()
        except* Exception as failed:  # The daemon must not refuse any operation of a storm.
            self.differences += [f"{self.name}: {error!r}" for error in failed.exceptions]
        finally:
            self.sent_again = self.wire.sent - self.batches

    def _run_a_batch(self):
        touched = set()
        allocations = []
        batch = self.client.batch()
        with batch:
            while len(batch) < BATCH:
                kind = self._rng.choice(self._kinds)
                getattr(self, f"_{kind}")(batch, touched, allocations)
        self.ran += len(batch)
        self.batches += 1
        for allocation in allocations:
            self.raw += allocation.result()
            self.allocated += len(allocation.result())
        for sequence in touched & self.expected.keys():
            self._compare(sequence, sequence.token_count, sequence.computed_tokens)

    def _fresh_token(self):
        return self._rng.randrange(1 << 20, 1 << 32)

    def _pick(self, touched):
        """One of the sequences, opened by now, or None."""
        if not self.expected:
            return None
        sequence = self._rng.choice(list(self.expected))
        touched.add(sequence)
        return sequence

    def _open(self, batch, touched, allocations):
        if len(self.expected) < MOST_SEQUENCES:
            # Prompts often share prefixes, also with other sessions. No two prompts are equal.
            # Otherwise the session would hold the block that was cached first, and no table would
            # name it.
            prompt = [self._rng.randrange(3) for _ in range(self._rng.randrange(4, 24))] + [self._fresh_token()]
            sequence = batch.sequence(prompt)
            batch.commit(sequence, computed=len(prompt))
            self.expected[sequence] = Expected(len(prompt), len(prompt))
            touched.add(sequence)

    def _append(self, batch, touched, allocations):
        if sequence := self._pick(touched) if self.expected else None:
            expected = self.expected[sequence]
            tokens = [self._fresh_token() for _ in range(self._rng.randrange(1, 6))]
            expected.computed_tokens = expected.token_count
            expected.token_count += len(tokens)
            batch.append(sequence, tokens, computed=expected.computed_tokens)
        else:
            self._open(batch, touched, allocations)

    def _reserve(self, batch, touched, allocations):
        if sequence := self._pick(touched):
            batch.reserve(sequence, 2)

    def _commit(self, batch, touched, allocations):
        if sequence := self._pick(touched):
            expected = self.expected[sequence]
            expected.computed_tokens = expected.token_count
            batch.commit(sequence, computed=expected.token_count)

    def _fork(self, batch, touched, allocations):
        if len(self.expected) < MOST_SEQUENCES and (sequence := self._pick(touched)):
            expected = self.expected[sequence]
            expected.computed_tokens = expected.token_count  # A fork has capacity for computed tokens only.
            batch.commit(sequence, computed=expected.token_count)
            child = batch.fork(sequence)
            self.expected[child] = dataclasses.replace(expected)
            touched.add(child)

    def _truncate(self, batch, touched, allocations):
        if sequence := self._pick(touched):
            expected = self.expected[sequence]
            expected.token_count = self._rng.randrange(1, expected.token_count + 1)
            expected.computed_tokens = min(expected.computed_tokens, expected.token_count)
            batch.truncate(sequence, expected.token_count)

    def _free(self, batch, touched, allocations):
        if len(self.expected) > 2:
            sequence = self._pick(touched)
            batch.free(sequence)
            del self.expected[sequence]

    def _allocate(self, batch, touched, allocations):
        if len(self.raw) < MOST_RAW_BLOCKS:
            allocations.append(batch.allocate_blocks(self._rng.randrange(1, 4)))

    def _give_back(self, batch, touched, allocations):
        if self.raw:
            count = self._rng.randrange(1, len(self.raw) + 1)
            self._rng.shuffle(self.raw)
            batch.free_blocks(self.raw[:count])
            del self.raw[:count]
            self.given_back += count

    def _compare(self, sequence, token_count, computed_tokens):
        expected = self.expected[sequence]
        if (token_count, computed_tokens) != (expected.token_count, expected.computed_tokens):
            self.differences.append(f"{self.name}, sequence {sequence.id}: {token_count} tokens, {computed_tokens} of them computed, "
                                    f"instead of {expected}")

    def compare_with_the_daemon(self):
        """Every sequence as the daemon describes it: its counts, and each entry of its table."""
        for sequence in self.expected:
            table = list(sequence.table.blocks)
            described = sequence.describe()
            self._compare(sequence, described.token_count, described.computed_tokens)
            if list(sequence.table.blocks) != table:
                self.differences.append(f"{self.name}, sequence {sequence.id}: the daemon has another table")

    def blocks(self):
        """The ids of the blocks that this session has."""
        held = {block.block_id for block in self.raw}
        for sequence in self.expected:
            held.update(block.block_id for block in sequence.table.blocks)
        return held

    def close(self):
        self.client.close()
