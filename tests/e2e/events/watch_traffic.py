"""A client that changes the cache in every way it can, for watch_round.py, as a process of its own.

    watch_traffic.py ADDRESS TOKEN CONTROL

TOKEN is "-" if the daemon asks for none. A line of JSON on standard input, {"seed": N, "rate":
operations a second}, begins a round, which goes on while the file CONTROL says so. Then the client
gives everything back, and prints a line that says what it did.
"""

import collections
import json
import mmap
import pathlib
import random
import struct
import sys
import time

from pagoda_client import Client, authorized, connect, handles, references
from pagoda.v1 import cache_pb2

SMALLEST_BATCH, LARGEST_BATCH = 8, 64
MOST_SEQUENCES = 8
MOST_RAW_BLOCKS = 24
MOST_TOKENS = 160
FAMILIES = 6
# The tokens of these families have extra ids.
FAMILIES_WITH_EXTRAS = (4, 5)
# A token has five bytes on the wire. So the events of a subscriber that does not read soon exceed
# gRPC's buffers.
FIRST_TOKEN = 1 << 30
LONGEST_DURATION_MS = 60
# A subscriber that must see every event is at most so many events, and a batch of each client,
# behind.
MOST_UNSEEN = 250
KINDS = {"open": 5, "append": 5, "fork": 1, "truncate": 2, "free": 4, "allocate": 3, "give_back": 3, "offload": 2, "prefetch": 2,
         "invalidate": 0.3, "retain": 2, "pin": 0.5, "unpin": 0.5, "match": 1}


class Control:
    """The round's orders to the clients, in a file that they map: whether to go on, and the last
    revision that all subscribers that must see everything have seen."""

    _FORMAT = struct.Struct("<QQ")

    def __init__(self, path):
        if not path.exists():
            path.write_bytes(bytes(self._FORMAT.size))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self._FORMAT.size)

    def write(self, goes_on, seen):
        self._FORMAT.pack_into(self._memory, 0, goes_on, seen)

    def read(self):
        """(whether to go on, the last revision seen)."""
        return self._FORMAT.unpack_from(self._memory)


class Traffic:
    """One session, and what it believes to hold."""

    def __init__(self, address, token):
        channel = connect(address)
        self._client = Client(channel if token == "-" else authorized(channel, token), "traffic")
        self._windows = [window.window_size for window in self._client.opened.cache.windows]
        self._sequences = {}  # By id: the token count.
        self._raw = []  # (window, reference).
        self._pins = []
        self._last_id = 0
        self._begin()

    def _begin(self):
        self.ran = self.refused = 0
        self.by_kind = collections.Counter()
        self.answers = []  # (time, revision).
        self.taken = []  # (window, block id, revision of the answer).
        self.pinned = []  # Ids of pins.

    def round(self, seed, rate, control):
        """Runs batches until the control file ends the round."""
        self._begin()
        self._rng = random.Random(seed)
        began, offered = time.monotonic(), 0
        while True:
            goes_on, seen = control.read()
            if not goes_on:
                break
            due = min((time.monotonic() - began) * rate - offered, LARGEST_BATCH)
            if due < SMALLEST_BATCH or self.answers and self.answers[-1][1] > seen + MOST_UNSEEN:
                time.sleep(0.001)
                continue
            operations = self._make_batch(due)
            offered += len(operations)
            self._run(operations)
        seconds = time.monotonic() - began
        told = {"ran": self.ran, "refused": self.refused, "seconds": seconds, "kinds": dict(self.by_kind)}
        self._give_all_back()
        return told | {"answers": self.answers, "taken": self.taken, "pinned": self.pinned,
                       "tenant": self._client.opened.tenant}

    def _prompt(self):
        """Prompts of a family share their first tokens. If a prompt has extra ids, only an opened
        sequence states them."""
        self._family = self._rng.randrange(FAMILIES)
        tokens = [FIRST_TOKEN + 1000 * self._family + place for place in range(self._rng.randrange(16, MOST_TOKENS))]
        return tokens + [self._rng.randrange(FIRST_TOKEN, 2 * FIRST_TOKEN) for _ in range(self._rng.randrange(64))]

    def _make_batch(self, count):
        operations = []
        self._in_batch = set()  # Sequences that an earlier operation of the batch ended.
        while len(operations) < count:
            (kind,) = self._rng.choices(list(KINDS), KINDS.values())
            made = getattr(self, "_" + kind)()
            self.by_kind[kind] += bool(made)
            operations += made
        return operations

    def _pick(self):
        running = [sequence for sequence in self._sequences if sequence not in self._in_batch]
        return self._rng.choice(running) if running else None

    def _new_id(self):
        self._last_id += 1
        return self._last_id

    def _retention(self):
        return dict(token_start=0, priority=self._rng.randrange(0, 101),
                    **({"duration_ms": self._rng.randrange(1, LONGEST_DURATION_MS)} if self._rng.random() < 0.3 else {}))

    def _open(self):
        if len(self._sequences) >= MOST_SEQUENCES:
            return []
        sequence, tokens = self._new_id(), self._prompt()
        self._sequences[sequence] = len(tokens)
        fields = {"retention": [self._retention()]} if self._rng.random() < 0.3 else {}
        if self._family in FAMILIES_WITH_EXTRAS:
            fields["extra_token_ids"] = [(1 << 60) + token for token in tokens]
        return [cache_pb2.Operation(add_sequence=cache_pb2.AddSequenceRequest(sequence_id=sequence, tokens=tokens, **fields)),
                cache_pb2.Operation(commit_tokens=cache_pb2.CommitTokensRequest(sequence_id=sequence, computed_tokens=len(tokens)))]

    def _append(self):
        if (sequence := self._pick()) is None:
            return []
        tokens = [self._rng.randrange(4) for _ in range(self._rng.randrange(1, 24))]
        self._sequences[sequence] += len(tokens)
        return [cache_pb2.Operation(append_tokens=cache_pb2.AppendTokensRequest(
            sequence_id=sequence, tokens=tokens, computed_tokens=self._sequences[sequence]))]

    def _fork(self):
        if len(self._sequences) >= MOST_SEQUENCES or (sequence := self._pick()) is None:
            return []
        child = self._new_id()
        self._sequences[child] = self._sequences[sequence]
        return [cache_pb2.Operation(fork_sequence=cache_pb2.ForkSequenceRequest(sequence_id=sequence, new_sequence_id=child))]

    def _truncate(self):
        if (sequence := self._pick()) is None:
            return []
        self._sequences[sequence] = max(1, self._sequences[sequence] - self._rng.randrange(0, 40))
        return [cache_pb2.Operation(truncate_sequence=cache_pb2.TruncateSequenceRequest(
            sequence_id=sequence, token_count=self._sequences[sequence]))]

    def _free(self):
        if (sequence := self._pick()) is None:
            return []
        self._in_batch.add(sequence)
        return [cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence))]

    def _allocate(self):
        if len(self._raw) >= MOST_RAW_BLOCKS:
            return []
        return [cache_pb2.Operation(allocate_blocks=cache_pb2.AllocateBlocksRequest(
            window_size=self._rng.choice(self._windows), count=self._rng.randrange(1, 4)))]

    def _give_back(self):
        window = self._rng.choice(self._windows)
        given = [entry for entry in self._raw if entry[0] == window][:self._rng.randrange(1, 5)]
        if not given:
            return []
        self._raw = [entry for entry in self._raw if entry not in given]
        return [cache_pb2.Operation(free_blocks=cache_pb2.FreeBlocksRequest(window_size=window, blocks=b"".join(block for _, block in given)))]

    def _offload(self):
        return [cache_pb2.Operation(offload_prefix=cache_pb2.OffloadPrefixRequest(tokens=self._prompt()))]

    def _prefetch(self):
        return [cache_pb2.Operation(prefetch_prefix=cache_pb2.PrefetchPrefixRequest(tokens=self._prompt()))]

    def _invalidate(self):
        return [cache_pb2.Operation(invalidate_prefix=cache_pb2.InvalidatePrefixRequest(tokens=self._prompt()[:16]))]

    def _retain(self):
        return [cache_pb2.Operation(set_retention=cache_pb2.SetRetentionRequest(tokens=self._prompt(), retention=[self._retention()]))]

    def _pin(self):
        if len(self._pins) >= 3:
            return []
        return [cache_pb2.Operation(pin_prefix=cache_pb2.PinPrefixRequest(tokens=self._prompt()))]

    def _unpin(self):
        return [cache_pb2.Operation(unpin_prefix=cache_pb2.UnpinPrefixRequest(pin_id=self._pins.pop()))] if self._pins else []

    def _match(self):
        return [cache_pb2.Operation(match_prefix=cache_pb2.MatchPrefixRequest(tokens=self._prompt()))]

    def _run(self, operations):
        result = self._client.batch(*operations)
        self.answers.append((time.monotonic(), result.revision))
        broken = set()
        for operation, outcome in zip(operations, result.results):
            kind = operation.WhichOneof("operation")
            asked = getattr(operation, kind)
            if outcome.HasField("error"):
                self.refused += 1
                if hasattr(asked, "sequence_id"):  # The sequence is not as expected here: it is freed.
                    broken.add(getattr(asked, "new_sequence_id", 0) or asked.sequence_id)
                continue
            self.ran += 1
            if kind == "allocate_blocks":
                for block in handles(outcome.allocate_blocks.blocks):
                    self._raw.append((asked.window_size, references([block])))
                    self.taken.append((asked.window_size, block.block_id, result.revision))
            elif kind == "pin_prefix" and outcome.pin_prefix.pin_id:
                self._pins.append(outcome.pin_prefix.pin_id)
                self.pinned.append(outcome.pin_prefix.pin_id)
        for sequence in self._in_batch:
            del self._sequences[sequence]
        for sequence in broken & self._sequences.keys():
            del self._sequences[sequence]
            self._client.execute(cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence)))

    def _give_all_back(self):
        self._in_batch = set()
        operations = [cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=sequence)) for sequence in self._sequences]
        operations += [cache_pb2.Operation(free_blocks=cache_pb2.FreeBlocksRequest(window_size=window, blocks=block))
                       for window, block in self._raw]
        operations += [cache_pb2.Operation(unpin_prefix=cache_pb2.UnpinPrefixRequest(pin_id=pin)) for pin in self._pins]
        if operations:
            self._run(operations)
        self._sequences, self._raw, self._pins = {}, [], []

    def close(self):
        self._client.close()


def main():
    address, token, control = sys.argv[1:]
    traffic, control = Traffic(address, token), Control(pathlib.Path(control))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        print(json.dumps(traffic.round(control=control, **json.loads(line))), flush=True)
    traffic.close()


if __name__ == "__main__":
    main()
