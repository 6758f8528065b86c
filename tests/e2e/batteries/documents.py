"""Prompts whose KV any client can check. A token's KV is a number made of the token and of all
tokens before it, for every layer, head and place."""

import random
import zlib

import numpy as np

COUNT = 48
TOKENS = 46
# FAMILY documents in a row share their first COMMON_TOKENS tokens.
FAMILY = 4
COMMON_TOKENS = 18


def tokens(document):
    """The tokens of a document."""
    common, own = (random.Random(f"{kind} {seed}") for kind, seed in (("family", document // FAMILY), ("document", document)))
    return [common.randrange(50_000) for _ in range(COMMON_TOKENS)] + [own.randrange(50_000) for _ in range(TOKENS - COMMON_TOKENS)]


def relative(document, dice):
    """A document that begins alike."""
    return document // FAMILY * FAMILY + dice.randrange(FAMILY)


def values(of):
    """The KV of tokens from a sequence's start, one number for each. float32 represents each number
    exactly."""
    chained, found = 0, []
    for token in of:
        chained = zlib.crc32(token.to_bytes(4, "little"), chained)
        found.append(chained >> 8)
    return np.array(found, np.float32)


def write(kv, slots, known, start, end):
    """Writes the KV of the tokens [start, end) of a sequence, whose values are `known`, into the
    slots of its block table."""
    tokens_per_block = kv.shape[4]
    for position in range(start, end):
        kv[slots[position // tokens_per_block], :, :, :, position % tokens_per_block, :] = known[position]


def is_written(kv, slots, known, start, end):
    """Whether that is what lies there."""
    tokens_per_block = kv.shape[4]
    return all((kv[slots[position // tokens_per_block], :, :, :, position % tokens_per_block, :] == known[position]).all()
               for position in range(start, end))
