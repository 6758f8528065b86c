"""Two prompts with the same beginning: the second one computes only the tokens that the first one
did not.

    python3 quickstart.py [ENDPOINT]    for a cache with one attention window
"""

import sys

import numpy as np
import pagoda

NAMESPACE = pagoda.Namespace(cache_salt="quickstart")
SYSTEM_PROMPT = list(range(1000, 1100))


def compute_kv(tokens: list[int], begin: int, end: int) -> np.ndarray:
    """Stands in for a model: one number for each token in [begin, end), instead of its K and V in
    all layers."""
    return np.cumsum(np.array(tokens, np.float32) % 17)[begin:end]


def run(client: pagoda.Client, tokens: list[int]) -> int:
    """Runs a request like an engine. Returns how many of its tokens were cached."""
    pool = client.pools(tier=pagoda.Tier.PRIMARY)[0]
    with client.sequence(tokens, namespace=NAMESPACE) as sequence:
        sequence.wait_ready()
        slots, offsets = np.divmod(sequence.table.token_slots(0, len(tokens)), client.cache.tokens_per_block)
        # [slot, layer, K or V, head, token, dimension]
        cached = sequence.matched_tokens
        read = pool.array[slots[:cached], 0, 0, 0, offsets[:cached], 0]
        assert (read == compute_kv(tokens, 0, cached)).all(), "the cache holds what was written"
        written = compute_kv(tokens, cached, len(tokens))
        pool.writable_array[slots[cached:], :, :, :, offsets[cached:], :] = written[:, None, None, None, None]
        sequence.commit(computed=len(tokens))
    return cached


def main() -> None:
    with pagoda.connect(sys.argv[1] if len(sys.argv) > 1 else None, name="quickstart") as client:
        client.invalidate([], namespace=NAMESPACE)
        for question in ([1, 2, 3], [1, 2, 3, 4], [5, 6]):
            tokens = SYSTEM_PROMPT + question
            print(f"{len(tokens)} tokens, {run(client, tokens)} of them cached")
        tier = client.status().windows[0].tiers[0]
        print(f"{tier.cached_blocks} of {tier.capacity_blocks} blocks of {tier.block_bytes:,} bytes hold cached tokens")


if __name__ == "__main__":
    main()
