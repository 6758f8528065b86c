"""The cache for asyncio. It has the names of pagoda, with `await`.

    async with pagoda.aio.connect() as client, client.sequence(prompt) as sequence:
        await sequence.commit(computed=len(prompt))

`await` opens the results of connect, sequence, fork, pin and watch. `async with` opens and ends
them. A client belongs to one event loop.
"""

from pagoda.aio._watch import Watch, watch
from pagoda.aio.client import Batch, Client, Pin, Sequence, connect, drop_cache, list_caches, open_cache

__all__ = ["Batch", "Client", "Pin", "Sequence", "Watch", "connect", "drop_cache", "list_caches", "open_cache", "watch"]
