"""Which nodes have the longest prefix of a prompt, for a router in front of several daemons."""

import bisect
import collections
import dataclasses
import enum
import heapq
import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from pagoda import errors
from pagoda._contract import Calls, enum_values, v1
from pagoda._endpoint import Credentials
from pagoda.caches import Caches, LayerKind, ServedCache
from pagoda.errors import PagodaError, WatchRefused
from pagoda.hashes import block_hashes, key_hashes
from pagoda.values import Keys, Medium, MultimodalItem, Namespace, Tier, Tokens, key_list, token_row

_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3": 1, "float8_e5m2": 1, "uint8": 1}
_HASHES = enum_values("pagoda.v1.EventContent", "EVENT_CONTENT_")["hashes"]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
# Changes under one hold of the lock.
_CHANGES_AT_ONCE = 1000


@dataclasses.dataclass(frozen=True)
class RouterNode:
    """A daemon that a Router watches. The credentials are those of pagoda.connect."""

    name: str
    """Unique in its router."""
    endpoint: str
    peer_address: str = ""
    """Where other daemons fetch from it, "HOST:PORT"; "": it serves no peers."""
    token: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclasses.dataclass(frozen=True)
class RouteCosts:
    """The rates of an estimate: seconds until a node has a whole prompt ready.

        seconds = onboard + fetch + compute

    onboard: the bytes of its prefix in farther tiers, by the rate of their medium. fetch: the bytes
    that it takes from another node, by the peers' rate. compute: the other tokens. A node fetches
    what the best other node has beyond its own prefix, if that is estimated to be faster than
    computing it. The load of the nodes is not in the estimate.
    """

    recompute_tokens_per_second: float = 10_000
    gpu_bytes_per_second: float = 200e9
    host_bytes_per_second: float = 20e9
    disk_bytes_per_second: float = 2e9
    peer_bytes_per_second: float = 1e9
    """0: nodes do not fetch from each other."""
    bytes_per_token: float = 0
    """0: from the layers that the daemons report."""

    def __post_init__(self) -> None:
        rates = (self.recompute_tokens_per_second, self.gpu_bytes_per_second, self.host_bytes_per_second, self.disk_bytes_per_second)
        if min(rates) <= 0 or self.peer_bytes_per_second < 0 or self.bytes_per_token < 0:
            raise ValueError("a rate of the costs is not positive")


class NodeState(enum.Enum):
    """The state of a node."""

    CONNECTING = "connecting"
    """There was no answer yet."""
    SNAPSHOT = "snapshot"
    """A snapshot arrives. What has arrived counts already."""
    FOLLOWING = "following"
    """All its records are known, and changes follow."""
    BROKEN = "broken"
    """Its stream broke. Its records are ignored until the stream continues."""
    DEAD = "dead"
    """Its lease is over. Its records are ignored."""
    REFUSED = "refused"
    """It refuses the router, or its cache holds other content. See NodeStatus.error."""


@dataclasses.dataclass(frozen=True)
class NodeStatus:
    """How a node's stream went."""

    node: RouterNode
    state: NodeState
    alive: bool
    """Whether find can return it."""
    epoch: int
    revision: int
    records: int
    snapshots: int
    gaps: int
    """Times that events were missing."""
    silent_for: float
    """Seconds since its last message, or since the router began with it."""
    error: PagodaError | None
    """The last one. It stays when the stream has recovered."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A node with a part of a prompt."""

    node: RouterNode | None
    tokens: int
    """The prompt's tokens on the node, from its start. The last token never counts, because its
    computation gives the logits."""
    tier: Tier | None
    """Where the last of them lie."""
    cost: float
    """Seconds until the whole prompt is ready there: see RouteCosts."""
    fetch_tokens: int = 0
    """What it fetches from another node in this estimate."""
    fetch_from: RouterNode | None = None
    """That node. Its peer_address is the source of the fetch."""


@dataclasses.dataclass(frozen=True)
class Route:
    """What a router says about a prompt."""

    nodes: tuple[Candidate, ...]
    """Longest prefix first, then the nearest tier, then by name. All are alive."""
    other: Candidate
    """A node that has nothing of the prompt."""


class _Refused(Exception):
    """The node's cache holds other content than the first node's."""


class _Node:
    """One node, read by its own thread. The router's lock guards what is not constant."""

    def __init__(self, node: RouterNode, router: "Router") -> None:
        self.node = node
        self.router = router
        credentials = Credentials.choose(node.token, node.ca_file, node.certificate_file, node.key_file)
        self.channel = credentials.channel(node.endpoint, grpc)
        self.calls = Calls(self.channel, credentials.metadata)
        self.state = NodeState.CONNECTING
        self.cache: ServedCache | None = None
        self.accepted = False
        self.records: dict[int, int] = {}  # The tier of each chunk's nearest copy, by its hash.
        self.epoch = self.revision = self.snapshots = self.gaps = 0
        self.resumable = False
        self.last_sign = time.monotonic()
        self.error: PagodaError | None = None
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"pagoda-router-{node.name}", daemon=True)

    def alive(self, now: float) -> bool:
        return self.state in (NodeState.SNAPSHOT, NodeState.FOLLOWING) and now - self.last_sign < self.router.lease

    def count(self, chunks: list[int], now: float) -> int:
        """How many chunks of a prompt a request there would not compute. With full attention, the
        node is taken to have all chunks before its last one. In a sliding window only the chunks
        of the last window count."""
        if not self.alive(now):
            return 0
        window = _largest_window(self.cache)
        if window == 0:
            return bisect.bisect_left(range(len(chunks)), True, key=lambda i: chunks[i] not in self.records)
        needed, run = -(-window // self.router.chunk_tokens), 0
        for i in reversed(range(len(chunks))):
            run = run + 1 if chunks[i] in self.records else 0
            if run == needed or (run and i == 0):
                return i + run
        return 0

    def status(self, now: float) -> NodeStatus:
        silent = now - self.last_sign
        is_dead = silent >= self.router.lease and self.state is not NodeState.REFUSED
        return NodeStatus(self.node, NodeState.DEAD if is_dead else self.state, self.alive(now), self.epoch, self.revision, len(self.records),
                          self.snapshots, self.gaps, silent, self.error)

    def close(self) -> None:
        """Ends the thread."""
        self.closed.set()
        self.channel.close()
        self.thread.join()

    def run(self) -> None:
        pause = _FIRST_PAUSE
        while not self.closed.is_set():
            before = self.revision
            try:
                self.follow()
            except PagodaError as error:
                self.fail(error)
            except grpc.RpcError as error:
                self.fail(errors.of_call(error))
            except ValueError:  # The channel is closed.
                if not self.closed.is_set():
                    raise
            except _Refused as refused:
                self.fail(errors.make(errors.Details(grpc.StatusCode.FAILED_PRECONDITION, str(refused), "MODEL_MISMATCH")))
            if self.revision != before:
                pause = _FIRST_PAUSE
            self.closed.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def follow(self) -> None:
        """Reads one stream to its end."""
        lease = self.router.lease
        if not self.resumable:
            caches = Caches.take(self.calls.list_caches(v1.ListCachesRequest(name=self.router.cache_name), timeout=lease))
            self.router._accept(self, caches)
        request = v1.WatchRequest(cache=self.router.cache_name, content=_HASHES, chunk_tokens=self.router.chunk_tokens,
                                  resnapshot_when_behind=True, snapshot=not self.resumable, window_sizes=[_largest_window(self.cache)])
        if self.resumable:
            request.from_revision, request.epoch = self.revision + 1, self.epoch
        stream = self.calls.watch(request)
        # A daemon that is silent for a lease is called again.
        watchdog = threading.Thread(target=self.watch_silence, args=(stream, ended := threading.Event()), daemon=True)
        watchdog.start()
        try:
            for message in stream:
                if not self.apply(message):
                    break
            else:
                raise errors.make(errors.Details(grpc.StatusCode.UNAVAILABLE, "the daemon ended the stream"))
        finally:
            ended.set()
            stream.cancel()
            watchdog.join()

    def watch_silence(self, stream: Any, ended: threading.Event) -> None:
        began = time.monotonic()
        while not ended.wait(self.router.lease / 20):
            if self.closed.is_set() or time.monotonic() - max(began, self.last_sign) >= self.router.lease:
                stream.cancel()
                return

    def apply(self, message: Any) -> bool:
        """Applies a message; False: events are missing, and the next stream begins with a
        snapshot."""
        with self.router._lock:
            self.last_sign = time.monotonic()
            if message.snapshot_begin:
                self.gaps += bool(self.records)
                self.records = {}
                self.snapshots += 1
                self.state = NodeState.SNAPSHOT
            fits = message.snapshot_begin or message.previous_revision == self.revision and message.epoch == self.epoch
            if not fits or message.epoch != (self.cache.epoch if self.cache else 0):
                self.gaps += 1
                self.forget(NodeState.CONNECTING)
                return False
            self.epoch, self.revision = message.epoch, message.revision
            in_snapshot = (message.snapshot_begin or self.state is NodeState.SNAPSHOT) and not message.snapshot_end
            self.state = NodeState.SNAPSHOT if in_snapshot else NodeState.FOLLOWING
            self.resumable = not in_snapshot
        changes = _changes(message)
        for begin in range(0, len(changes), _CHANGES_AT_ONCE):
            with self.router._lock:
                for chunk, tier in changes[begin:begin + _CHANGES_AT_ONCE]:
                    if chunk is None:
                        self.records = {}
                    elif tier is None:
                        self.records.pop(chunk, None)
                    else:
                        self.records[chunk] = tier
        return True

    def forget(self, state: NodeState) -> None:
        self.records = {}
        self.resumable = False
        self.state = state

    def fail(self, error: PagodaError) -> None:
        with self.router._lock:
            self.error = error
            if isinstance(error, WatchRefused):
                self.gaps += 1
                self.forget(NodeState.CONNECTING)
            elif not errors.is_broken(error) and error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self.forget(NodeState.REFUSED)
            elif self.resumable and time.monotonic() - self.last_sign < self.router.lease:
                self.state = NodeState.BROKEN
            elif self.resumable:
                self.forget(NodeState.DEAD)
            else:
                self.forget(self.state if self.state is NodeState.DEAD else NodeState.CONNECTING)


class Router:
    """Watches several daemons, and answers which of them have the longest prefix of a prompt.

        nodes = [pagoda.RouterNode("a", "node-a:7070"), pagoda.RouterNode("b", "node-b:7070")]
        with pagoda.Router(nodes) as router:
            router.wait(5)
            best = router.find(prompt).nodes

    Records are hints: a wrong one costs a request to a node that does not have the prefix. A node
    is in an answer only if its stream is open and its last message is younger than the lease. If
    its events have a gap, if the daemon's log has passed, or if the epoch changes, its records are
    forgotten at once, and begin again with a snapshot. It follows the largest window of each cache.

    One thread reads each node, and another one watches its silence. A record takes about 100 bytes.
    A find hashes the prompt, which takes most of its time (see block_hashes), and then O(nodes *
    log chunks) steps. It is for up to about a hundred nodes. Thread-safe.
    """

    def __init__(self, nodes: Iterable[RouterNode] = (), *, cache: str | None = None, chunk_tokens: int = 256, lease: float = 10.0,
                 costs: RouteCosts = RouteCosts()) -> None:
        """`cache`: the name of the daemons' cache; None: the only one of each. `chunk_tokens`: a
        multiple of the caches' tokens_per_block. Prefixes are found in whole chunks. `lease`:
        seconds without a message after which a node is dead. Daemons send a progress mark each
        second (events.progress_interval).

        ValueError: a chunk of no tokens, a lease that is not positive, or a bad node.
        """
        if chunk_tokens <= 0 or lease <= 0:
            raise ValueError(f"a chunk of {chunk_tokens} tokens and a lease of {lease} s: both must be positive")
        self.cache_name = cache or ""
        self.chunk_tokens = chunk_tokens
        self.lease = lease
        self.costs = costs
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}
        self._cache: ServedCache | None = None
        try:
            for node in nodes:
                self.add(node)
        except BaseException:
            self.close()
            raise

    def add(self, node: RouterNode) -> None:
        """Watches a daemon. Returns at once; a daemon that is away is called until it answers.
        ValueError: the name is empty or taken, or the token would go out in plaintext."""
        if not node.name or not node.endpoint:
            raise ValueError("a node has no name or no endpoint")
        added = _Node(node, self)
        with self._lock:
            if taken := node.name in self._nodes:
                added.channel.close()
            else:
                self._nodes[node.name] = added
        if taken:
            raise ValueError(f"there is a node {node.name!r} already")
        added.thread.start()

    def remove(self, name: str) -> None:
        """Forgets a node. KeyError: there is none of this name."""
        with self._lock:
            node = self._nodes.pop(name)
        node.close()

    def close(self) -> None:
        """Forgets all nodes."""
        for name in list(self._nodes):
            self.remove(name)

    def __enter__(self) -> "Router":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def nodes(self) -> list[NodeStatus]:
        """All nodes, by name."""
        with self._lock:
            now = time.monotonic()
            return [self._nodes[name].status(now) for name in sorted(self._nodes)]

    def wait(self, timeout: float) -> bool:
        """Waits until each node follows, is dead or is refused. False: the time was over first."""
        settled = (NodeState.FOLLOWING, NodeState.DEAD, NodeState.REFUSED)
        deadline = time.monotonic() + timeout
        while not all(node.state in settled for node in self.nodes()):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.005)
        return True

    def find(self, tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
             multimodal_items: Sequence[MultimodalItem] = (), keys: Keys = (), most: int = 8) -> Route:
        """The nodes with the longest prefixes, at most `most`. The prompt's arguments are those of
        Client.match. Without nodes before the first daemon has answered."""
        with self._lock:
            cache = self._cache
        if cache is None:
            return Route((), Candidate(None, 0, None, 0.0))
        per_block = cache.cache.tokens_per_block
        if named := key_list(keys):
            hashes, size = key_hashes(named, namespace=namespace), len(named) * per_block
            reusable = size
        else:
            ids = token_row(tokens)
            hashes = block_hashes(ids, per_block, namespace=namespace, extra_token_ids=extra_token_ids, multimodal_items=multimodal_items)
            size = len(ids)
            reusable = max(size - 1, 0)
        whole = size // self.chunk_tokens * self.chunk_tokens // per_block
        step = self.chunk_tokens // per_block
        return self._route(hashes[step - 1:whole:step], size, reusable, cache, most)

    def _route(self, chunks: list[int], size: int, reusable: int, cache: ServedCache, most: int) -> Route:
        with self._lock:
            now = time.monotonic()
            counts = ((name, node.count(chunks, now)) for name, node in self._nodes.items())
            found = [(-count, self._nodes[name].records[chunks[count - 1]], name) for name, count in counts if count]
            best = []
            for negative, tier, name in heapq.nsmallest(most, found):
                node, count = self._nodes[name], -negative
                candidate = Candidate(node.node, min(count * self.chunk_tokens, reusable), Tier(tier), 0.0)
                # In a sliding window, early chunks leave first. They need no onboarding.
                tiers = (node.records.get(chunk, 1) for chunk in chunks[:count])
                best.append((candidate, self._onboard(tiers, node.cache)))
        candidates = [candidate for candidate, _ in best]
        estimated = tuple(self._estimate(candidate, candidates, size, cache, onboard) for candidate, onboard in best)
        return Route(estimated, self._estimate(Candidate(None, 0, None, 0.0), candidates, size, cache, 0.0))

    def _onboard(self, tiers: Iterable[int], cache: ServedCache | None) -> float:
        rates = {Medium.GPU: self.costs.gpu_bytes_per_second, Medium.HOST: self.costs.host_bytes_per_second}
        seconds = 0.0
        for tier, count in collections.Counter(tiers).items():
            if cache is not None and tier > 1:
                medium = cache.cache.tiers[tier - 1].medium if tier <= len(cache.cache.tiers) else Medium.DISK
                seconds += count * self.chunk_tokens * self._bytes_per_token(cache) / rates.get(medium, self.costs.disk_bytes_per_second)
        return seconds

    def _estimate(self, candidate: Candidate, nodes: list[Candidate], size: int, cache: ServedCache, onboard: float) -> Candidate:
        left, seconds = size - candidate.tokens, onboard
        peer = next((other for other in nodes if other.node and other.node is not candidate.node and other.node.peer_address), None)
        fetched = max(peer.tokens - candidate.tokens, 0) if peer and self.costs.peer_bytes_per_second else 0
        if fetched:
            fetch = fetched * self._bytes_per_token(cache) / self.costs.peer_bytes_per_second
            if fetch < fetched / self.costs.recompute_tokens_per_second:
                seconds, left = seconds + fetch, left - fetched
            else:
                fetched = 0
        cost = seconds + left / self.costs.recompute_tokens_per_second
        return dataclasses.replace(candidate, cost=cost, fetch_tokens=fetched, fetch_from=peer.node if peer and fetched else None)

    def _bytes_per_token(self, cache: ServedCache) -> float:
        if self.costs.bytes_per_token:
            return self.costs.bytes_per_token
        total = 0.0
        for group in cache.layers:
            if group.kind is LayerKind.OPAQUE:
                total += group.count * group.bytes_per_block / cache.cache.tokens_per_block
            else:
                factor = 1 if group.kind is LayerKind.KEY_ONLY else 2
                total += factor * group.count * group.num_kv_heads * group.head_dim * _ELEMENT_BYTES.get(group.dtype, 2)
        return total

    def _accept(self, node: _Node, caches: Caches) -> None:
        """The node's cache must be of the first node's content."""
        chosen = [cache for cache in caches if not self.cache_name or cache.name == self.cache_name]
        if len(chosen) != 1:
            names = ", ".join(cache.name for cache in caches)
            raise _Refused(f"there is no single cache {self.cache_name!r}: the daemon has {names or 'none'}")
        cache = chosen[0]
        if self.chunk_tokens % cache.cache.tokens_per_block:
            raise _Refused(f"a chunk of {self.chunk_tokens} tokens is no whole blocks of {cache.cache.tokens_per_block}")
        with self._lock:
            node.accepted = False
            first = self._cache
            if first is None or not any(other.accepted for other in self._nodes.values()):
                self._cache = first = cache
            ours, others = first.cache, cache.cache
            if (ours.tokens_per_block, ours.model_fingerprint) != (others.tokens_per_block, others.model_fingerprint):
                raise _Refused(f"the cache has {others.tokens_per_block} tokens in a block and the model {others.model_fingerprint!r}; "
                               f"the first node's has {ours.tokens_per_block} and {ours.model_fingerprint!r}")
            node.cache, node.accepted = cache, True


def _largest_window(cache: ServedCache | None) -> int:
    sizes = [window.window_size for window in cache.cache.windows] if cache is not None else []
    return 0 if 0 in sizes or not sizes else max(sizes)


def _changes(message: Any) -> list[tuple[int | None, int | None]]:
    """Chunks and their tiers, in order. Without a tier: the chunk leaves. Without a chunk: all
    leave."""
    changes: list[tuple[int | None, int | None]] = []
    for event in message.events:
        kind = event.WhichOneof("event")
        if kind == "stored":
            changes += [(block.block_hash, block.tier) for block in event.stored.blocks]
        elif kind == "updated" and event.updated.HasField("tier"):
            changes.append((event.updated.block_hash, event.updated.tier.new_value))
        elif kind == "removed" and event.removed.scope:
            changes.append((None, None))
        elif kind == "removed":
            changes += [(chunk, None) for chunk in event.removed.block_hashes]
    return changes
