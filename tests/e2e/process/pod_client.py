"""An engine in its own pod, from the daemon's point of view: it opens the cache, maps it, keeps and
finds KV.

    pod_client.py ENDPOINT LEASE_SECONDS

Each line of standard input is ["function", arguments...]. The result goes to standard output, as
JSON.
"""

import contextlib
import json
import os
import sys

import pagoda

IDENTITY = pagoda.CacheIdentity("org/llama", "r1", "float32", "NHD", "plain")
TOKENS_PER_BLOCK = 4


class Engine:
    def __init__(self, endpoint, lease):
        self._endpoint = endpoint
        self._lease = float(lease)
        self._client = None
        self._pool = None
        self._held = []

    def pid(self):
        """The process id that this process sees."""
        return os.getpid()

    def open(self):
        """Opens the cache and a session."""
        layers = [pagoda.Layers(2, num_kv_heads=2, head_dim=8, dtype="float32")]
        pagoda.open_cache(self._endpoint, "shared", identity=IDENTITY, layers=layers, tokens_per_block=TOKENS_PER_BLOCK, host="32MiB")
        self._client = pagoda.connect(self._endpoint, cache="shared", lease=self._lease)
        (self._pool,) = self._client.pools()

    def keep(self, prompt, value):
        """Caches a prompt's KV, which is `value` everywhere."""
        with self._client.sequence(prompt) as sequence:
            sequence.wait_ready()
            for slot in sequence.table.slots:
                self._pool.writable_array[slot] = value
            sequence.commit(computed=len(prompt))

    def find(self, prompt):
        """The first value of each cached whole block of a prompt. It asks for one more token,
        because a match never includes the last token."""
        with self._client.sequence([*prompt, 0]) as sequence:
            sequence.wait_ready()
            return [float(self._pool.array[slot].flat[0]) for slot in sequence.table.slots[:sequence.matched_tokens // TOKENS_PER_BLOCK]]

    def hold(self, tokens):
        """Takes blocks for a prompt, writes to them, and holds them."""
        self._held.append(self._client.sequence(range(tokens)))
        for slot in self._held[-1].table.slots:
            self._pool.writable_array[slot] = -1
        return len(self._held[-1].table.slots)

    def fill(self):
        """Writes to every slot of the pool. Returns how many bytes it wrote."""
        self._pool.writable_array[:] = 1
        return self._pool.writable_array.nbytes

    def close(self):
        """Ends the session, by which its blocks are free at once."""
        if self._client is not None:
            self._client.close()

    def map_again(self, times):
        """Maps the pool again and again, like an engine that maps many pools one after another."""
        for _ in range(times):
            (pool,) = pagoda.map_pools(self._client.session_ref)
            pool.writable_array[0, 0, 0, 0, 0, 0]


def main():
    engine = Engine(*sys.argv[1:])
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        try:
            answer = getattr(engine, what)(*arguments)
        except Exception as error:  # The test decides what an error means.
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)
    with contextlib.suppress(pagoda.PagodaError):  # Its daemon may be gone.
        engine.close()


if __name__ == "__main__":
    main()
