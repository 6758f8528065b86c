"""vLLM's KV events over ZMQ, as a router reads them. It is written only from the documented wire,
with pyzmq and two decoders that share nothing: typed structs of msgspec if PyPI has it, and
msgpack's plain maps."""

import importlib.util
import math
import os
import pathlib
import struct
import subprocess
import sys
import time

import msgpack
import zmq
from shadow_tree import xxh3_64

END = b"\xff" * 8
PATIENCE_MS = 20_000
GPU, CPU = "GPU", "CPU"


class MapDecoder:
    """Batches as (ts, [(type, keys of the event's map)], rank), by msgpack."""

    def decode(self, payload):
        ts, events, rank = msgpack.unpackb(payload, strict_map_key=True)
        return ts, [(event["type"], {key: value for key, value in event.items() if key != "type"}) for event in events], rank


def install_msgspec():
    """msgspec from PyPI, in its own folder beside the programs. None if it cannot be installed."""
    if importlib.util.find_spec("msgspec") is None:
        home = pathlib.Path(os.environ["PAGODA_BIN"]).absolute().parent / "msgspec"
        if not any(home.glob("msgspec/__init__.py")):
            try:
                subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", home, "msgspec"],
                               check=True, capture_output=True, timeout=60)
            except (subprocess.SubprocessError, OSError):
                return None
        sys.path.append(str(home))
    return importlib.import_module("msgspec")


class StructDecoder:
    """The same by msgspec's typed structs. A value of another type is an error; a key that is not
    named here is ignored."""

    def __init__(self, msgspec):
        self.msgspec = msgspec
        integers, text = list[int], str | None
        define = lambda name, fields: msgspec.defstruct(name, fields, tag=True, forbid_unknown_fields=False)
        stored = define("BlockStored", [
            ("block_hashes", integers), ("parent_block_hash", int | None), ("token_ids", integers), ("block_size", int),
            ("lora_id", int | None), ("medium", text), ("lora_name", text),
            ("extra_keys", list[list[str | tuple[str, int]] | None] | None, None), ("group_idx", int | None, None),
            ("kv_cache_spec_kind", text, None), ("kv_cache_spec_sliding_window", int | None, None)])
        removed = define("BlockRemoved", [("block_hashes", integers), ("medium", text), ("group_idx", int | None, None)])
        cleared = define("AllBlocksCleared", [])
        batch = msgspec.defstruct("KVEventBatch", [("ts", float), ("events", list[stored | removed | cleared]),
                                                   ("data_parallel_rank", int | None)], array_like=True)
        self.decoder = msgspec.msgpack.Decoder(batch)

    def decode(self, payload):
        batch = self.decoder.decode(payload)
        return batch.ts, [(type(event).__name__, self.msgspec.structs.asdict(event)) for event in batch.events], batch.data_parallel_rank


class Index:
    """The cached blocks by place, as a router keeps them. Checks that each event fits: nothing
    comes twice or leaves twice, and a block's hash is that of its tokens below its parent."""

    def __init__(self, decoder):
        self.decoder = decoder
        self.places = {}  # (group_idx, medium): {hash: (parent's hash, tokens)}
        self.counts = {}  # Events, by type.
        self.groups = {}  # group_idx: (kind, sliding window)

    def apply(self, payload):
        ts, events, rank = self.decoder.decode(payload)
        assert abs(ts - time.time()) < 3600 and rank == 0 and events
        for name, event in events:
            self.counts[name] = self.counts.get(name, 0) + 1
            getattr(self, "_apply_" + name)(**event)

    def _apply_BlockStored(self, block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, lora_name, extra_keys=None,
                           group_idx=None, kv_cache_spec_kind=None, kv_cache_spec_sliding_window=None, cache_salt=None):
        assert len(token_ids) == block_size * len(block_hashes) and block_hashes and (lora_id is None) == (lora_name is None)
        assert extra_keys is None or len(extra_keys) == len(block_hashes)
        assert self.groups.setdefault(group_idx, (kv_cache_spec_kind, kv_cache_spec_sliding_window)) == (
            kv_cache_spec_kind, kv_cache_spec_sliding_window)
        place = self.places.setdefault((group_idx, medium), {})
        parent = parent_block_hash
        for i, block_hash in enumerate(block_hashes):
            assert block_hash not in place
            tokens = token_ids[i * block_size:(i + 1) * block_size]
            if extra_keys is None and (parent is not None or cache_salt is None):
                assert block_hash == xxh3_64(struct.pack(f"<{block_size}I", *tokens), parent or 0)
            place[block_hash] = parent, tuple(tokens)
            parent = block_hash

    def _apply_BlockRemoved(self, block_hashes, medium, group_idx=None):
        for block_hash in block_hashes:
            del self.places[group_idx, medium][block_hash]

    def _apply_AllBlocksCleared(self):
        self.places.clear()

    def hashes(self):
        """{(group_idx, medium): set of hashes}, where there are any."""
        return {place: set(blocks) for place, blocks in self.places.items() if blocks}


def parse_replay(frames):
    """(seq, payload) of an answer in either form, with a topic or without. (None, b"") for the last
    answer."""
    assert len(frames) in (3, 4) and frames[0] == b""
    seq, payload = frames[-2:]
    assert len(seq) == 8 and (payload == b"") == (seq == END)
    return (None if seq == END else int.from_bytes(seq, "big")), payload


class Subscriber:
    """A SUB socket and a DEALER for replays. Numbers are counted from the daemon's first batch,
    which must still be kept. `next` is the number of the batch that comes next."""

    def __init__(self, endpoint, replay_endpoint, topic="kv@", next=0, hwm=1000):
        self.first = 0  # The first batch's number on the wire.
        self.context = zmq.Context()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.set_hwm(hwm)
        self.sub.subscribe(topic)
        self.sub.connect(endpoint)
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.set_hwm(0)
        self.dealer.connect(replay_endpoint)
        self.next = next
        self.replays = 0  # Replays requested because batches were missing.
        self.topics = set()
        while not (answers := self.replay(0)):
            pass  # The daemon is about to publish its first batch.
        self.first = answers[0][0]

    def replay(self, first):
        """[(seq, payload)] from `first` on that are still kept."""
        self.dealer.send_multipart([b"", (self.first + first).to_bytes(8, "big")])
        answers = []
        while True:
            assert self.dealer.poll(PATIENCE_MS), "no answer to a request for a replay"
            seq, payload = parse_replay(self.dealer.recv_multipart())
            if seq is None:
                return answers
            answers.append((seq - self.first, payload))

    def receive(self):
        """(seq, payload) of the next batch published; None where there is none at the moment."""
        if not self.sub.poll(50):
            return None
        topic, seq, payload = self.sub.recv_multipart()
        self.topics.add(topic.decode())
        assert len(seq) == 8
        return int.from_bytes(seq, "big") - self.first, payload

    def batches_to(self, end):
        """The payloads up to the one before number `end`, published to this socket or missed and
        replayed."""
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while self.next < end:
            # The missing batches were published before the subscription existed, or were dropped.
            yield from self._through(self.receive(), end)
            assert time.monotonic() < deadline, f"batch {self.next} of {end} has not arrived"

    def new_batches(self, known):
        """The payloads that have come meanwhile, and the missed ones before them. `known` payloads
        have been published."""
        received = self.receive()
        if received is not None:
            yield from self._through(received, math.inf)
        elif self.next < known:
            yield from self._through(None, known)

    def _through(self, received, end):
        """The payloads from the next one to the one received, or, without one, to the one before
        number `end`. A replay brings the missing ones, and can go on up to `end`."""
        until = end if received is None else received[0]
        if until > self.next:
            self.replays += 1
            for seq, payload in self.replay(self.next):
                if self.next == seq < end:
                    self.next += 1
                    yield payload
            assert received is None or self.next >= until, "the replay has a hole"
        if received is not None and received[0] == self.next:
            self.next += 1
            yield received[1]

    def close(self):
        self.context.destroy(linger=0)
