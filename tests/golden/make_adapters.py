"""Makes LoRA adapters for the tiny models, and the answers of Hugging Face's peft with them. See
README.md.

    python3 -m venv /tmp/golden
    /tmp/golden/bin/pip install torch transformers safetensors gguf peft
    /tmp/golden/bin/python tests/golden/make_adapters.py [--output FOLDER] [NAME...]

Makes all of them without NAMEs. FOLDER is adapters/ beside this file without --output. The same
versions of the packages give the same files.
"""

import argparse
import dataclasses
import json
import pathlib

import golden_answers
import golden_models
import peft
import safetensors.torch
import torch
import transformers

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
# The logits of so many steps of each answer are kept; the others have only their ids.
KEPT_STEPS = 4


@dataclasses.dataclass
class Adapter:
    name: str
    model: str  # A name of golden_models.
    config: dict  # The arguments of peft.LoraConfig.
    dtype: torch.dtype
    seed: int


ADAPTERS = [
    # Every module, plain scaling.
    Adapter(
        name="qwen3_all",
        model="qwen3_tiny",
        config=dict(r=4, lora_alpha=6, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
        dtype=torch.float32,
        seed=1,
    ),
    # Some modules, with ranks and scales of their own; scaling by the root of the rank; bf16.
    Adapter(
        name="qwen3_attention",
        model="qwen3_tiny",
        config=dict(
            r=2, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "self_attn.v_proj"], rank_pattern={"layers.1.self_attn.q_proj": 5},
            alpha_pattern={"v_proj": 5},
        ),
        dtype=torch.bfloat16,
        seed=2,
    ),
    # Two of three layers, and only the outputs of attention and MLP; fp16.
    Adapter(
        name="gemma3_outputs",
        model="gemma3_tiny",
        config=dict(r=3, lora_alpha=9, target_modules=["o_proj", "down_proj"], layers_to_transform=[0, 2]),
        dtype=torch.float16,
        seed=3,
    ),
]


def base_network(adapter):
    model = next(model for model in golden_models.MODELS if model.name == adapter.model)
    network = golden_models.build(model)
    golden_models.draw_weights(model, network)
    return model, network


@torch.no_grad()
def adapted_network(adapter, network, **changes):
    """The model with the adapter, whose random weights are rounded to its dtype."""
    adapted = peft.get_peft_model(network, peft.LoraConfig(task_type="CAUSAL_LM", **{**adapter.config, **changes})).eval()
    generator = torch.Generator().manual_seed(golden_models.SEED + adapter.seed)
    for name, parameter in sorted(adapted.named_parameters()):
        if "lora_" not in name:
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_((0.6 * noise / parameter.shape[1] ** 0.5).to(adapter.dtype).to(torch.float32))
    return adapted


def write_adapter(adapter, adapted, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = adapter.model
    config["target_modules"] = adapter.config["target_modules"]  # peft writes them in any order.
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    weights = folder / "adapter_model.safetensors"
    tensors = {name: tensor.to(adapter.dtype).contiguous() for name, tensor in safetensors.torch.load_file(weights).items()}
    safetensors.torch.save_file(tensors, weights, metadata={"format": "pt"})


def check_effect(adapter, cases):
    """Fails if the base model, or a slightly wrong scale, would go unnoticed."""
    _, network = base_network(adapter)
    for prompt, ids, logits in cases:
        base = golden_answers.teacher_forced(network, prompt, ids)
        assert base.argmax(-1).tolist() != ids, "the base model gives the same answer"
    alpha = adapter.config["lora_alpha"]
    wrong = adapted_network(adapter, network, lora_alpha=alpha * 1.02)
    effect = max((golden_answers.teacher_forced(wrong, prompt, ids) - logits).abs().max().item() for prompt, ids, logits in cases)
    assert effect > golden_answers.SMALLEST_EFFECT, f"with a scale 2 % larger the logits move by {effect} only"
    print(f"  a scale 2 % larger: the logits move by {effect:.3f}")


def write(adapter, output):
    folder = output / adapter.name
    print(folder)
    model, network = base_network(adapter)
    adapted = adapted_network(adapter, network)
    write_adapter(adapter, adapted, folder)
    lengths = golden_answers.PROMPT_LENGTHS
    seed = golden_models.SEED + 100000 * adapter.seed
    cases = [golden_answers.answer(adapted, length, model, seed + 1000 * i) for i, length in enumerate(lengths)]
    check_effect(adapter, cases)
    entries = [{"prompt": prompt, "ids": ids, "smallest_gap": golden_answers.gap_of(logits)} for prompt, ids, logits in cases]
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    (folder / "cases.json").write_text(f'{{\n "cases": [\n  {lines}\n ],\n "versions": {json.dumps(VERSIONS)}\n}}\n')
    safetensors.torch.save_file({"logits": torch.stack([logits[:KEPT_STEPS] for _, _, logits in cases])}, folder / "cases.safetensors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent / "adapters")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for adapter in ADAPTERS:
        if not arguments.names or adapter.name in arguments.names:
            write(adapter, arguments.output)


if __name__ == "__main__":
    main()
