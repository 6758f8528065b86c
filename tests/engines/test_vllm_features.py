"""A real vLLM with draft tokens and with adapters: the same tokens as without Pagoda, and hits.

Pipeline stages are not here: vLLM's runner for CPUs fails an assertion of its own with them.
"""

import json

import pytest
import torch
from engine_processes import Daemon, Vllm, connector

pytest.importorskip("vllm", reason="vLLM is not installed")

from safetensors.torch import save_file

BLOCK = 32


def whole(prompts):
    return [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def one_by_one(vllm, prompts, **options):
    answers = [vllm.generate([prompt], **options) for prompt in prompts]
    return [one["tokens"][0] for one in answers], [one["cached"][0] for one in answers]


def test_draft_tokens(models, prompts, tmp_path):
    """Draft tokens guessed from the prompt: vLLM's V1 runner saves after it has reported. Rejected
    draft tokens are not cached."""
    first, second = prompts(40, 50)
    asked = [first * 5, second * 3 + [7] * 50, *prompts(100)]
    draft_tokens = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
    with Vllm(tmp_path, models("qwen3"), name="plain") as vllm:
        expected, _ = one_by_one(vllm, asked, max_tokens=80)
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon),
                                                     speculative_config=draft_tokens) as vllm:
        assert one_by_one(vllm, asked, max_tokens=80) == (expected, [0] * len(asked))
        assert vllm.reset()
        assert one_by_one(vllm, asked, max_tokens=80) == (expected, whole(asked))
        # The KV saved with draft tokens is right: longer prompts give the same tokens.
        longer = [prompt + tokens for prompt, tokens in zip(asked, expected)]
        assert vllm.reset()
        with_cache, cached = one_by_one(vllm, longer, max_tokens=8)
        assert all(hit >= len(prompt) + 80 - 2 * BLOCK for hit, prompt in zip(cached, asked))
    with Vllm(tmp_path, models("qwen3"), name="plain") as vllm:
        assert one_by_one(vllm, longer, max_tokens=8)[0] == with_cache


def adapter(folder, seed):
    """A LoRA of rank 4 for the tiny Qwen 3, of random weights."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "bias": "none", "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny"}))
    torch.manual_seed(seed)
    weights = {}
    for layer in range(4):
        for name, size in (("q_proj", 128), ("v_proj", 64)):
            where = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{where}.lora_A.weight"] = torch.randn(4, 64)
            weights[f"{where}.lora_B.weight"] = torch.randn(size, 4)
    save_file(weights, folder / "adapter_model.safetensors")
    return {"name": folder.name, "path": str(folder)}


def test_adapters_share_nothing(models, prompts, tmp_path):
    asked = prompts(100, 200)
    first, second = adapter(tmp_path / "first", 1), adapter(tmp_path / "second", 2)
    with Daemon(tmp_path / "daemon") as daemon:
        def run(name, one):
            with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), enable_lora=True, max_lora_rank=8, name=name) as vllm:
                return one_by_one(vllm, asked, adapter=one)

        base, _ = run("base", None)
        tuned, cached = run("tuned", first)
        assert cached == [0, 0] and tuned != base
        # The engine gives another adapter the same number.
        assert run("other", second)[1] == [0, 0]
        assert run("again", first) == (tuned, whole(asked))
