"""A model's answers: greedy ids, their logits, and whether they distinguish a right engine from a
wrong one."""

import copy

import torch

NEW_TOKENS = 20
PROMPT_LENGTHS = (5, 33, 96, 200)
# A wrong configuration must change some logit by more than this: a hundred times the tests'
# tolerance.
SMALLEST_EFFECT = 0.01


@torch.no_grad()
def logits_of(network, ids):
    """The logits of every position; the whole text goes through the model, without a cache."""
    return network(torch.tensor([ids]), use_cache=False).logits[0].to(torch.float32)


def greedy(network, prompt, smallest_gap):
    """The greedy ids and the logits of each choice; stops at a near tie."""
    ids = list(prompt)
    logits = []
    for _ in range(NEW_TOKENS):
        logits.append(logits_of(network, ids)[-1])
        ids.append(int(logits[-1].argmax()))
        if gap_of(logits[-1]) <= smallest_gap:
            break
    return ids[len(prompt):], torch.stack(logits)


def gap_of(logits):
    best = logits.topk(2).values
    return (best[..., 0] - best[..., 1]).min().item()


def is_worth(ids, logits, smallest_gap):
    """False if the answer cannot distinguish a right engine from a wrong one: it has a near tie or
    repeats itself."""
    return gap_of(logits) > smallest_gap and len(set(ids)) >= 10


def answer(network, length, model, seed):
    """A random prompt of this length whose answer is_worth accepts: (prompt, ids, logits)."""
    for attempt in range(400):
        generator = torch.Generator().manual_seed(seed + attempt)
        prompt = torch.randint(0, model.config["vocab_size"], (length,), generator=generator).tolist()
        ids, logits = greedy(network, prompt, model.smallest_gap)
        if is_worth(ids, logits, model.smallest_gap) and keeps_in_lower_precision(network, prompt, ids, model):
            return prompt, ids, logits
    raise AssertionError(f"{model.name}: no prompt of {length} tokens has a usable answer")


def teacher_forced(network, prompt, ids):
    return logits_of(network, prompt + ids[:-1])[len(prompt) - 1:]


def keeps_in_lower_precision(network, prompt, ids, model):
    """True if the checkpoint's own dtype chooses the same ids."""
    if not model.lower_precision:
        return True
    return lower_precision_logits(network, prompt, ids, model).argmax(-1).tolist() == ids


def lower_precision_logits(network, prompt, ids, model):
    lower = copy.deepcopy(network)
    # Without the buffers, because transformers keeps rotary frequencies in fp32.
    for parameter in lower.parameters():
        parameter.data = parameter.data.to(model.dtype)
    return teacher_forced(lower, prompt, ids)


def check_wrong(model, network, build, cases):
    """Fails if a deliberately wrong configuration would go unnoticed."""
    for changes in model.wrong:
        other = build(model, **changes)
        other.load_state_dict(network.state_dict())
        effect = max((teacher_forced(other, prompt, ids) - logits).abs().max().item() for prompt, ids, logits in cases)
        assert effect > SMALLEST_EFFECT, f"{model.name}: with {changes} the logits move by {effect} only"
        print(f"  {changes}: the logits move by {effect:.3f}")
