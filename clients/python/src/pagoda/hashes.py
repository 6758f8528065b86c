"""The published hashes of a prompt's blocks. A router compares them with the hashes of events.
events/README.md defines them."""

import dataclasses
import importlib
import struct
from collections.abc import Sequence
from typing import Any

from pagoda import _xxh3
from pagoda.values import Keys, MultimodalItem, Namespace, Tokens, extra_id_list, key_list, token_list


def _find_xxh3() -> Any:
    try:
        return importlib.import_module("xxhash").xxh3_64_intdigest
    except (ImportError, AttributeError):  # Not installed, or too old for XXH3.
        return _xxh3.xxh3_64_intdigest


_xxh3_64 = _find_xxh3()


def namespace_hash(namespace: Namespace | None = None) -> int:
    """The parent hash of the first block in a namespace."""
    if namespace is None or namespace == Namespace():
        return 0
    tenant = namespace.tenant.encode()
    flags = (namespace.lora_id is not None) + 2 * bool(tenant) + 4 * namespace.keyed
    name = struct.pack("<BQ", flags, namespace.lora_id or 0)
    if tenant:
        name += struct.pack("<I", len(tenant)) + tenant
    return int(_xxh3_64(name + namespace.cache_salt.encode(), seed=0))


def block_hashes(tokens: Tokens, tokens_per_block: int, *, namespace: Namespace | None = None, extra_token_ids: Tokens = (),
                 multimodal_items: Sequence[MultimodalItem] = ()) -> list[int]:
    """The hashes of a prompt's blocks, in order. The last block can be a tail. Each hash stands for
    its block and all blocks before it.

    The prompt's arguments are those of Client.sequence. Uses the package xxhash if it is installed,
    otherwise plain Python, a few microseconds per block.
    """
    ids, extra_ids = token_list(tokens), extra_id_list(extra_token_ids)
    if extra_ids and len(extra_ids) != len(ids):
        raise ValueError(f"{len(ids)} tokens have {len(extra_ids)} extra ids: give one per token, or none at all")
    hashes, parent = [], namespace_hash(namespace)
    packed = struct.pack(f"<{len(ids)}I", *ids)
    for start in range(0, len(ids), tokens_per_block):
        end = min(start + tokens_per_block, len(ids))
        data = packed[4 * start:4 * end]
        if any(extra_ids[start:end]):
            data += struct.pack(f"<B{end - start}Q", 1, *extra_ids[start:end])
        if multimodal_items:
            data += _parts(multimodal_items, start, end)
        parent = int(_xxh3_64(data, seed=parent))
        hashes.append(parent)
    return hashes


def key_hashes(keys: Keys, *, namespace: Namespace | None = None) -> list[int]:
    """The hashes of the blocks that these keys name, in order, in the keyed namespace of that name.
    ValueError: a key that does not have 1 to 64 bytes."""
    hashes, parent = [], namespace_hash(dataclasses.replace(namespace or Namespace(), keyed=True))
    for key in key_list(keys):
        if not 1 <= len(key) <= 64:
            raise ValueError(f"a key has {len(key)} bytes; 1 to 64 are allowed")
        parent = int(_xxh3_64(struct.pack("<I64s", len(key), key), seed=parent))
        hashes.append(parent)
    return hashes


def _parts(items: Sequence[MultimodalItem], start: int, end: int) -> bytes:
    """The parts of the items that the tokens [start, end) cover. Adjacent ranges of one item are
    merged into one part, so that the hash does not depend on how the item was described."""
    # First token in the block, length, first place in the item, digest.
    parts: list[tuple[int, int, int, bytes]] = []
    for item in sorted(items, key=lambda item: item.token_start):
        first, last = max(item.token_start, start), min(item.token_start + item.token_count, end)
        if first >= last:
            continue
        part = (first - start, last - first, item.item_offset + first - item.token_start, item.digest)
        if parts:
            begin, length, place, digest = parts[-1]
            if (begin + length, place + length, digest) == (part[0], part[2], part[3]):
                part = (begin, length + part[1], place, digest)
                parts.pop()
        parts.append(part)
    return b"".join(struct.pack("<BIII32s", 2, *part) for part in parts)
