"""One more reader of test_battery_watch.py's events: a router that knows vLLM's ZMQ wire, and
nothing else of the daemon."""

import re
import threading

from pagoda.v1 import types_pb2
from vllm_events import CPU, GPU, Index, MapDecoder, Subscriber

MEDIA = {types_pb2.TIER_PRIMARY: GPU, types_pb2.TIER_SECOND: CPU}


class ZmqWatch(threading.Thread):
    """Reads the daemon's batches from the first one on, and requests a replay of missed batches."""

    def __init__(self, daemon):
        super().__init__(name="vLLM's wire", daemon=True)
        self._daemon = daemon
        zmq = daemon.config["events"]["zmq"]
        self._subscriber = Subscriber(zmq["endpoint"], zmq["replay_endpoint"])
        self._index = Index(MapDecoder())
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._published = 0  # The number of batches when `blocks` was last called.
        self._applied = 0
        self._error = None

    def run(self):
        try:
            while not self._over.is_set():
                for payload in self._subscriber.new_batches(self._published):
                    with self._lock:
                        self._index.apply(payload)
                        self._applied += 1
        except BaseException as error:
            self._error = error

    def blocks(self):
        """{(group, medium): {hash: (parent's hash, tokens)}} of all events. REQUIRES: no
        traffic."""
        self._daemon.wait_until(lambda daemon: self._metric("pagoda_bridge_revision") >= daemon.status().revision)
        self._published = self._metric("pagoda_zmq_batches_total")
        self._daemon.wait_until(lambda _: self._error or self._applied >= self._published)
        if self._error:
            raise self._error
        with self._lock:
            return {place: dict(blocks) for place, blocks in self._index.places.items() if blocks}

    def _metric(self, name):
        (value,) = re.findall(rf"^{name} (\S+)$", self._daemon.http("/metrics")[1], re.MULTILINE)
        return int(float(value))

    def close(self):
        self._over.set()
        self.join(20)
        self._subscriber.close()


def blocks_of_routers(package, cache):
    """The same from PackageWatch's blocks. Only whole blocks count."""
    windows = cache["layers"] if isinstance(cache["layers"], list) else [cache["layers"]]
    sizes = sorted({layer.get("window", 0) for layer in windows}, key=lambda size: size or 1 << 32)
    groups = {size: number if sizes != [0] else None for number, size in enumerate(sizes)}
    found = {}
    for (size, _), (block_hash, parent, tokens, tier, _, lower) in package.items():
        if len(tokens) == cache["tokens_per_block"]:
            for place in (tier, *lower):
                found.setdefault((groups[size], MEDIA[place]), {})[block_hash] = parent, tuple(tokens)
    return found
