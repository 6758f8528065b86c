"""A cache of opaque pages that are named by hashes. The first run opens it, stores pages and is
killed. The next run finds them.

    pagodad --memory 64MiB &
    python3 hashed_pages.py [ENDPOINT]
"""

import hashlib
import os
import signal
import sys

import numpy as np
import pagoda

ENDPOINT = sys.argv[1] if len(sys.argv) > 1 else None
# The engine's data: for each block, (layers, bytes) in its own packing, and a hash that names the
# text up to the block's end.
PAGES = [np.random.default_rng(seed).integers(256, size=(2, 4096), dtype=np.uint8) for seed in range(8)]
KEYS = [hashlib.sha256(b"".join(map(bytes, PAGES[:end + 1]))).digest() for end in range(len(PAGES))]

opened = pagoda.open_cache(ENDPOINT, "pages", identity=pagoda.CacheIdentity(model="org/model", layout="my-engine-1"),
                           layers=[pagoda.Layers.opaque(2, bytes_per_block=4096)], tokens_per_block=16, host="8MiB")
print("a new cache" if opened.created else "the cache is there")
with pagoda.connect(ENDPOINT, cache="pages", name="hashed_pages") as client:
    (pool,) = client.pools(tier=pagoda.Tier.PRIMARY)
    with client.sequence(keys=KEYS) as sequence:
        sequence.wait_ready()
        slots, cached = sequence.table.slots, sequence.matched_tokens // client.cache.tokens_per_block
        assert all((pool.array[slot] == page).all() for slot, page in zip(slots[:cached], PAGES)), "the cache holds what was written"
        print(f"{cached} of {len(KEYS)} pages were cached")
        for slot, page in zip(slots[cached:], PAGES[cached:]):
            pool.writable_array[slot] = page
        sequence.commit(computed=len(KEYS) * client.cache.tokens_per_block)
        if cached < len(KEYS):
            print("stored; now this process is killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
