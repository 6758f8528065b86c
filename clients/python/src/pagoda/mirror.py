"""A router's copy of a cache's content: which prefixes it holds, and in which tier."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from pagoda.events import Created, Gap, Item, RemovalReason, Removed, SnapshotBegin, SnapshotEnd, Stored, Updated
from pagoda.hashes import block_hashes, key_hashes
from pagoda.values import Keys, MultimodalItem, Namespace, Tier, Tokens, extra_id_list, key_list, token_list


class CachedPrefix(NamedTuple):
    """The part of a prompt that lies in whole cached blocks."""

    matched_tokens: int
    tier: Tier | None
    """The farthest tier of its blocks, counting each block's nearest copy. PRIMARY: no block must
    be onboarded. None: nothing is cached."""


@dataclasses.dataclass(frozen=True)
class _Window:
    """The cached blocks of a window. Equal content is cached once, so two blocks have the same hash
    only by chance."""

    # By id: the hash and the tier.
    blocks: dict[int, tuple[int, Tier]] = dataclasses.field(default_factory=dict)
    ids: dict[int, int] = dataclasses.field(default_factory=dict)  # By hash.

    def store(self, block_id: int, block_hash: int, tier: Tier) -> None:
        if block_id in self.blocks:
            raise ValueError(f"block {block_id} is stored twice: an event is missing")
        self.blocks[block_id] = (block_hash, tier)
        self.ids[block_hash] = block_id

    def remove(self, block_id: int) -> tuple[int, Tier]:
        if block_id not in self.blocks:
            raise ValueError(f"block {block_id} was never stored: an event is missing")
        block_hash, tier = self.blocks.pop(block_id)
        if self.ids.get(block_hash) == block_id:
            del self.ids[block_hash]
        return block_hash, tier


class Mirror:
    """The prefixes that a daemon has cached, built only from a watch's items.

    Give it every item of one watch that has no filter of types or tiers, and that began with a
    snapshot or at revision 1:

            with pagoda.watch(endpoint, snapshot=True) as watch:
                for item in watch:
                    mirror.apply(item)

    It compares published hashes and keeps no tokens. A block takes about 500 bytes. Not
    thread-safe.
    """

    def __init__(self, tokens_per_block: int) -> None:
        """`tokens_per_block`: from Client.cache."""
        self.tokens_per_block = tokens_per_block
        self._windows: dict[int, _Window] = {}
        self._revision = 0
        self._whole = False
        self._in_snapshot = False

    @property
    def whole(self) -> bool:
        """Whether it has all cached blocks. Before the first snapshot, and during one, it has a
        part."""
        return self._whole

    @property
    def revision(self) -> int:
        """The last applied revision; 0 while it is not whole."""
        return self._revision

    def __len__(self) -> int:
        """The number of cached blocks in all windows."""
        return sum(len(window.blocks) for window in self._windows.values())

    def apply(self, item: Item) -> None:
        """Applies one item. ValueError: a Gap, or an event that does not fit the earlier ones. The
        mirror then cannot be used until the next SnapshotBegin."""
        if isinstance(item, Gap):
            self._whole = False
            raise ValueError(f"{item.reason}: events after revision {item.previous_revision} are missing")
        if isinstance(item, SnapshotBegin):
            self._windows.clear()
            self._in_snapshot, self._whole, self._revision = True, False, 0
            return
        if isinstance(item, SnapshotEnd):
            self._in_snapshot, self._whole = False, True
        elif not self._whole and not self._in_snapshot:
            if item.revision != 1:
                raise ValueError("a mirror begins with a snapshot, or with revision 1")
            self._whole = True
        try:
            self._follow(item)
        except ValueError:
            self._whole = False
            raise
        if self._whole:
            self._revision = item.revision

    def _follow(self, item: Item) -> None:
        if isinstance(item, Created):
            if item.capacity:  # Created events of blocks change nothing: they have no content yet.
                self._windows.setdefault(item.window_size, _Window())
        elif isinstance(item, Stored):
            self._store(item)
        elif isinstance(item, Updated) and item.tier is not None:
            window = self._window(item.window_size)
            block_hash, _ = window.remove(item.block_id)
            window.store(item.block_id, block_hash, item.tier[1])
        elif isinstance(item, Removed) and (item.whole_window or item.reason != RemovalReason.RELEASED):
            window = self._window(item.window_size)
            for block_id in list(window.blocks) if item.whole_window else item.block_ids:
                window.remove(block_id)

    def _store(self, stored: Stored) -> None:
        window, parent = self._window(stored.window_size), stored.parent_block_id
        # In full attention a parent is stored before its children, except within a snapshot.
        if parent is not None and stored.window_size == 0 and self._whole and parent not in window.blocks:
            raise ValueError(f"block {parent} has a child and was never stored: an event is missing")
        for block in stored.blocks:
            window.store(block.block_id, block.block_hash, block.tier)

    def _window(self, size: int) -> _Window:
        if size not in self._windows:
            raise ValueError(f"window {size} was never created: an event is missing")
        return self._windows[size]

    def match(self, tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
              multimodal_items: Sequence[MultimodalItem] = (), keys: Keys = ()) -> CachedPrefix:
        """Returns how much of a prompt lies in whole cached blocks. The arguments are those of
        Client.match. The last token never counts, because its computation gives the logits.
        Client.match can find a few more tokens, in a part of a block. The time is linear in the
        prompt's blocks.

        `keys`: instead of tokens, see Namespace.keyed; the last block can also be cached.
        ValueError: both are given.
        """
        if named := key_list(keys):
            if token_list(tokens) or extra_id_list(extra_token_ids) or multimodal_items:
                raise ValueError("a prompt is named by keys or by tokens, not by both")
            return self.find(key_hashes(named, namespace=namespace))
        hashes = block_hashes(tokens, self.tokens_per_block, namespace=namespace, extra_token_ids=extra_token_ids,
                              multimodal_items=multimodal_items)
        return self.find(hashes[:-1])

    def find(self, hashes: Sequence[int]) -> CachedPrefix:
        """Like match, for whole blocks by their hashes (pagoda.block_hashes). The same hashes can
        be used with many mirrors.

        A length counts only if every window has the blocks that attention reaches from there.
        """
        lengths = {size: _runs(window, hashes) for size, window in self._windows.items()}
        for count in range(len(hashes), 0, -1):
            if lengths and all(runs[count - 1] >= count - self._first(size, count) for size, runs in lengths.items()):
                tiers = [window.blocks[window.ids[block_hash]][1] for size, window in self._windows.items()
                         for block_hash in hashes[self._first(size, count):count]]
                return CachedPrefix(count * self.tokens_per_block, max(tiers))
        return CachedPrefix(0, None)

    def _first(self, window_size: int, count: int) -> int:
        """The first block that a window reaches after `count` blocks. The last block is always
        needed."""
        reached = max(0, count * self.tokens_per_block - window_size + 1) if window_size else 0
        return min(reached // self.tokens_per_block, count - 1)


def _runs(window: _Window, hashes: Sequence[int]) -> list[int]:
    """For each block, the number of consecutive cached blocks that end with it."""
    runs, run = [], 0
    for block_hash in hashes:
        run = run + 1 if block_hash in window.ids else 0
        runs.append(run)
    return runs
