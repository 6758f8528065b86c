"""The operations that belong to no sequence: raw blocks, prefixes, pins, pools. Each function is a method of Client, of aio.Client and of
the batches of both: one signature and one documentation for all."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from pagoda import values
from pagoda._call import Call
from pagoda._contract import v1
from pagoda._map_socket import MapSocket
from pagoda.pools import Pool
from pagoda.values import Block, Namespace, Retention, Tier, Tokens, token_list


def _wire(namespace: Namespace | None) -> Any:
    return None if namespace is None else namespace.message()


def _extras(extra_token_ids: Tokens, multimodal_items: Sequence[values.MultimodalItem]) -> dict[str, Any]:
    """What names a prefix besides its tokens, as fields of a request."""
    return {"extra_token_ids": token_list(extra_token_ids), "multimodal_items": [item.message() for item in multimodal_items]}


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


def match(tokens: Tokens, *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
          multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[values.Match]:
    """How many tokens of a prompt are cached now, as opening a sequence with it would match. Takes nothing, promises nothing.

    Errors: INVALID_ARGUMENT.
    """
    ids = token_list(tokens)
    request = v1.MatchPrefixRequest(tokens=ids, namespace=_wire(namespace), **_extras(extra_token_ids, multimodal_items))
    return Call("match_prefix", request,
                lambda done: values.Match(done.matched_tokens, tuple(Block(block.block_id, block.generation, block.slot_index)
                                                                     for block in done.blocks)),
                handles=lambda tokens_per_block: len(ids) // tokens_per_block + 1)


def query_capacity(tokens: Tokens, *, max_new_tokens: int = 0, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                   multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[values.Capacity]:
    """How many blocks a prompt and `max_new_tokens` behind it would take. Takes nothing, promises nothing.

    Errors: INVALID_COUNT (no tokens).
    """
    return Call("query_capacity", v1.QueryCapacityRequest(tokens=token_list(tokens), max_new_tokens=max_new_tokens,
                                                          namespace=_wire(namespace), **_extras(extra_token_ids, multimodal_items)),
                take_capacity)


def take_capacity(done: Any) -> values.Capacity:
    return values.Capacity(done.matched_tokens, tuple(
        values.WindowCapacity(window.window_size, window.blocks_now, window.blocks_to_completion, window.available_blocks,
                              window.quota_blocks if window.HasField("quota_blocks") else None,
                              window.quota_left_blocks if window.HasField("quota_left_blocks") else None)
        for window in done.windows))


def offload(tokens: Tokens, *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
            multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[values.Moved]:
    """Moves the prefix's cached blocks that nobody holds down to the secondary tier, from the end up to the first that is held.

    Errors: INVALID_COUNT (no tokens), INVALID_ARGUMENT.
    """
    return Call("offload_prefix", v1.OffloadPrefixRequest(tokens=token_list(tokens), namespace=_wire(namespace),
                                                          **_extras(extra_token_ids, multimodal_items)),
                lambda done: values.Moved(done.blocks, done.ready_ticket))


def prefetch(tokens: Tokens, *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
             multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[values.Prefetched]:
    """Moves the prefix's cached blocks up to the primary tier, from the beginning, as far as room can be made.

    Errors: INVALID_COUNT (no tokens), INVALID_ARGUMENT.
    """
    return Call("prefetch_prefix", v1.PrefetchPrefixRequest(tokens=token_list(tokens), namespace=_wire(namespace),
                                                            **_extras(extra_token_ids, multimodal_items)),
                lambda done: values.Prefetched(done.blocks, done.ready_ticket, done.matched_tokens))


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


def invalidate(tokens: Tokens, *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
               multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[int]:
    """Forgets every cached block whose content, from the namespace's root on, begins with the prefix; without tokens the whole namespace.
    Sequences keep the blocks that they hold, which are not shared any more; pins of them end. Returns how many blocks left the cache.

    Errors: INVALID_ARGUMENT, PERMISSION_DENIED (a tenant that shares: what it publishes belongs to all that share).
    """
    return Call("invalidate_prefix", v1.InvalidatePrefixRequest(tokens=token_list(tokens), namespace=_wire(namespace),
                                                                **_extras(extra_token_ids, multimodal_items)),
                lambda done: int(done.removed_blocks))


def set_retention(tokens: Tokens, retention: Sequence[Retention], *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                  multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[int]:
    """Gives the prefix's cached blocks the priority and the duration of the range that holds their first token. Returns how many blocks,
    over all windows.

    Errors: INVALID_COUNT (no tokens), INVALID_ARGUMENT (ranges that are not ascending, or a priority above 100).
    """
    return Call("set_retention", v1.SetRetentionRequest(tokens=token_list(tokens), namespace=_wire(namespace),
                                                        retention=[part.message() for part in retention],
                                                        **_extras(extra_token_ids, multimodal_items)),
                lambda done: int(done.blocks))


def _with_memory(pools: tuple[Pool, ...], map_socket: MapSocket) -> tuple[Pool, ...]:
    return tuple(dataclasses.replace(pool, map_socket=map_socket) for pool in pools)


def pools(*, tier: Tier | None = None, window_size: int | None = None) -> Call[tuple[Pool, ...]]:
    """The pools, or those of a tier or a window: where their bytes are, and how they are laid out. Nothing is mapped yet."""
    return Call("describe_pools", v1.DescribePoolsRequest(), lambda done: tuple(
        Pool.take(pool) for pool in done.pools
        if tier in (None, pool.tier) and window_size in (None, pool.window_size)), with_memory=_with_memory, handles=_description)


def wait_for_ticket(ticket: int) -> Call[int]:
    """Waits in the daemon until every copy up to the ticket has ended, at most 5 seconds for all waits of a batch; the operations behind it
    run after that, whether it succeeded or not. Returns the last ticket that is done.

    Errors: UNKNOWN_TICKET (no copy has it yet), WAIT_TIMEOUT, DRAINING.
    """
    return Call("wait_for_ticket", v1.WaitForTicketRequest(ticket=ticket), lambda done: int(done.completed_ticket))


def pin(tokens: Tokens, *, lease: float | None = None, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
        multimodal_items: Sequence[values.MultimodalItem] = ()) -> Call[values.Pinned]:
    """Keeps the prefix's cached blocks from being evicted, in whichever tier, until it is unpinned or until `lease` seconds are over; in a
    sliding window only those that its end needs. It is unpinned at the end of a `with` block; without one it outlives its session. It ends
    as a whole, with an Updated event, when one of its blocks leaves the cache. A tenant's client has no pins without end: the daemon's
    sessions.max_pin_lease is the longest lease, and the one of a pin without.

    Errors: PIN_BUDGET_EXCEEDED (nothing is pinned), INVALID_COUNT (no tokens), INVALID_ARGUMENT.
    """
    request = v1.PinPrefixRequest(tokens=token_list(tokens), namespace=_wire(namespace),
                                  lease_ms=values.optional_milliseconds(lease), **_extras(extra_token_ids, multimodal_items))
    return Call("pin_prefix", request, lambda done: values.Pinned(done.pin_id, done.pinned_tokens, done.blocks))
