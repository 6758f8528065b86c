"""Beam searches by Hugging Face transformers, and whether rounding could change their answers."""

import warnings

import torch
import transformers

NEW_TOKENS = 16
PROMPT_LENGTHS = (9, 40)
# The log probabilities of all tokens are moved by up to this much. It is five times the tolerance
# of the tests.
NOISE = 5e-4
NOISY_RUNS = 3
# (beams, answers, length penalty, early stopping, stop tokens)
SEARCHES = [
    (2, 2, 1.0, False, 0),
    (4, 4, 1.0, False, 0),
    (8, 8, 0.6, False, 0),
    (2, 2, 1.0, True, 2),
    (4, 3, 0.6, False, 2),
    (4, 4, 1.0, False, 2),
    (4, 4, 2.0, True, 3),
    (8, 8, 1.0, False, 4),
    (8, 5, 2.0, False, 4),
]


class Noise(transformers.LogitsProcessor):
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids, scores):
        return scores + NOISE * (2 * torch.rand(scores.shape, generator=self.generator) - 1)


@torch.no_grad()
def search(network, prompt, options, stops, processors=()):
    """The answers, best first, each without the padding behind its end; and their scores."""
    beams, answers, penalty, early, _ = options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = network.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), num_beams=beams, num_return_sequences=answers,
            length_penalty=penalty, early_stopping=early, do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=stops or None, pad_token_id=0,
            logits_processor=transformers.LogitsProcessorList(processors), return_dict_in_generate=True, output_scores=True)
    ids = [sequence[len(prompt):].tolist() for sequence in out.sequences]
    ends = [min((i for i, token in enumerate(answer) if token in stops), default=len(answer) - 1) for answer in ids]
    return [answer[:end + 1] for answer, end in zip(ids, ends)], out.sequences_scores.tolist()


def stops_of(network, prompt, options):
    """Tokens that end some answers early: tokens of the best answers without stop tokens."""
    beams, answers, _, _, count = options
    if count == 0:
        return []
    free, _ = search(network, prompt, (beams, beams, 1.0, False, 0), [])
    stops = []
    for place in (3, 7, 11, 5, 9):
        for answer in free:
            if answer[place] not in stops:
                stops.append(answer[place])
                break
    return sorted(stops[:count])


def is_worth(network, prompt, options, stops, ids):
    """False if rounding could change the answer, or if it has stop tokens and none ended early. A
    penalty above 1 prefers long answers so much that this need not be."""
    if stops and options[2] <= 1 and all(len(answer) == NEW_TOKENS for answer in ids):
        return False
    if any(len(answer) >= 8 and len(set(answer)) < 3 for answer in ids):
        return False
    return all(search(network, prompt, options, stops, [Noise(seed)])[0] == ids for seed in range(NOISY_RUNS))


def case(network, vocabulary, length, options, seed):
    for attempt in range(400):
        generator = torch.Generator().manual_seed(seed + attempt)
        prompt = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
        stops = stops_of(network, prompt, options)
        ids, scores = search(network, prompt, options, stops)
        if not is_worth(network, prompt, options, stops, ids):
            continue
        beams, _, penalty, early, _ = options
        return {"prompt": prompt, "beam_width": beams, "length_penalty": penalty, "early_stopping": early, "stop_tokens": stops,
                "max_new_tokens": NEW_TOKENS, "ids": ids, "scores": [round(score, 6) for score in scores]}
    raise AssertionError(f"no prompt of {length} tokens has a usable search {options}")


def cases(model, network, seed):
    lengths = [PROMPT_LENGTHS[i % len(PROMPT_LENGTHS)] for i in range(len(SEARCHES))]
    return [case(network, model.config["vocab_size"], length, options, seed + 1000 * i)
            for i, (length, options) in enumerate(zip(lengths, SEARCHES))]
