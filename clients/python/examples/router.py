"""A router's index of the cache, built only from its events: how many tokens of a prompt lie in
whole cached blocks?

    python3 router.py [ENDPOINT]

It is for full attention, and shows that the index and the daemon agree. For several daemons,
pagoda.Router does the work: see route.py.
"""

import asyncio
import random
import sys

import pagoda
import pagoda.aio

NAMESPACE = pagoda.Namespace(cache_salt="router")
# The parent's id, or None at the root; and the block's own tokens.
Place = tuple[int | None, pagoda.Namespace, tuple[int, ...]]


class PrefixIndex:
    """The cached blocks by their place in the prefix tree. In full attention no block leaves before
    its children."""

    def __init__(self) -> None:
        self._blocks: dict[Place, int] = {}
        self._places: dict[int, Place] = {}

    def apply(self, item: pagoda.Event | pagoda.Gap) -> None:
        match item:
            case pagoda.Gap() | pagoda.Removed(whole_window=True):
                self._blocks.clear()
                self._places.clear()
            case pagoda.Stored():
                parent = item.parent_block_id
                for block in item.blocks:
                    place = (parent, item.namespace, block.tokens)
                    self._blocks[place], self._places[block.block_id] = block.block_id, place
                    parent = block.block_id
            case pagoda.Removed() if item.reason != pagoda.RemovalReason.RELEASED:
                for block_id in item.block_ids:
                    # None: stored before this index began.
                    if place := self._places.pop(block_id, None):
                        del self._blocks[place]

    def match(self, tokens: list[int], tokens_per_block: int) -> int:
        """Returns how many tokens from the start lie in whole cached blocks. The last token is
        always computed."""
        parent, matched = None, 0
        while matched + tokens_per_block < len(tokens):
            parent = self._blocks.get((parent, NAMESPACE, tuple(tokens[matched:matched + tokens_per_block])))
            if parent is None:
                break
            matched += tokens_per_block
        return matched

    def __len__(self) -> int:
        return len(self._blocks)


async def work(client: pagoda.aio.Client, random_: random.Random) -> None:
    """Acts like an engine: prompts that share beginnings."""
    for _ in range(50):
        tokens = [random_.randrange(2)] * random_.randrange(1, 200)
        async with client.sequence(tokens, namespace=NAMESPACE) as sequence:
            await sequence.commit(computed=len(tokens))


async def main() -> None:
    endpoint = sys.argv[1] if len(sys.argv) > 1 else None
    index = PrefixIndex()
    async with pagoda.aio.connect(endpoint, name="router") as client:
        # The watch reports only events from now on.
        await client.invalidate([], namespace=NAMESPACE)
        async with client.watch() as watch:
            await work(client, random.Random(7))
            while watch.revision < client.revision:
                index.apply(await anext(watch))
        size = client.cache.tokens_per_block
        for token in (0, 1, 2):
            prompt = [token] * 300
            told = (await client.match(prompt, namespace=NAMESPACE)).matched_tokens
            found = index.match(prompt, size)
            print(f"a prompt of {token}s: {found} tokens in whole blocks by the index, {told} tokens cached")
            assert found == told // size * size
        print(f"the index holds {len(index)} blocks")


if __name__ == "__main__":
    asyncio.run(main())
