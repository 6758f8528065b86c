"""Pagoda's cache for Python: sequences, prefixes, pools and events of a pagodad.
clients/python/README.md has a tour.

    with pagoda.connect() as client, client.sequence(prompt) as sequence:
        ...

pagoda.aio has the same names for asyncio.
"""

from pagoda._call import Pending
from pagoda._exchange import PendingCall
from pagoda._map_socket import SessionRef
from pagoda._materialize import Materialized
from pagoda._watch import Watch, watch
from pagoda.caches import Budget, CacheIdentity, Caches, CacheTier, EngineAddresses, LayerKind, Layers, OpenedCache, ServedCache
from pagoda.client import Batch, Client, Pin, Sequence, connect, drop_cache, list_caches, open_cache
from pagoda.errors import (BadRequest, BatchFailed, CannotMap, Conflict, Exhausted, KvLost, NotFound, NotServed, PagodaError,
                           PermissionDenied, SessionGone, TimedOut, Unauthenticated, Unavailable, WatchRefused)
from pagoda.events import (Created, EndedPin, Event, Gap, Item, PinEnd, Progress, RemovalReason, Removed, SnapshotBegin, SnapshotEnd, Stored,
                           StoredBlock, Updated)
from pagoda.hashes import block_hashes, key_hashes, namespace_hash
from pagoda.mirror import CachedPrefix, Mirror
from pagoda.pools import DeviceArray, Pool, Segment, map_pools
from pagoda.router import Candidate, NodeState, NodeStatus, Route, RouteCosts, Router, RouterNode
from pagoda.tables import Table
from pagoda.values import (Allocation, Block, BlockFill, BlockState, CacheInfo, Capacity, ExportedPrefix, FetchedPrefix, FetchOutcome,
                           Invalidated, Keys, Lane, Match, Medium, MemoryKind, MemoryPages, Moved, MultimodalItem, Namespace, PinInfo,
                           Pinned, Pins, Prefetched, PrefetchTarget, Retention, SequenceInfo, Tier, TierInfo, Tokens, Window,
                           WindowCapacity)
from pagoda.version import VERSION as __version__

__all__ = [
    "Allocation", "BadRequest", "Batch", "BatchFailed", "Block", "BlockFill", "BlockState", "Budget", "CacheIdentity", "CacheInfo",
    "CacheTier", "CachedPrefix", "Caches", "Candidate", "CannotMap", "Capacity", "Client", "Conflict", "Created", "DeviceArray", "EndedPin",
    "EngineAddresses", "Event", "Exhausted", "ExportedPrefix", "FetchOutcome", "FetchedPrefix", "Gap", "Invalidated", "Item", "Keys",
    "KvLost", "Lane", "LayerKind", "Layers", "Match", "Materialized", "Medium", "MemoryKind", "MemoryPages", "Mirror", "Moved",
    "MultimodalItem", "Namespace", "NodeState", "NodeStatus", "NotFound", "NotServed", "OpenedCache", "PagodaError", "Pending",
    "PendingCall", "PermissionDenied", "Pin", "PinEnd", "PinInfo", "Pinned", "Pins", "Pool", "PrefetchTarget", "Prefetched", "Progress",
    "RemovalReason", "Removed", "Retention", "Route", "RouteCosts", "Router", "RouterNode", "Segment", "Sequence", "SequenceInfo",
    "ServedCache", "SessionGone", "SessionRef", "SnapshotBegin", "SnapshotEnd", "Stored", "StoredBlock", "Table", "Tier",
    "TierInfo", "TimedOut", "Tokens", "Unauthenticated", "Unavailable", "Updated", "Watch", "WatchRefused", "Window", "WindowCapacity",
    "__version__", "block_hashes", "connect", "drop_cache", "key_hashes", "list_caches", "map_pools", "namespace_hash", "open_cache",
    "watch",
]
