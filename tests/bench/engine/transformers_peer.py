"""The speed of Hugging Face transformers on a checkpoint, to compare with engine_bench.
`deploy/bench.sh engine` runs it.

  python3 tests/bench/engine/transformers_peer.py MODEL_DIR --threads 2 --context 512 --prompt 2048

Prints one JSON object: tokens per second of one sequence that decodes after `context` tokens, and
of a prompt of `prompt` tokens that is processed at once. The numbers are medians, in bf16, in eager
mode with PyTorch's own attention (sdpa), which is the default of transformers. Needs torch and
transformers.
"""

import argparse
import json
import statistics
import time

import torch
import transformers

REPETITIONS = 5
DECODE_STEPS = 8


def seconds(work):
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def prefill(model, tokens):
    """The cache behind the tokens; the logits of the last one alone are computed."""
    return model(tokens, use_cache=True, logits_to_keep=1).past_key_values


def decode_rate(model, tokens):
    """Tokens per second of steps that append one token. The cache is cut back after each round."""
    context = tokens.shape[1]
    cache = prefill(model, tokens[:, :context - 1])
    next_token = tokens[:, -1:]

    def steps():
        for _ in range(DECODE_STEPS):
            model(next_token, past_key_values=cache, use_cache=True, logits_to_keep=1)

    rates = []
    for _ in range(1 + REPETITIONS):
        rates.append(DECODE_STEPS / seconds(steps))
        cache.crop(-DECODE_STEPS)
    return statistics.median(rates[1:])


def prefill_rate(model, tokens):
    prefill(model, tokens)
    return tokens.shape[1] / statistics.median(seconds(lambda: prefill(model, tokens)) for _ in range(REPETITIONS))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=2048)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model_dir, dtype=torch.bfloat16).eval()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.config.vocab_size, (1, max(options.context, options.prompt)), generator=generator)
    with torch.inference_mode():
        print(json.dumps({
            "decode_tokens_per_second": decode_rate(model, tokens[:, :options.context]),
            "prefill_tokens_per_second": prefill_rate(model, tokens[:, :options.prompt]),
            "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
        }))


if __name__ == "__main__":
    main()
