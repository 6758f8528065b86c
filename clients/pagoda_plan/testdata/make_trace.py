#!/usr/bin/env python3
"""Writes chat.jsonl: a small multi-turn chat trace in Mooncake's JSON Lines format.

    python3 make_trace.py > chat.jsonl

Many conversations share a few system prompts. Each turn's prompt is the conversation so far and new
text. Each line is one object: `timestamp` in milliseconds, `input_length` and `output_length` in
tokens, and `hash_ids`, one for each 512 tokens of the input. The same seed gives the same file.
"""

import json
import random

SEED = 20260101
BLOCK_TOKENS = 512
CONVERSATIONS = 90
SYSTEM_PROMPT_BLOCKS = [3, 5, 8]  # One entry for each system prompt.
MEAN_TURNS = 3.4
MEAN_THINKING_MS = 20_000


class IdSource:
    """New ids for blocks."""

    def __init__(self):
        self.next_id = 0

    def take(self, count):
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        return ids


def conversation(rng, ids, start_ms, system_prompt):
    """The requests of one conversation, each with the whole history as its prompt."""
    history = list(system_prompt)
    time_ms = start_ms
    for _ in range(1 + int(rng.expovariate(1 / (MEAN_TURNS - 1)))):
        history = history + ids.take(1 + int(rng.expovariate(1 / 3)))
        output_length = rng.randrange(32, 512)
        yield {
            "timestamp": time_ms,
            # The last block of a prompt is rarely full.
            "input_length": len(history) * BLOCK_TOKENS - rng.randrange(BLOCK_TOKENS),
            "output_length": output_length,
            "hash_ids": history,
        }
        time_ms += 1_000 + output_length * 20 + int(rng.expovariate(1 / MEAN_THINKING_MS))


def main():
    rng = random.Random(SEED)
    ids = IdSource()
    system_prompts = [ids.take(blocks) for blocks in SYSTEM_PROMPT_BLOCKS]
    requests = []
    start_ms = 0
    for _ in range(CONVERSATIONS):
        requests += conversation(rng, ids, start_ms, rng.choice(system_prompts))
        start_ms += int(rng.expovariate(1 / 3_000))
    requests.sort(key=lambda request: request["timestamp"])
    for request in requests:
        print(json.dumps(request))


if __name__ == "__main__":
    main()
