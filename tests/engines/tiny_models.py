"""Small models with random weights, made by transformers' own classes: real architectures without a
download.

Each is a folder that vLLM, SGLang and transformers load. The weights come from the seed, so two
runs make the same model.
"""

import pathlib

import torch
import transformers

MAX_TOKENS = 4096
VOCABULARY = 512
# The scale of the weights: large enough that the next token depends on all tokens before it, and
# not only on the last one.
SPREAD = 0.2


def _qwen3():
    return transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=MAX_TOKENS, tie_word_embeddings=False, initializer_range=SPREAD)


def _qwen3_experts():
    """A mixture of four experts."""
    return transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=False, initializer_range=SPREAD)


def _qwen3_half_billion():
    """0.5 B parameters, for times."""
    return transformers.Qwen3Config(
        vocab_size=32_000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, max_position_embeddings=MAX_TOKENS, tie_word_embeddings=True)


def _gemma3():
    """Five layers with sliding windows and one with full attention."""
    return transformers.Gemma3TextConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=MAX_TOKENS, sliding_window=64, query_pre_attn_scalar=32, pad_token_id=0,
        tie_word_embeddings=False, initializer_range=SPREAD,
        layer_types=["sliding_attention"] * 5 + ["full_attention"])


def _deepseek():
    """Multi-head latent attention."""
    return transformers.DeepseekV2Config(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=32, qk_rope_head_dim=64, v_head_dim=32,
        n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=3, max_position_embeddings=MAX_TOKENS,
        initializer_range=0.1)


MODELS = {
    "qwen3": (_qwen3, 1),
    "qwen3-other": (_qwen3, 2),  # The same shape with other weights.
    "qwen3-0.5b": (_qwen3_half_billion, 1),
    "qwen3-experts": (_qwen3_experts, 1),
    "gemma3": (_gemma3, 1),
    "deepseek": (_deepseek, 1),
}


def make(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Makes the model of this name in `folder`, where it is not there, and returns its path."""
    path = folder / name
    if (path / "config.json").is_file():
        return path
    config, seed = MODELS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16)
    unfinished = folder / f".{name}"
    model.save_pretrained(unfinished)
    unfinished.rename(path)
    return path
