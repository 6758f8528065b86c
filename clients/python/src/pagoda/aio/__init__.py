"""The cache for asyncio: the names of pagoda, with `await`.

    async with pagoda.aio.connect() as client, client.sequence(prompt) as sequence:
        await sequence.commit(computed=len(prompt))

What is opened (connect, sequence, fork, pin, watch) is opened by `await`, or by `async with`, which also ends it. A client belongs to one
event loop.
"""

from pagoda.aio._watch import Watch, watch
from pagoda.aio.client import Batch, Client, Pin, Sequence, connect, drop_cache, list_caches, open_cache

__all__ = ["Batch", "Client", "Pin", "Sequence", "Watch", "connect", "drop_cache", "list_caches", "open_cache", "watch"]
