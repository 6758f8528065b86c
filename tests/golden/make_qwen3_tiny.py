"""Makes the tiny Qwen3 checkpoints of the golden tests, and what Hugging Face transformers answers with them.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers safetensors
    /tmp/golden/bin/python tests/golden/make_qwen3_tiny.py [OUTPUT_FOLDER]

Without OUTPUT_FOLDER the folders beside this file are written anew. The weights are drawn from a seed, so that the same versions of
torch and transformers give the same files. Each folder gets

    config.json, *.safetensors    as transformers saves them
    expected.json                 the prompt, the greedy ids, the versions used
    expected.safetensors          "logits", [steps][vocab_size] fp32: those that each greedy id was chosen from
"""

import dataclasses
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

PROMPT_TOKENS = 64
NEW_TOKENS = 20
# Far above the differences between implementations, so that equal ids are no luck.
SMALLEST_GAP = 0.02
SEED = 20250


@dataclasses.dataclass
class Variant:
    name: str
    config: dict
    dtype: torch.dtype
    max_shard_size: str


VARIANTS = [
    # Tied head, fp32, one file; head_dim is not hidden_size / num_attention_heads, as in the real models.
    Variant(
        name="qwen3_tiny",
        config=dict(
            vocab_size=512,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rope_theta=1000000.0,
            tie_word_embeddings=True,
        ),
        dtype=torch.float32,
        max_shard_size="1GB",
    ),
    # Untied head, bf16, several files with an index; one KV head for four query heads.
    Variant(
        name="qwen3_tiny_untied_bf16",
        config=dict(
            vocab_size=256,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=16,
            rope_theta=10000.0,
            tie_word_embeddings=False,
        ),
        dtype=torch.bfloat16,
        max_shard_size="60KB",
    ),
]


def make_model(variant):
    """A model with random weights, already rounded to the variant's dtype, that computes in fp32."""
    config = transformers.Qwen3Config(
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        hidden_act="silu",
        attention_bias=False,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="eager",
        **variant.config,
    )
    model = transformers.Qwen3ForCausalLM(config).to(torch.float32).eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:  # The scales of the norms: near one, none like the other.
                parameter.copy_(1 + 0.2 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                parameter.copy_(0.3 * noise)
            else:  # A matrix keeps the variance of what it multiplies, and a little more.
                parameter.copy_(1.5 * noise / parameter.shape[1] ** 0.5)
            parameter.copy_(parameter.to(variant.dtype).to(torch.float32))
    return model


@torch.no_grad()
def greedy(model, prompt):
    """The greedy ids and the logits that each was chosen from; the whole text goes through the model in each step, without a cache."""
    ids = list(prompt)
    logits = []
    for _ in range(NEW_TOKENS):
        logits.append(model(torch.tensor([ids]), use_cache=False).logits[0, -1])
        ids.append(int(logits[-1].argmax()))
    return ids[len(prompt):], torch.stack(logits)


def check_worth(ids, logits):
    """Stops where the answers would not tell a right engine from a wrong one."""
    best = logits.topk(2).values
    gap = (best[:, 0] - best[:, 1]).min().item()
    assert gap > SMALLEST_GAP, f"the best two logits are only {gap} apart"
    assert len(set(ids)) >= 10, f"the answer repeats itself: {ids}"
    return gap


def write(variant, folder):
    model = make_model(variant)
    generator = torch.Generator().manual_seed(SEED + 1)
    prompt = torch.randint(0, model.config.vocab_size, (PROMPT_TOKENS,), generator=generator).tolist()
    ids, logits = greedy(model, prompt)
    gap = check_worth(ids, logits)

    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.safetensors"), *folder.glob("*.json")]:
        old.unlink()
    model.to(variant.dtype).save_pretrained(folder, max_shard_size=variant.max_shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    expected = {
        "prompt": prompt,
        "ids": ids,
        "smallest_gap": gap,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    safetensors.torch.save_file({"logits": logits.contiguous()}, folder / "expected.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size} bytes, smallest gap {gap:.3f}, ids {ids}")


def main():
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    for variant in VARIANTS:
        write(variant, output / variant.name)


if __name__ == "__main__":
    main()
