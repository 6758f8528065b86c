"""The operations that belong to no sequence: raw blocks, prefixes, pins, pools. Each function is a method of Client, of aio.Client and of
the batches of both: one signature and one documentation for all.

A prefix is named by its tokens, with the extra ids and the items beside them; or by `keys`, of whole blocks, in a keyed namespace. The two
do not go together (KEYS_AND_TOKENS), and a key has 1 to 64 bytes (INVALID_KEY)."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from pagoda import values
from pagoda._call import Call, Surroundings
from pagoda._contract import v1
from pagoda.pools import Pool
from pagoda.values import Block, Keys, Lane, Namespace, PrefetchTarget, Retention, Tier, Tokens, key_list, token_list


def _prefix(tokens: Tokens, namespace: Namespace | None, extra_token_ids: Tokens,
            multimodal_items: Sequence[values.MultimodalItem], keys: Keys) -> dict[str, Any]:
    """What names a prefix, as fields of a request."""
    named = key_list(keys)
    return {"tokens": token_list(tokens), "namespace": values.named_namespace(namespace, named), "keys": named,
            "extra_token_ids": token_list(extra_token_ids), "multimodal_items": [item.message() for item in multimodal_items]}


def _description(tokens_per_block: int) -> int:
    """Pins and pools, in the room of block handles: a guess that is large."""
    return 1000


def allocate_blocks(count: int, *, window_size: int = 0) -> Call[values.Allocation]:
    """Takes `count` blocks of a window that belong to no sequence, all or nothing; the session owns them until free_blocks.

    Errors: BLOCKS_EXHAUSTED, INVALID_COUNT, UNKNOWN_WINDOW.
    """
    return Call("allocate_blocks", v1.AllocateBlocksRequest(window_size=window_size, count=count),
                lambda done: values.Allocation(tuple(Block(block.block_id, block.generation, block.slot_index)
                                                     for block in done.blocks), done.ready_ticket),
                handles=lambda tokens_per_block: count)


def free_blocks(blocks: Iterable[Block], *, window_size: int = 0) -> Call[None]:
    """Gives raw blocks back, all or nothing. Takes an Allocation, or some of its blocks.

    Errors: STALE_HANDLE, DOUBLE_FREE, FOREIGN_BLOCK, UNKNOWN_BLOCK, UNKNOWN_WINDOW, INVALID_COUNT.
    """
    refs = [v1.BlockRef(block_id=block.block_id, generation=block.generation) for block in blocks]
    return Call("free_blocks", v1.FreeBlocksRequest(window_size=window_size, blocks=refs), lambda done: None)


def _with_tier_names(found: values.Match, session: Surroundings) -> values.Match:
    """With the cache's own names of its tiers."""
    named = {session.cache.tier_name(Tier(place)): tokens for place, tokens in enumerate(found.tokens_by_tier.values(), 1)}
    return dataclasses.replace(found, tokens_by_tier=named)


def match(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
          multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Match]:
    """How many tokens of a prompt are cached now: in memory, as opening a sequence with it would
    match, and in each tier, on disk too. Takes nothing, promises nothing.

    `keys`: in place of tokens, the keys of the prompt's whole blocks (Namespace.keyed); all of them may match.
    Errors: INVALID_ARGUMENT, KEYS_AND_TOKENS, INVALID_KEY.
    """
    named = _prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)
    request = v1.MatchPrefixRequest(**named)

    def take(done: Any) -> values.Match:
        blocks = tuple(Block(block.block_id, block.generation, block.slot_index) for block in done.blocks)
        return values.Match(done.matched_tokens, blocks, done.cached_tokens,
                            {Tier(place).name.lower(): count for place, count in enumerate(done.tokens_by_tier, 1)})

    return Call("match_prefix", request, take, complete=_with_tier_names,
                handles=lambda tokens_per_block: len(named["tokens"]) // tokens_per_block + len(named["keys"]) + 1)


def query_capacity(tokens: Tokens = (), *, max_new_tokens: int = 0, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                   multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Capacity]:
    """How many blocks a prompt and `max_new_tokens` behind it would take. Takes nothing, promises nothing.

    `keys`: in place of tokens, see Namespace.keyed. Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY.
    """
    return Call("query_capacity", v1.QueryCapacityRequest(
        max_new_tokens=max_new_tokens, **_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)), take_capacity)


def take_capacity(done: Any) -> values.Capacity:
    return values.Capacity(done.matched_tokens, tuple(
        values.WindowCapacity(window.window_size, window.blocks_now, window.blocks_to_completion, window.available_blocks,
                              window.quota_blocks if window.HasField("quota_blocks") else None,
                              window.quota_left_blocks if window.HasField("quota_left_blocks") else None)
        for window in done.windows))


def offload(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
            multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Moved]:
    """Moves the prefix's cached blocks that nobody holds down to the secondary tier, from the end up to the first that is held.

    `keys`: in place of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    return Call("offload_prefix", v1.OffloadPrefixRequest(**_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)),
                lambda done: values.Moved(done.blocks, done.ready_ticket))


def prefetch(tokens: Tokens = (), *, target: PrefetchTarget = PrefetchTarget.PRIMARY, deadline: float | None = None,
             namespace: Namespace | None = None, extra_token_ids: Tokens = (),
             multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Prefetched]:
    """Brings the prefix's cached blocks up, from the beginning, as far as room can be made: those in
    memory to the first tier, and those that lie on disk alone into the last tier in memory. It waits
    for neither: client.wait(found.ready_ticket) waits for the moves between memories, and
    client.wait(found.fetch_ticket, lane=Lane.FETCH) for the disk.

    `target`: PrefetchTarget.MEMORY leaves blocks in memory where they are. `deadline`: seconds after
    which fetches that have not ended are given up; what came stays. None: no deadline.
    `keys`: in place of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    # The default is left out: an older daemon refuses fields that it does not know.
    said = None if target is PrefetchTarget.PRIMARY else int(target)
    return Call("prefetch_prefix", v1.PrefetchPrefixRequest(
        target=said, deadline_ms=values.optional_milliseconds(deadline),
        **_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)),
                lambda done: values.Prefetched(done.blocks, done.ready_ticket, done.matched_tokens, done.fetched_blocks,
                                               done.fetch_ticket))


def unpin(pin_id: int) -> Call[None]:
    """Ends a pin of any session; a tenant's client ends those of that tenant's sessions alone.

    Errors: UNKNOWN_PIN (never made, ended, its lease is over, its prefix has left the cache, or it is not the tenant's).
    """
    return Call("unpin_prefix", v1.UnpinPrefixRequest(pin_id=pin_id), lambda done: None)


def list_pins() -> Call[values.Pins]:
    """The pins of all sessions; for a tenant's client those of that tenant's sessions."""
    return Call("list_pins", v1.ListPinsRequest(), lambda done: values.Pins(
        tuple(values.PinInfo(pin.pin_id, pin.client_name, Namespace.take(pin.namespace), pin.pinned_tokens, pin.blocks,
                             values.utc(pin.expire_time) if pin.HasField("expire_time") else None, pin.tenant) for pin in done.pins),
        done.pinned_blocks, done.budget_blocks), handles=_description)


def invalidate(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
               multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Invalidated]:
    """Forgets every cached block whose content, from the namespace's root on, begins with the prefix; without tokens and keys
    the whole namespace (Namespace(keyed=True): the keyed one).
    Sequences keep the blocks that they hold, which are not shared any more; pins of them end. Returns
    how many blocks left the cache: an integer with a `durable_ticket`. After
    client.wait(removed.durable_ticket, lane=Lane.BACKUP) none of them comes back from disk.

    Errors: INVALID_ARGUMENT, PERMISSION_DENIED (a tenant that shares: what it publishes belongs to all that share).
    """
    return Call("invalidate_prefix", v1.InvalidatePrefixRequest(
        **_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)),
                lambda done: values.Invalidated(done.removed_blocks, done.durable_ticket))


def set_retention(tokens: Tokens, retention: Sequence[Retention], *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                  multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[int]:
    """Gives the prefix's cached blocks the priority and the duration of the range that holds their first token. Returns how many blocks,
    over all windows.

    `keys`: in place of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT (ranges that are not
    ascending, or a priority above 100).
    """
    return Call("set_retention", v1.SetRetentionRequest(
        retention=[part.message() for part in retention], **_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys)),
                lambda done: int(done.blocks))


def _with_memory(pools: tuple[Pool, ...], session: Surroundings) -> tuple[Pool, ...]:
    return tuple(dataclasses.replace(pool, map_socket=session.map_socket) for pool in pools)


def pools(*, tier: Tier | None = None, window_size: int | None = None) -> Call[tuple[Pool, ...]]:
    """The pools, or those of a tier or a window: where their bytes are, and how they are laid out. Nothing is mapped yet."""
    return Call("describe_pools", v1.DescribePoolsRequest(), lambda done: tuple(
        Pool.take(pool) for pool in done.pools
        if tier in (None, pool.tier) and window_size in (None, pool.window_size)), complete=_with_memory, handles=_description)


def wait_for_ticket(ticket: int, *, lane: Lane = Lane.MEMORY) -> Call[int]:
    """Waits in the daemon until everything in the lane up to the ticket has ended, at most 5 seconds
    for all waits of a batch; the operations behind it run after that, whether it succeeded or not.
    Returns the last ticket of the lane that is done.

    `lane`: the one that gave the ticket; every `ready_ticket` is of Lane.MEMORY.
    Errors: UNKNOWN_TICKET (the lane has not given it yet), WAIT_TIMEOUT, DRAINING.
    """
    return Call("wait_for_ticket", v1.WaitForTicketRequest(ticket=ticket, lane=int(lane)), lambda done: int(done.completed_ticket))


def pin(tokens: Tokens = (), *, lease: float | None = None, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
        multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Pinned]:
    """Keeps the prefix's cached blocks from being evicted, in whichever tier, until it is unpinned or until `lease` seconds are over; in a
    sliding window only those that its end needs. It is unpinned at the end of a `with` block; without one it outlives its session. It ends
    as a whole, with an Updated event, when one of its blocks leaves the cache. A tenant's client has no pins without end: the daemon's
    sessions.max_pin_lease is the longest lease, and the one of a pin without.

    `keys`: in place of tokens, see Namespace.keyed.
    Errors: PIN_BUDGET_EXCEEDED (nothing is pinned), INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    request = v1.PinPrefixRequest(lease_ms=values.optional_milliseconds(lease),
                                  **_prefix(tokens, namespace, extra_token_ids, multimodal_items, keys))
    return Call("pin_prefix", request, lambda done: values.Pinned(done.pin_id, done.pinned_tokens, done.blocks))
