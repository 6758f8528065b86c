"""Dynamo's own index, fed by Pagoda's ZMQ events, finds of each prompt what the manager finds."""

import json
import random
import time

import pytest

dynamo = pytest.importorskip("dynamo._core", reason="Dynamo's runtime is not installed")
msgspec = pytest.importorskip("msgspec")
zmq = pytest.importorskip("zmq")

import pagoda
from engine_processes import Daemon

BLOCK, WORKER = 16, 7


class Router:
    """What Dynamo's router does with the events of one worker."""

    def __init__(self, endpoint):
        self.tree = dynamo.RadixTree()
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.subscribe(b"")
        self._socket.connect(endpoint)
        self._events = 0
        self.removed = 0

    def _apply(self, data):
        self._events += 1
        self.tree.apply_event(WORKER, json.dumps({"event_id": self._events, "data": data}).encode())

    def follow(self, quiet_seconds):
        """Applies what comes, until nothing does."""
        while self._socket.poll(quiet_seconds * 1000):
            _, events, _ = msgspec.msgpack.decode(self._socket.recv_multipart()[-1])
            for event in events:
                if event["type"] == "BlockStored":
                    assert event["block_size"] == BLOCK
                    tokens, hashes = event["token_ids"], event["block_hashes"]
                    whole = len(tokens) // BLOCK
                    blocks = [{"block_hash": name, "tokens_hash": dynamo.compute_block_hash_for_seq(tokens[i * BLOCK:(i + 1) * BLOCK], BLOCK)[0]}
                              for i, name in enumerate(hashes[:whole])]
                    if blocks:
                        self._apply({"stored": {"parent_hash": event["parent_block_hash"], "blocks": blocks}})
                elif event["type"] == "BlockRemoved":
                    self.removed += len(event["block_hashes"])
                    self._apply({"removed": {"block_hashes": event["block_hashes"]}})
                else:
                    self._apply("cleared")

    def matched_blocks(self, tokens):
        scores = self.tree.find_matches(dynamo.compute_block_hash_for_seq(tokens, BLOCK)).scores
        return max(scores.values(), default=0)

    def close(self):
        self._socket.close(0)


def test_the_routers_tree_agrees_with_the_manager(tmp_path):
    rng = random.Random(4)
    endpoint = f"ipc://{tmp_path}/events"
    extra = {"cache": {"name": "routed", "tokens_per_block": BLOCK, "kv_dtype": "float32", "primary": 48, "primary_memory": "host",
                       "layers": {"count": 1, "num_kv_heads": 1, "head_dim": 8}},
             "events": {"zmq": {"endpoint": endpoint, "replay_endpoint": f"ipc://{tmp_path}/replay", "pod": "pod", "model": "tiny"}}}
    with Daemon(tmp_path / "daemon", extra=extra) as daemon:
        router = Router(endpoint)
        time.sleep(0.5)  # A subscription takes a moment, and nothing reports that it exists.
        roots = [[rng.randrange(1000) for _ in range(BLOCK * 4)] for _ in range(5)]
        asked = [rng.choice(roots)[:rng.randrange(BLOCK * 4)] + [rng.randrange(1000) for _ in range(rng.randrange(1, 80))] for _ in range(60)]
        with pagoda.connect(daemon.endpoint, cache="routed") as client:
            for prompt in asked:
                with client.sequence(prompt) as sequence:
                    sequence.commit(computed=len(prompt))
            router.follow(1)
            # `match` leaves out the last token, and counts parts of blocks. So this asks for one
            # token more, and counts only whole blocks.
            there = [client.match(prompt + [0]).matched_tokens // BLOCK for prompt in asked]
            assert [router.matched_blocks(prompt) for prompt in asked] == there
            assert router.removed > 20 and 0 < sum(there) < sum(len(prompt) // BLOCK for prompt in asked)
            client.reset_prefix_cache()
            router.follow(1)
            assert [router.matched_blocks(prompt) for prompt in asked] == [0] * len(asked)
        router.close()
