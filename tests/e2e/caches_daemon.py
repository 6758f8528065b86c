"""A pagodad that waits for clients to open caches."""

import dataclasses

import pagoda
from pagoda_client import Client
from pagoda_daemon import Daemon

MEMORY = 64 << 20
IDENTITY = pagoda.CacheIdentity("org/llama", "r1", "float32", "NHD", "plain")
LAYERS = [pagoda.Layers(2, num_kv_heads=2, head_dim=8, dtype="float32")]
TOKENS_PER_BLOCK = 4
# [layer][K, V][head][token][dimension] of float32.
BLOCK_BYTES = 2 * 2 * 2 * TOKENS_PER_BLOCK * 8 * 4


class CachesDaemon(Daemon):
    """Without a cache in the configuration. `--memory` gives clients' caches 64 MiB; the
    configuration's `memory` is less."""

    def __init__(self, folder, memory=None, **sections):
        super().__init__(folder, memory={"host": "1MiB"} | (memory or {}), **sections)
        del self.config["cache"]

    def command(self):
        return [*super().command(), "--memory", f"{MEMORY >> 20}MiB"]

    @property
    def endpoint(self):
        return f"unix:{self.unix_socket}"

    def open(self, name, **changes):
        """A cache of 1 MiB; `changes` of open_cache's arguments, and of the identity's fields."""
        fields = {field.name for field in dataclasses.fields(pagoda.CacheIdentity)}
        identity = dataclasses.replace(IDENTITY, **{key: value for key, value in changes.items() if key in fields})
        asked = {"layers": LAYERS, "tokens_per_block": TOKENS_PER_BLOCK, "host": "1MiB"}
        asked |= {key: value for key, value in changes.items() if key not in fields}
        return pagoda.open_cache(self.endpoint, name, identity=identity, **asked)

    def caches(self):
        """The caches by their names."""
        return {cache.name: cache for cache in pagoda.list_caches(self.endpoint)}

    def free(self):
        """Bytes of the host's budget that no cache has."""
        (budget,) = pagoda.list_caches(self.endpoint).budgets
        assert (budget.medium, budget.bytes) == (pagoda.Medium.HOST, MEMORY)
        return budget.free_bytes

    def check_nothing_leaked(self):
        Client.close_all()
        self.wait_until(lambda daemon: all(cache.sessions == 0 for cache in daemon.caches().values()))
        taken = sum(tier.bytes for cache in self.caches().values() for tier in cache.tiers)
        self.wait_until(lambda daemon: daemon.free() == MEMORY - taken)
