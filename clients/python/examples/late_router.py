"""A router that joins a daemon late. It begins with a snapshot and follows the events. It knows how
much of any prompt is cached, and in which tier.

    python3 late_router.py [ENDPOINT]

The example shows that the router and the daemon agree, before and after the cache has changed.
"""

import random
import sys

import pagoda

NAMESPACE = pagoda.Namespace(cache_salt="late router")
SYSTEM_PROMPTS = [list(range(start, start + 60)) for start in (1000, 2000, 3000)]


def work(client: pagoda.Client, random_: random.Random) -> None:
    """Acts like an engine: asks questions after three system prompts."""
    for _ in range(20):
        tokens = random_.choice(SYSTEM_PROMPTS) + [random_.randrange(10) for _ in range(random_.randrange(20))]
        with client.sequence(tokens, namespace=NAMESPACE) as sequence:
            sequence.wait_ready()
            sequence.commit(computed=len(tokens))


def compare(client: pagoda.Client, router: pagoda.Mirror) -> None:
    size = router.tokens_per_block
    for prompt in SYSTEM_PROMPTS:
        told = client.match(prompt + [0], namespace=NAMESPACE).matched_tokens
        found = router.match(prompt + [0], namespace=NAMESPACE)
        assert found.matched_tokens == told // size * size
        where = f"cached, up to {found.tier.name}" if found.tier else "cached"
        print(f"  prompt {prompt[0]}: {found.matched_tokens} tokens in whole blocks {where}; the daemon finds {told}")


def follow(watch: pagoda.Watch, router: pagoda.Mirror, revision: int) -> None:
    while not router.whole or watch.revision < revision:
        router.apply(next(watch))


def main() -> None:
    endpoint = sys.argv[1] if len(sys.argv) > 1 else None
    with pagoda.connect(endpoint, name="late router") as client:
        client.invalidate([], namespace=NAMESPACE)
        work(client, random.Random(7))  # The watch has not begun yet.
        router = pagoda.Mirror(client.cache.tokens_per_block)
        with pagoda.watch(endpoint, snapshot=True) as watch:  # A router needs no session.
            follow(watch, router, client.revision)
            print("after the snapshot:")
            compare(client, router)
            client.invalidate(SYSTEM_PROMPTS[0], namespace=NAMESPACE)
            work(client, random.Random(8))
            client.invalidate(SYSTEM_PROMPTS[1][:30], namespace=NAMESPACE)
            follow(watch, router, client.revision)
            print("after more work:")
            compare(client, router)
        print("the router followed every change")


if __name__ == "__main__":
    main()
