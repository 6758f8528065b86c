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


def add_common(writer, model):
    config = model.config
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
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
