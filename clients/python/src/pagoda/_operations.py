"""The operations that belong to no sequence: raw blocks, prefixes, pins, pools. Each function is a
method of Client, of aio.Client and of the batches of both, with the same signature and
documentation.

A prefix is named by its tokens, with their extra ids and items, or by `keys` of whole blocks in a
keyed namespace. Tokens and keys cannot be combined (KEYS_AND_TOKENS). A key has 1 to 64 bytes
(INVALID_KEY).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from pagoda import values
from pagoda._call import Call, Surroundings
from pagoda._contract import v1
from pagoda._rows import numbers, rows
from pagoda._wire import TokenField
from pagoda.pools import Pool
from pagoda.values import Block, Keys, Lane, Namespace, PrefetchTarget, Retention, Tier, Tokens, extra_id_list, key_list


def prefix_fields(namespace: Namespace | None, extra_token_ids: Tokens, multimodal_items: Sequence[values.MultimodalItem],
                  keys: Keys) -> dict[str, Any]:
    """The fields of a request that name a prefix, without its tokens."""
    named = key_list(keys)
    return {"namespace": values.named_namespace(namespace, named), "keys": named, "extra_token_ids": extra_id_list(extra_token_ids),
            "multimodal_items": [item.message() for item in multimodal_items]}


class _Prefix:
    """A prefix in an operation: `fields` of the message, and `packed` tokens behind it."""

    def __init__(self, request: Any, tokens: Tokens, *rest: Any) -> None:
        """`request`: the class of the message. `rest`: the arguments of prefix_fields."""
        encoded = TokenField(tokens, request)
        self.fields = prefix_fields(*rest)
        self.packed = encoded.packed
        self.tokens = encoded.count
        self.keys = len(self.fields["keys"])


def _blocks(field: bytes) -> tuple[Block, ...]:
    """From handles."""
    return tuple(map(Block._make, rows(field).tolist()))


def _references(blocks: Iterable[Block]) -> bytes:
    return numbers("I", [number for block in blocks for number in (block.block_id, block.generation)])


def _description(tokens_per_block: int) -> int:
    """An upper guess of the size of pins and pools, counted in block handles."""
    return 2000


def allocate_blocks(count: int, *, window_size: int = 0) -> Call[values.Allocation]:
    """Allocates `count` blocks of a window that belong to no sequence, all or nothing. The session
    owns them until free_blocks.

    Errors: BLOCKS_EXHAUSTED, INVALID_COUNT, UNKNOWN_WINDOW.
    """
    return Call("allocate_blocks", v1.AllocateBlocksRequest(window_size=window_size, count=count),
                lambda done: values.Allocation(_blocks(done.blocks), done.ready_ticket),
                handles=lambda tokens_per_block: count)


def free_blocks(blocks: Iterable[Block], *, window_size: int = 0) -> Call[None]:
    """Frees raw blocks, all or nothing. Takes an Allocation, or some of its blocks.

    Errors: STALE_HANDLE, DOUBLE_FREE, FOREIGN_BLOCK, UNKNOWN_BLOCK, UNKNOWN_WINDOW, INVALID_COUNT.
    """
    return Call("free_blocks", v1.FreeBlocksRequest(window_size=window_size, blocks=_references(blocks)), lambda done: None)


def fill_blocks(fills: Iterable[values.BlockFill], *, window_size: int = 0) -> Call[None]:
    """Declares how far raw blocks are written, and which of them are complete. All or nothing. The
    bytes themselves are written into the pools.

    Errors: BLOCK_FINALIZED (a block was finalised earlier), COMPUTED_BACKWARDS (fewer tokens than
    declared before), INVALID_COUNT (no blocks, or more tokens than a block has), and those of
    free_blocks.
    """
    filled = [number for fill in fills for number in (fill.block.block_id, fill.block.generation, fill.filled_tokens, bool(fill.finalize))]
    return Call("fill_blocks", v1.FillBlocksRequest(window_size=window_size, blocks=numbers("I", filled)), lambda done: None)


def describe_blocks(blocks: Iterable[Block], *, window_size: int = 0) -> Call[tuple[values.BlockState, ...]]:
    """Returns the states of raw blocks of this session, and of blocks in tables of its sequences,
    in their order.

    Errors: STALE_HANDLE (also of a freed block), FOREIGN_BLOCK, UNKNOWN_BLOCK, UNKNOWN_WINDOW,
    INVALID_COUNT (no blocks).
    """
    named = _references(blocks)
    return Call("describe_blocks", v1.DescribeBlocksRequest(window_size=window_size, blocks=named),
                lambda done: tuple(values.BlockState(state.holders, state.filled_tokens, state.finalized, state.cached)
                                   for state in done.blocks),
                handles=lambda tokens_per_block: 2 * (len(named) // 8))  # A state takes less than two handles, a reference 8 bytes.


def _with_tier_names(found: values.Match, session: Surroundings) -> values.Match:
    """Puts in the cache's own names of its tiers."""
    named = {session.cache.tier_name(Tier(place)): tokens for place, tokens in enumerate(found.tokens_by_tier.values(), 1)}
    return dataclasses.replace(found, tokens_by_tier=named)


def match(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
          multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Match]:
    """Returns how many tokens of a prompt are cached now: in memory, as a new sequence would match
    them, and in each tier, including disk. It takes and promises nothing.

    `keys`: instead of tokens, the keys of the prompt's whole blocks (Namespace.keyed). All of them
    can match.
    Errors: INVALID_ARGUMENT, KEYS_AND_TOKENS, INVALID_KEY.
    """
    prefix = _Prefix(v1.MatchPrefixRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)

    def take(done: Any) -> values.Match:
        return values.Match(done.matched_tokens, _blocks(done.blocks), done.cached_tokens,
                            {Tier(place).name.lower(): count for place, count in enumerate(done.tokens_by_tier, 1)})

    return Call("match_prefix", v1.MatchPrefixRequest(**prefix.fields), take, complete=_with_tier_names, packed=prefix.packed,
                handles=lambda tokens_per_block: prefix.tokens // tokens_per_block + prefix.keys + 1)


def query_capacity(tokens: Tokens = (), *, max_new_tokens: int = 0, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                   multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Capacity]:
    """Returns how many blocks a prompt and `max_new_tokens` after it would take. It takes and
    promises nothing. An engine calls it to decide whether to start a request.

    `keys`: instead of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY.
    """
    prefix = _Prefix(v1.QueryCapacityRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    return Call("query_capacity", v1.QueryCapacityRequest(max_new_tokens=max_new_tokens, **prefix.fields), take_capacity, packed=prefix.packed)


def take_capacity(done: Any) -> values.Capacity:
    return values.Capacity(done.matched_tokens, tuple(
        values.WindowCapacity(window.window_size, window.blocks_now, window.blocks_to_completion, window.available_blocks,
                              window.quota_blocks if window.HasField("quota_blocks") else None,
                              window.quota_left_blocks if window.HasField("quota_left_blocks") else None)
        for window in done.windows))


def offload(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
            multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Moved]:
    """Moves the prefix's evictable blocks to the tier below the primary one, from its end up to the
    first block that is held.

    `keys`: instead of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    prefix = _Prefix(v1.OffloadPrefixRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    return Call("offload_prefix", v1.OffloadPrefixRequest(**prefix.fields), lambda done: values.Moved(done.blocks, done.ready_ticket),
                packed=prefix.packed)


def prefetch(tokens: Tokens = (), *, target: PrefetchTarget = PrefetchTarget.PRIMARY, deadline: float | None = None,
             namespace: Namespace | None = None, extra_token_ids: Tokens = (),
             multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Prefetched]:
    """Onboards the prefix's cached blocks from its beginning, as far as there is space: blocks in
    memory to the first tier, and blocks that are only on disk to the last memory tier. It does not
    wait. client.wait(found.ready_ticket) waits for the moves between memory tiers, and
    client.wait(found.fetch_ticket, lane=Lane.FETCH) for the disk.

    `target`: PrefetchTarget.MEMORY leaves blocks in memory where they are. `deadline`: seconds
    after which unfinished fetches are given up; fetched blocks stay. None: no deadline.
    `keys`: instead of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    # The default is not sent: an older daemon refuses fields that it does not know.
    said = None if target is PrefetchTarget.PRIMARY else int(target)
    prefix = _Prefix(v1.PrefetchPrefixRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    return Call("prefetch_prefix",
                v1.PrefetchPrefixRequest(target=said, deadline_ms=values.optional_milliseconds(deadline), **prefix.fields),
                lambda done: values.Prefetched(done.blocks, done.ready_ticket, done.matched_tokens, done.fetched_blocks,
                                               done.fetch_ticket), packed=prefix.packed)


def unpin(pin_id: int) -> Call[None]:
    """Ends a pin of any session. A tenant's client can end only pins of that tenant's sessions.

    Errors: UNKNOWN_PIN (never made, ended, its lease is over, its prefix has left the cache, or it
    is another tenant's).
    """
    return Call("unpin_prefix", v1.UnpinPrefixRequest(pin_id=pin_id), lambda done: None)


def list_pins() -> Call[values.Pins]:
    """Returns the pins of all sessions. A tenant's client gets the pins of that tenant's
    sessions."""
    return Call("list_pins", v1.ListPinsRequest(), lambda done: values.Pins(
        tuple(values.PinInfo(pin.pin_id, pin.client_name, Namespace.take(pin.namespace), pin.pinned_tokens, pin.blocks,
                             values.utc(pin.expire_time) if pin.HasField("expire_time") else None, pin.tenant) for pin in done.pins),
        done.pinned_blocks, done.budget_blocks), handles=_description)


def invalidate(tokens: Tokens = (), *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
               multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Invalidated]:
    """Removes every cached block whose content, from the namespace's root on, begins with the
    prefix. Without tokens and keys it removes the whole namespace (Namespace(keyed=True): the keyed
    one). Sequences keep the blocks that they hold, but these are no longer shared. Pins of removed
    blocks end.
    Returns how many blocks left the cache: an integer with a `durable_ticket`. After
    client.wait(removed.durable_ticket, lane=Lane.BACKUP) none of them comes back from disk.

    Errors: INVALID_ARGUMENT, PERMISSION_DENIED (a tenant that shares: its published blocks belong
    to all sharing tenants).
    """
    prefix = _Prefix(v1.InvalidatePrefixRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    return Call("invalidate_prefix", v1.InvalidatePrefixRequest(**prefix.fields),
                lambda done: values.Invalidated(done.removed_blocks, done.durable_ticket), packed=prefix.packed)


def set_retention(tokens: Tokens, retention: Sequence[Retention], *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                  multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[int]:
    """Gives each cached block of the prefix the priority and the duration of the range that holds
    its first token. Returns the number of blocks over all windows.

    `keys`: instead of tokens, see Namespace.keyed.
    Errors: INVALID_COUNT (no tokens and no keys), KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT
    (ranges that are not ascending, or a priority above 100).
    """
    prefix = _Prefix(v1.SetRetentionRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    request = v1.SetRetentionRequest(retention=[part.message() for part in retention], **prefix.fields)
    return Call("set_retention", request, lambda done: int(done.blocks), packed=prefix.packed)


def _with_memory(pools: tuple[Pool, ...], session: Surroundings) -> tuple[Pool, ...]:
    return tuple(dataclasses.replace(pool, map_socket=session.map_socket) for pool in pools)


def pools(*, tier: Tier | None = None, window_size: int | None = None) -> Call[tuple[Pool, ...]]:
    """Returns the pools, or those of a tier or a window: where their bytes are and how they are
    laid out. Maps nothing yet."""
    return Call("describe_pools", v1.DescribePoolsRequest(), lambda done: tuple(
        Pool.take(pool) for pool in done.pools
        if tier in (None, pool.tier) and window_size in (None, pool.window_size)), complete=_with_memory, handles=_description)


def wait_for_ticket(ticket: int, *, lane: Lane = Lane.MEMORY) -> Call[int]:
    """Waits in the daemon until everything in the lane up to the ticket has ended, at most 5
    seconds for all waits of a batch. The operations after it run then, whether the wait succeeded
    or not. Returns the lane's last completed ticket.

    `lane`: the lane that gave the ticket. Every `ready_ticket` is of Lane.MEMORY.
    Errors: UNKNOWN_TICKET (the lane has not given it yet), WAIT_TIMEOUT, DRAINING.
    """
    return Call("wait_for_ticket", v1.WaitForTicketRequest(ticket=ticket, lane=int(lane)), lambda done: int(done.completed_ticket))


def pin(tokens: Tokens = (), *, lease: float | None = None, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
        multimodal_items: Sequence[values.MultimodalItem] = (), keys: Keys = ()) -> Call[values.Pinned]:
    """Protects the prefix's cached blocks, in any tier, from eviction until it is unpinned or until
    `lease` seconds are over. In a sliding window it pins only the blocks that the prefix's end
    needs. A `with` block ends the pin at its end. Without one, the pin outlives its session. It
    ends as a whole, with an Updated event, when one of its blocks leaves the cache. Pins of a
    tenant's client always end: the daemon's sessions.max_pin_lease is the longest lease, and the
    default one.

    `keys`: instead of tokens, see Namespace.keyed.
    Errors: PIN_BUDGET_EXCEEDED (nothing is pinned), INVALID_COUNT (no tokens and no keys),
    KEYS_AND_TOKENS, INVALID_KEY, INVALID_ARGUMENT.
    """
    prefix = _Prefix(v1.PinPrefixRequest, tokens, namespace, extra_token_ids, multimodal_items, keys)
    return Call("pin_prefix", v1.PinPrefixRequest(lease_ms=values.optional_milliseconds(lease), **prefix.fields),
                lambda done: values.Pinned(done.pin_id, done.pinned_tokens, done.blocks), packed=prefix.packed)
