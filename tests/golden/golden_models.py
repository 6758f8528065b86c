"""The tiny models: their shapes, their random weights, and Hugging Face transformers' models of
them."""

import copy
import dataclasses

import torch
import transformers

SEED = 20250


@dataclasses.dataclass
class Model:
    name: str
    family: str  # The names in transformers: FAMILYConfig and FAMILYForCausalLM.
    config: dict
    # The checkpoint's dtype. The weights are rounded to it before the model computes.
    dtype: torch.dtype = torch.float32
    max_shard_size: str = "1GB"
    architecture: str = ""  # The architecture in config.json, if it is not the family's.
    kv_heads: tuple = ()  # The number of each layer, if they differ.
    # The smallest gap between the best two logits. It is far above the differences between
    # implementations, so equal ids are not a coincidence.
    smallest_gap: float = 0.02
    lower_precision: bool = False  # Whether to compute also in the checkpoint's dtype; see README.md.
    mxfp4: bool = False  # Whether the experts are drawn in MXFP4; see golden_mxfp4.py.
    one_prompt: bool = False  # Whether to write also expected.*, with one prompt of 64 tokens.
    # Changes of the configuration that must give other logits: the model's special fields are left
    # out or slightly wrong.
    wrong: tuple = ()
    seed: int = SEED


QWEN3 = dict(
    max_position_embeddings=4096,
    rms_norm_eps=1e-6,
    hidden_act="silu",
    attention_bias=False,
    use_sliding_window=False,
)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
GEMMA3_ROPE = dict(
    full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
    sliding_attention=dict(rope_type="default", rope_theta=10000.0),
)
# Parts of the frequencies of each kind within 200 tokens; scores are scaled too.
DEEPSEEK_ROPE = dict(
    rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=8.0, beta_slow=1.0, mscale=0.7, mscale_all_dim=1.0, original_max_position_embeddings=64
)
GPT_OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=16.0, beta_fast=16.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=64)
# Short contexts have up to 32 tokens.
PHI3_ROPE = dict(
    rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
    long_factor=[1.0, 1.6, 3.0, 6.0, 12.0, 20.0], original_max_position_embeddings=32,
)
REAL_PHI3_ROPE = dict(
    rope_type="longrope", rope_theta=10000.0, factor=32.0, original_max_position_embeddings=4096,
    short_factor=[1.0 + 0.03125 * i for i in range(48)], long_factor=[1.0 + 0.03125 * i * i for i in range(48)],
)
REAL_DEEPSEEK_V3_ROPE = dict(
    rope_type="yarn", rope_theta=10000.0, factor=40.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=4096
)
REAL_GPT_OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096)
DEEPSEEK = dict(
    max_position_embeddings=512, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, n_routed_experts=8, num_experts_per_tok=3,
    moe_intermediate_size=48, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.5, rope_parameters=DEEPSEEK_ROPE,
)
DEEPSEEK_GGUF = {
    **DEEPSEEK, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32, "moe_intermediate_size": 32,
    "rope_parameters": {**DEEPSEEK_ROPE, "mscale": 1.0, "mscale_all_dim": 1.0},
}


def shape(vocab, hidden, intermediate, layers, heads, kv_heads, head_dim=None, **rest):
    sizes = dict(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
    )
    return {**sizes, **({"head_dim": head_dim} if head_dim else {}), **rest}


MODELS = [
    # Tied head, fp32, one file; as in the real models, head_dim is not hidden_size /
    # num_attention_heads.
    Model(
        name="qwen3_tiny",
        family="Qwen3",
        config=shape(512, 64, 128, 2, 4, 2, 32, rope_theta=1000000.0, tie_word_embeddings=True, **QWEN3),
        one_prompt=True,
    ),
    # Untied head, bf16, several files with an index; one KV head for four query heads.
    Model(
        name="qwen3_tiny_untied_bf16",
        family="Qwen3",
        config=shape(256, 48, 96, 3, 4, 1, 16, rope_theta=10000.0, tie_word_embeddings=False, **QWEN3),
        dtype=torch.bfloat16,
        max_shard_size="60KB",
        smallest_gap=0.2,
        lower_precision=True,
        one_prompt=True,
    ),
    # Layers with different numbers of KV heads.
    Model(
        name="pagoda_qwen3_tiny",
        family="Qwen3",
        config=shape(256, 64, 96, 4, 4, 2, 16, rope_theta=10000.0, tie_word_embeddings=True, **QWEN3),
        architecture="PagodaQwen3ForCausalLM",
        kv_heads=(2, 1, 1, 2),
    ),
    # Biases of q, k and v; head_dim is not in config.json.
    Model(
        name="qwen2_tiny",
        family="Qwen2",
        config=shape(256, 64, 128, 3, 4, 2, max_position_embeddings=4096, rope_theta=1000000.0, tie_word_embeddings=True, use_sliding_window=False),
    ),
    # Rotary frequencies of all three kinds of Llama 3 within 200 tokens; fp16.
    Model(
        name="llama3_tiny",
        family="Llama",
        config=shape(256, 64, 128, 3, 4, 2, 32, max_position_embeddings=4096, rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False),
        dtype=torch.float16,
        wrong=(dict(rope_parameters={**LLAMA3_ROPE, "factor": 7.0}), dict(rope_parameters={**LLAMA3_ROPE, "high_freq_factor": 3.0})),
    ),
    # Every layer has a sliding window.
    Model(
        name="mistral_tiny",
        family="Mistral",
        config=shape(256, 64, 128, 3, 4, 2, 32, max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=24),
        wrong=(dict(sliding_window=25), dict(sliding_window=23)),
    ),
    # Two of three layers have a sliding window and other rotary frequencies; norms of q and k;
    # query_pre_attn_scalar; bf16.
    Model(
        name="gemma3_tiny",
        family="Gemma3",
        config=shape(
            512, 96, 128, 3, 4, 2, 32, max_position_embeddings=4096, query_pre_attn_scalar=24, sliding_window=20, rope_parameters=GEMMA3_ROPE,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        dtype=torch.bfloat16,
        wrong=(
            dict(sliding_window=21),
            dict(query_pre_attn_scalar=32),
            dict(rope_parameters={**GEMMA3_ROPE, "sliding_attention": GEMMA3_ROPE["full_attention"]}),
            dict(rope_parameters={**GEMMA3_ROPE, "full_attention": GEMMA3_ROPE["sliding_attention"]}),
        ),
    ),
    # Soft caps of scores and logits, low enough to matter.
    Model(
        name="gemma2_tiny",
        family="Gemma2",
        config=shape(
            256, 64, 128, 2, 4, 2, 32, max_position_embeddings=4096, query_pre_attn_scalar=24, sliding_window=32, attn_logit_softcapping=3.0,
            final_logit_softcapping=8.0,
        ),
        wrong=(dict(attn_logit_softcapping=None), dict(final_logit_softcapping=9.0), dict(sliding_window=33)),
    ),
    # A half of each head is rotated; q, k and v are one matrix, and so are gate and up.
    Model(
        name="phi3_tiny",
        family="Phi3",
        config=shape(256, 64, 128, 3, 4, 2, max_position_embeddings=4096, rms_norm_eps=1e-5, partial_rotary_factor=0.5),
        wrong=(dict(partial_rotary_factor=1.0), dict(partial_rotary_factor=0.25)),
    ),
    # Other factors of the rotary frequencies in long contexts, and scaled attention.
    Model(
        name="phi3_longrope_tiny",
        family="Phi3",
        config=shape(
            128, 64, 96, 2, 4, 2, max_position_embeddings=1024, original_max_position_embeddings=32, rms_norm_eps=1e-5, rope_parameters=PHI3_ROPE,
        ),
        dtype=torch.bfloat16,
        wrong=(
            dict(rope_parameters={**PHI3_ROPE, "short_factor": PHI3_ROPE["long_factor"]}),
            dict(rope_parameters={**PHI3_ROPE, "long_factor": PHI3_ROPE["short_factor"]}),
            dict(rope_parameters={**PHI3_ROPE, "attention_factor": 1.0}),
            dict(original_max_position_embeddings=36),
            dict(original_max_position_embeddings=20),
        ),
    ),
    # A mixture of experts in every layer but the first.
    Model(
        name="qwen3_moe_tiny",
        family="Qwen3Moe",
        config=shape(
            256, 64, 96, 3, 4, 2, 32, rope_theta=1000000.0, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48, norm_topk_prob=True,
            mlp_only_layers=[0], **QWEN3,
        ),
        dtype=torch.bfloat16,
        wrong=(dict(norm_topk_prob=False), dict(num_experts_per_tok=3)),
    ),
    # The same in GGUF, with experts of three quantised types; every layer has experts.
    Model(
        name="qwen3_moe_tiny_gguf",
        family="Qwen3Moe",
        config=shape(
            256, 64, 96, 2, 4, 2, 32, rope_theta=1000000.0, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True,
            **QWEN3,
        ),
        dtype=torch.bfloat16,
    ),
    # Latent attention, with queries from a smaller vector; experts in groups, chosen by sigmoids
    # and a correction, and a shared one.
    Model(
        name="deepseek_v3_tiny",
        family="DeepseekV3",
        config=shape(256, 64, 96, 3, 4, 4, q_lora_rank=40, n_shared_experts=1, norm_topk_prob=True, **DEEPSEEK),
        dtype=torch.bfloat16,
        wrong=(
            dict(topk_group=1),
            dict(norm_topk_prob=False),
            dict(routed_scaling_factor=1.0),
            dict(rope_interleave=False),
            dict(rope_parameters={**DEEPSEEK_ROPE, "mscale": 1.0}),
            dict(rope_parameters={**DEEPSEEK_ROPE, "mscale_all_dim": 0.7, "mscale": 0.49}),
            dict(rope_parameters={**DEEPSEEK_ROPE, "beta_slow": 4.0}),
        ),
    ),
    # Queries from the hidden state; groups by their best expert; two shared experts; bf16.
    Model(
        name="deepseek_v2_tiny",
        family="DeepseekV2",
        config=shape(256, 64, 96, 3, 4, 4, q_lora_rank=None, n_shared_experts=2, topk_method="group_limited_greedy", **DEEPSEEK),
        dtype=torch.bfloat16,
        wrong=(dict(topk_method="greedy"), dict(routed_scaling_factor=1.0), dict(rope_parameters={**DEEPSEEK_ROPE, "factor": 6.0})),
    ),
    # The same in GGUF: V3 as llama.cpp's converter writes it now, V2 as it wrote it at first, with
    # one matrix for the heads' keys and values. GGUF has no mscale, so it is mscale_all_dim.
    Model(
        name="deepseek_v3_tiny_gguf",
        family="DeepseekV3",
        config=shape(128, 64, 64, 2, 2, 2, q_lora_rank=32, n_shared_experts=1, norm_topk_prob=True, **DEEPSEEK_GGUF),
        dtype=torch.bfloat16,
        wrong=(
            dict(topk_group=1),
            dict(rope_interleave=False),
            dict(rope_parameters={**DEEPSEEK_ROPE, "mscale": 1.1}),
            dict(rope_parameters={**DEEPSEEK_ROPE, "mscale": 0.9, "mscale_all_dim": 0.9}),
        ),
    ),
    Model(
        name="deepseek_v2_tiny_gguf",
        family="DeepseekV2",
        config=shape(
            128, 32, 32, 2, 2, 2, q_lora_rank=None, n_shared_experts=2, topk_method="group_limited_greedy",
            **{**DEEPSEEK_GGUF, "rope_parameters": {**DEEPSEEK_ROPE, "mscale": 0.707, "mscale_all_dim": 0.707}},
        ),
        dtype=torch.bfloat16,
        wrong=(dict(topk_method="greedy"), dict(rope_parameters={**DEEPSEEK_ROPE, "mscale": 0.8, "mscale_all_dim": 0.8})),
    ),
    # A sink in each head; every other layer has a window; experts with biases and a clamped gate.
    Model(
        name="gpt_oss_tiny",
        family="GptOss",
        config=shape(
            256, 64, 48, 3, 4, 2, 16, max_position_embeddings=1024, sliding_window=20, num_local_experts=5, num_experts_per_tok=2,
            rope_parameters=GPT_OSS_ROPE, swiglu_limit=2.0,
        ),
        dtype=torch.bfloat16,
        wrong=(
            dict(sliding_window=21),
            dict(swiglu_limit=1.9),
            dict(swiglu_alpha=1.5),
            dict(num_experts_per_tok=3),
            dict(rope_parameters={**GPT_OSS_ROPE, "truncate": True}),
            dict(rope_parameters={**GPT_OSS_ROPE, "rope_theta": 10000.0}),
        ),
    ),
    # The same with experts in MXFP4.
    Model(
        name="gpt_oss_tiny_mxfp4",
        family="GptOss",
        config=shape(
            256, 64, 64, 2, 4, 2, 16, max_position_embeddings=1024, sliding_window=20, num_local_experts=4, num_experts_per_tok=2,
            rms_norm_eps=1e-5, rope_parameters=GPT_OSS_ROPE, swiglu_limit=7.0,
        ),
        dtype=torch.bfloat16,
        mxfp4=True,
    ),
    # ALiBi with a number of heads that is no power of two; layer norms, biases and a plain MLP.
    Model(
        name="bloom_tiny",
        family="Bloom",
        config=dict(vocab_size=256, hidden_size=96, n_layer=3, n_head=6),
        dtype=torch.bfloat16,
        wrong=(dict(n_head=4), dict(layer_norm_epsilon=0.1)),
    ),
    # The same in GGUF, which has queries, keys and values one after the other.
    Model(
        name="bloom_tiny_gguf",
        family="Bloom",
        config=dict(vocab_size=128, hidden_size=64, n_layer=1, n_head=4),
        dtype=torch.bfloat16,
    ),
    # A Gemma 3 as in llama.cpp: its rule for the layers with a window, and a scale from head_dim.
    Model(
        name="gemma3_tiny_bf16_gguf",
        family="Gemma3",
        config=shape(
            256, 96, 128, 7, 4, 1, 32, max_position_embeddings=4096, query_pre_attn_scalar=32, sliding_window=16, rope_parameters=GEMMA3_ROPE,
        ),
        dtype=torch.bfloat16,
    ),
]


def make_config(model, **changes):
    family = {"Gemma3": "Gemma3TextConfig"}.get(model.family, model.family + "Config")
    fields = copy.deepcopy({**model.config, **changes})  # transformers modifies its arguments.
    return getattr(transformers, family)(bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="eager", **fields)


def build(model, **changes):
    """The model of a configuration in fp32, its weights not yet drawn."""
    config = make_config(model, **changes)
    network = getattr(transformers, model.family + "ForCausalLM")(config)
    # transformers has one number for all layers, so each layer is built from its own copy of the
    # configuration.
    for i, kv_heads in enumerate(model.kv_heads):
        layer_config = copy.deepcopy(config)
        layer_config.num_key_value_heads = kv_heads
        network.model.layers[i] = type(network.model.layers[i])(layer_config, i)
    network = network.to(torch.float32).eval()
    if model.family.startswith("Gemma"):
        # A checkpoint in bf16 runs in bf16, so its embeddings are multiplied by the root in bf16.
        network.model.embed_tokens.embed_scale = torch.tensor(config.hidden_size**0.5).to(model.dtype).to(torch.float32)
    return network


@torch.no_grad()
def draw_weights(model, network):
    """Random weights, rounded to the checkpoint's dtype."""
    generator = torch.Generator().manual_seed(model.seed)
    is_gemma = model.family.startswith("Gemma")
    for name, parameter in sorted(network.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.copy_((0.1 if model.family == "Bloom" else 0.5) * noise)
        elif name.endswith("sinks"):
            parameter.copy_(1.0 + noise)
        elif parameter.dim() == 1:  # The scales of the norms, all different.
            middle, spread = 1.0, 0.2
            # Gemma stores the scales less one. Some are larger, to sharpen attention and to let
            # layers outweigh the embedding.
            if is_gemma:
                middle = 0.8 if "q_norm" in name or "k_norm" in name else 1.0 if "post_" in name else 0.0
            if is_gemma and name == "model.norm.weight":
                # Scales of both signs. Otherwise the tied embedding would match the last state, and
                # the model would repeat its input.
                middle, spread = -1.0, 1.0
            elif name == "transformer.ln_f.weight":  # Bloom's embedding is tied too.
                middle, spread = 0.0, 1.0
            parameter.copy_(middle + spread * noise)
        elif "embed_tokens" in name or "lm_head" in name or "word_embeddings" in name:
            parameter.copy_(0.3 * noise)
        elif parameter.dim() == 3:  # The experts of a layer; gpt-oss' matrices are transposed.
            inputs = parameter.shape[1 if model.family == "GptOss" else 2]
            parameter.copy_(1.5 * noise / inputs**0.5)
        else:  # A matrix slightly raises the variance of its input.
            parameter.copy_(1.5 * noise / parameter.shape[1] ** 0.5)
        parameter.copy_(parameter.to(model.dtype).to(torch.float32))
    for name, buffer in sorted(network.named_buffers()):
        if name.endswith("e_score_correction_bias"):
            # The corrections are as large as the differences between the scores.
            buffer.copy_((0.2 * torch.randn(buffer.shape, generator=generator)).to(model.dtype).to(torch.float32))


def rotary_cases():
    """transformers' frequencies for tiny and for real options."""
    real_llama3 = {**LLAMA3_ROPE, "original_max_position_embeddings": 8192}
    cases = []
    for head_dim, rope in [
        (64, dict(rope_type="default", rope_theta=10000.0)),
        (128, dict(rope_type="default", rope_theta=1000000.0)),
        (256, GEMMA3_ROPE["full_attention"]),
        (32, LLAMA3_ROPE),
        (128, real_llama3),
        (64, dict(DEEPSEEK_ROPE)),
        (64, dict(GPT_OSS_ROPE)),
        (64, REAL_DEEPSEEK_V3_ROPE),
        (64, REAL_GPT_OSS_ROPE),
        (96, REAL_PHI3_ROPE),
    ]:
        config = transformers.LlamaConfig(head_dim=head_dim, max_position_embeddings=131072, rope_parameters=dict(rope))
        embedding = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        case = {
            "head_dim": head_dim,
            "rope_parameters": rope,
            "frequencies": embedding.inv_freq.tolist(),
            "attention_factor": embedding.attention_scaling,
        }
        if rope["rope_type"] == "longrope":
            longrope = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"]
            frequencies, _ = longrope(config, None, seq_len=rope["original_max_position_embeddings"] + 1)
            case["long_frequencies"] = frequencies.tolist()
        cases.append(case)
    return cases
