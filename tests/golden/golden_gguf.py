"""GGUF files of the tiny models, in the layout of llama.cpp's converter."""

import math

import gguf
import numpy
import torch

# The names of the Llama family and of Gemma; {} is the layer.
COMMON = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.{}.input_layernorm": "blk.{}.attn_norm",
    "model.layers.{}.self_attn.q_proj": "blk.{}.attn_q",
    "model.layers.{}.self_attn.k_proj": "blk.{}.attn_k",
    "model.layers.{}.self_attn.v_proj": "blk.{}.attn_v",
    "model.layers.{}.self_attn.o_proj": "blk.{}.attn_output",
    "model.layers.{}.mlp.gate_proj": "blk.{}.ffn_gate",
    "model.layers.{}.mlp.up_proj": "blk.{}.ffn_up",
    "model.layers.{}.mlp.down_proj": "blk.{}.ffn_down",
}
LLAMA = {**COMMON, "model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm"}
QWEN3_MOE = {
    **LLAMA,
    "model.layers.{}.self_attn.q_norm": "blk.{}.attn_q_norm",
    "model.layers.{}.self_attn.k_norm": "blk.{}.attn_k_norm",
    "model.layers.{}.mlp.gate": "blk.{}.ffn_gate_inp",
}
GPT_OSS = {
    **COMMON,
    "model.layers.{}.post_attention_layernorm": "blk.{}.post_attention_norm",
    "model.layers.{}.mlp.router": "blk.{}.ffn_gate_inp",
}
GEMMA = {
    **COMMON,
    "model.layers.{}.self_attn.q_norm": "blk.{}.attn_q_norm",
    "model.layers.{}.self_attn.k_norm": "blk.{}.attn_k_norm",
    "model.layers.{}.post_attention_layernorm": "blk.{}.post_attention_norm",
    "model.layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm",
    "model.layers.{}.post_feedforward_layernorm": "blk.{}.post_ffw_norm",
}


def tensor_name(names, name):
    stem, suffix = name.rsplit(".", 1)
    parts = stem.split(".")
    layer = parts[2] if parts[1:2] == ["layers"] else None
    pattern = stem if layer is None else ".".join(["model.layers.{}", *parts[3:]])
    return names[pattern].format(layer) + "." + suffix


def add_common(writer, model, kv_heads=None):
    config = model.config
    head_dim = config.get("head_dim")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"] if kv_heads is None else kv_heads)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-6))
    writer.add_vocab_size(config["vocab_size"])
    # One value of each kind that an engine ignores.
    writer.add_tokenizer_model("none")
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(config["vocab_size"])])
    writer.add_array("tokenizer.ggml.scores", [float(i) for i in range(config["vocab_size"])])
    writer.add_eos_token_id(2)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def swap_rotary_pairs(rows, heads):
    """llama.cpp's order of a Llama's q and k: elements of a head's two halves that are rotated
    together are adjacent."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def llama3_divisors(rope, head_dim):
    """The content of rope_freqs.weight: each frequency's divisor."""
    divisors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        turns = rope["original_max_position_embeddings"] / wavelength
        smooth = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        smooth = min(max(smooth, 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(divisors, dtype=numpy.float32)


@torch.no_grad()
def write_llama(model, network, path, type_name):
    """Writes F16 or Q8_0. With Q8_0, `network` then has the matrices as Q8_0 rounds them."""
    config = model.config
    kind = gguf.GGMLQuantizationType[type_name]
    writer = gguf.GGUFWriter(path, "llama")
    add_common(writer, model)
    rope = config["rope_parameters"]
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, config["head_dim"]))
    for name, parameter in network.named_parameters():
        data = parameter.numpy().astype(numpy.float32)
        if parameter.dim() == 1:
            writer.add_tensor(tensor_name(LLAMA, name), data)
            continue
        if type_name == "Q8_0":
            parameter.copy_(torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(data, kind), kind)))
        if "q_proj" in name:
            data = swap_rotary_pairs(data, config["num_attention_heads"])
        if "k_proj" in name:
            data = swap_rotary_pairs(data, config["num_key_value_heads"])
        writer.add_tensor(tensor_name(LLAMA, name), gguf.quants.quantize(data, kind), raw_dtype=kind)
    finish(writer)


@torch.no_grad()
def write_bf16(model, network, path):
    config = model.config
    kind = gguf.GGMLQuantizationType.BF16
    writer = gguf.GGUFWriter(path, "gemma3")
    add_common(writer, model)
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(config["rope_parameters"]["full_attention"]["factor"])
    writer.add_sliding_window(config["sliding_window"])
    for name, parameter in network.named_parameters():
        data = parameter.numpy().astype(numpy.float32)
        if parameter.dim() == 1:  # llama.cpp's files have Gemma's norms plus one.
            writer.add_tensor(tensor_name(GEMMA, name), data + numpy.float32(1))
        else:
            writer.add_tensor(tensor_name(GEMMA, name), gguf.quants.quantize(data, kind), raw_dtype=kind)
    finish(writer)


def add_experts(writer, config, count, size):
    writer.add_expert_count(count)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(size)


def add_rounded(writer, name, matrix, type_name):
    """Adds it, and gives `matrix` the numbers that the file then has."""
    kind = gguf.GGMLQuantizationType[type_name]
    data = gguf.quants.quantize(matrix.numpy(), kind)
    writer.add_tensor(name, data, raw_dtype=kind)
    matrix.copy_(torch.from_numpy(gguf.quants.dequantize(data, kind)))


@torch.no_grad()
def write_qwen3_moe(model, network, path):
    """Experts of Q4_0, Q5_0 and Q8_0, which `network` then has as well; the rest is BF16."""
    config = model.config
    writer = gguf.GGUFWriter(path, "qwen3moe")
    add_common(writer, model)
    add_experts(writer, config, config["num_experts"], config["moe_intermediate_size"])
    writer.add_rope_freq_base(config["rope_theta"])

    for name, parameter in network.named_parameters():
        if parameter.dim() == 3:
            layer = name.split(".")[2]
            if "gate_up" in name:
                gate, up = (half.contiguous() for half in parameter.chunk(2, dim=1))
                add_rounded(writer, f"blk.{layer}.ffn_gate_exps.weight", gate, "Q4_0")
                add_rounded(writer, f"blk.{layer}.ffn_up_exps.weight", up, "Q5_0")
                parameter.copy_(torch.cat([gate, up], dim=1))
            else:
                add_rounded(writer, f"blk.{layer}.ffn_down_exps.weight", parameter, "Q8_0")
        elif parameter.dim() == 1:
            writer.add_tensor(tensor_name(QWEN3_MOE, name), parameter.numpy())
        else:
            add_rounded(writer, tensor_name(QWEN3_MOE, name), parameter, "BF16")
    finish(writer)


@torch.no_grad()
def write_gpt_oss(model, network, packed, path):
    """Experts of MXFP4 as `packed` has them; the rest is BF16."""
    config = model.config
    rope = config["rope_parameters"]
    bf16 = gguf.GGMLQuantizationType.BF16
    writer = gguf.GGUFWriter(path, "gpt-oss")
    add_common(writer, model)
    add_experts(writer, config, config["num_local_experts"], config["intermediate_size"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])

    def add_blocks(name, blocks, scales):
        # ggml has elements i and 16 + i in a byte, behind the block's exponent.
        nibbles = numpy.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
        nibbles = nibbles[..., :16] | nibbles[..., 16:] << 4
        data = numpy.concatenate([scales[..., None], nibbles], axis=-1)
        writer.add_tensor(name, data.reshape(*data.shape[:-2], -1), raw_dtype=gguf.GGMLQuantizationType.MXFP4)

    for name, parameter in network.named_parameters():
        layer = name.split(".")[2] if ".layers." in name else None
        data = parameter.numpy()
        if parameter.dim() == 3:
            blocks, scales = (packed[name + suffix].numpy() for suffix in ("_blocks", "_scales"))
            if "gate_up" in name:
                for i, part in enumerate(("gate", "up")):
                    add_blocks(f"blk.{layer}.ffn_{part}_exps.weight", blocks[:, i::2], scales[:, i::2])
            else:
                add_blocks(f"blk.{layer}.ffn_down_exps.weight", blocks, scales)
        elif name.endswith("gate_up_proj_bias"):
            for i, part in enumerate(("gate", "up")):
                writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.bias", numpy.ascontiguousarray(data[:, i::2]))
        elif name.endswith("down_proj_bias"):
            writer.add_tensor(f"blk.{layer}.ffn_down_exps.bias", data)
        elif name.endswith("sinks"):
            writer.add_tensor(f"blk.{layer}.attn_sinks.weight", data)
        elif parameter.dim() == 1:
            writer.add_tensor(tensor_name(GPT_OSS, name), data)
        else:
            writer.add_tensor(tensor_name(GPT_OSS, name), gguf.quants.quantize(data, bf16), raw_dtype=bf16)
    finish(writer)


PHI3 = {
    **LLAMA,
    "model.layers.{}.self_attn.qkv_proj": "blk.{}.attn_qkv",
    "model.layers.{}.mlp.gate_up_proj": "blk.{}.ffn_up",
}


@torch.no_grad()
def write_phi3(model, network, path, type_name):
    """F32 (the others than qkv_proj in BF16), or all matrices in `type_name`, which `network` then
    has as well."""
    config = model.config
    rope = config["rope_parameters"]
    writer = gguf.GGUFWriter(path, "phi3")
    add_common(writer, model)
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    writer.add_rope_freq_base(rope["rope_theta"])
    original = config["original_max_position_embeddings"]
    writer.add_rope_scaling_orig_ctx_len(original)
    factor = config["max_position_embeddings"] / original
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))
    writer.add_sliding_window(0)  # The converter writes 0 for none.
    for kind in ("long", "short"):
        writer.add_tensor(f"rope_factors_{kind}.weight", numpy.array(rope[f"{kind}_factor"], dtype=numpy.float32))
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            writer.add_tensor(tensor_name(PHI3, name), parameter.numpy())
        elif type_name == "F32":
            add_rounded(writer, tensor_name(PHI3, name), parameter, "F32" if "qkv_proj" in name else "BF16")
        else:
            add_rounded(writer, tensor_name(PHI3, name), parameter, type_name)
    finish(writer)


DEEPSEEK2 = {
    **LLAMA,
    "model.layers.{}.self_attn.q_a_proj": "blk.{}.attn_q_a",
    "model.layers.{}.self_attn.q_a_layernorm": "blk.{}.attn_q_a_norm",
    "model.layers.{}.self_attn.q_b_proj": "blk.{}.attn_q_b",
    "model.layers.{}.self_attn.kv_a_proj_with_mqa": "blk.{}.attn_kv_a_mqa",
    "model.layers.{}.self_attn.kv_a_layernorm": "blk.{}.attn_kv_a_norm",
    "model.layers.{}.self_attn.kv_b_proj": "blk.{}.attn_kv_b",
    "model.layers.{}.mlp.gate": "blk.{}.ffn_gate_inp",
    "model.layers.{}.mlp.shared_experts.gate_proj": "blk.{}.ffn_gate_shexp",
    "model.layers.{}.mlp.shared_experts.up_proj": "blk.{}.ffn_up_shexp",
    "model.layers.{}.mlp.shared_experts.down_proj": "blk.{}.ffn_down_shexp",
}


def add_deepseek_keys(writer, model, split):
    config = model.config
    rope = config["rope_parameters"]
    heads, rotary = config["num_attention_heads"], config["qk_rope_head_dim"]
    head_dim = config["qk_nope_head_dim"] + rotary
    add_common(writer, model, kv_heads=1 if split else heads)
    if split:
        writer.add_key_length(config["kv_lora_rank"] + rotary)
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(head_dim)
        writer.add_value_length_mla(config["v_head_dim"])
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(config["v_head_dim"])
    writer.add_rope_dimension_count(rotary)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    add_experts(writer, config, config["n_routed_experts"], config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if model.family == "DeepseekV3":
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


@torch.no_grad()
def write_deepseek(model, network, path, split):
    """Experts of Q8_0 and Q5_0 and the heads' keys and values of Q8_0, which `network` then has as
    well; the rest is BF16. `split`: keys and values are two tensors, the keys transposed."""
    config = model.config
    plain = config["qk_nope_head_dim"]
    writer = gguf.GGUFWriter(path, "deepseek2")
    add_deepseek_keys(writer, model, split)
    for name, parameter in network.named_parameters():
        layer = name.split(".")[2] if ".layers." in name else None
        if parameter.dim() == 3:
            if "gate_up" in name:
                gate, up = (half.contiguous() for half in parameter.chunk(2, dim=1))
                add_rounded(writer, f"blk.{layer}.ffn_gate_exps.weight", gate, "Q8_0")
                add_rounded(writer, f"blk.{layer}.ffn_up_exps.weight", up, "Q5_0")
                parameter.copy_(torch.cat([gate, up], dim=1))
            else:
                add_rounded(writer, f"blk.{layer}.ffn_down_exps.weight", parameter, "Q8_0")
        elif parameter.dim() == 1:
            writer.add_tensor(tensor_name(DEEPSEEK2, name), parameter.numpy())
        elif "kv_b_proj" in name and split:
            heads = parameter.view(config["num_attention_heads"], -1, parameter.shape[-1])
            keys = heads[:, :plain].transpose(1, 2).contiguous()
            values = heads[:, plain:].contiguous()
            add_rounded(writer, f"blk.{layer}.attn_k_b.weight", keys, "Q8_0")
            add_rounded(writer, f"blk.{layer}.attn_v_b.weight", values, "Q8_0")
            heads.copy_(torch.cat([keys.transpose(1, 2), values], dim=1))
        else:
            add_rounded(writer, tensor_name(DEEPSEEK2, name), parameter, "Q8_0" if "kv_b_proj" in name else "BF16")
    for name, buffer in network.named_buffers():
        if name.endswith("e_score_correction_bias"):
            writer.add_tensor(f"blk.{name.split('.')[2]}.exp_probs_b.bias", buffer.numpy().astype(numpy.float32))
    finish(writer)


BLOOM = {
    "word_embeddings": "token_embd",
    "word_embeddings_layernorm": "token_embd_norm",
    "ln_f": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}


@torch.no_grad()
def write_bloom(model, network, path):
    """Matrices in Q8_0, which `network` then has as well."""
    config = model.config
    hidden, heads = config["hidden_size"], config["n_head"]
    writer = gguf.GGUFWriter(path, "bloom")
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(4 * hidden)
    writer.add_block_count(config["n_layer"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_eps(network.config.layer_norm_epsilon)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(config["vocab_size"])])
    writer.add_eos_token_id(2)
    for name, parameter in network.named_parameters():
        parts = name.removeprefix("transformer.").split(".")
        prefix = ""
        if parts[0] == "h":
            prefix = f"blk.{parts[1]}."
            parts = parts[2:]
        target = prefix + BLOOM[".".join(parts[:-1])] + "." + parts[-1]
        ordered = parameter
        if "query_key_value" in name:  # From [heads][q, k, v] to [q, k, v][heads].
            split = parameter.view(heads, 3, hidden // heads, -1)
            ordered = split.transpose(0, 1).reshape(parameter.shape).contiguous()
        if parameter.dim() == 1:
            writer.add_tensor(target, ordered.numpy())
            continue
        add_rounded(writer, target, ordered, "Q8_0")
        if "query_key_value" in name:
            split.copy_(ordered.view(3, heads, hidden // heads, -1).transpose(0, 1))
    finish(writer)
