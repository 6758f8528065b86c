"""Models that can talk: tiny golden models with a tokenizer of single bytes, and a GGUF file of
Q4_K made on the spot, which has its tokenizer and chat template in its metadata."""

import json
import os
import pathlib
import random
import struct

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]).resolve()
TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"

# GGUF's numbers for types.
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
F32, Q4_K = 0, 12
BLOCK_ELEMENTS, BLOCK_BYTES = 256, 144
ALIGNMENT = 32


def byte_tokens():
    """The characters that GPT-2's vocabularies have for the bytes 0 to 255."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def folder(path, golden):
    """A copy of a golden model with a vocabulary of 256 tokens, one for each byte."""
    path.mkdir()
    for file in (GOLDEN / golden).iterdir():
        if file.name == "config.json" or file.name.startswith("model"):
            (path / file.name).symlink_to(file)
    vocabulary = {token: i for i, token in enumerate(byte_tokens())}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
                 "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}}
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return path


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key, kind, value):
    """A key of the metadata. A list is an array of `kind`."""
    write = {UINT32: lambda v: struct.pack("<I", v), INT32: lambda v: struct.pack("<i", v), FLOAT32: lambda v: struct.pack("<f", v),
             STRING: text}[kind]
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(map(write, value))
    return text(key) + struct.pack("<I", kind) + write(value)


def q4_k_file(path, layers=2, hidden=256, heads=4, head_dim=64):
    """A Qwen 3 whose matrices are random Q4_K."""
    tokens = [*byte_tokens(), "he", "<|im_end|>"]
    chance = random.Random(7)

    def vector(size):
        return struct.pack(f"<{size}f", *(1 + 0.2 * chance.uniform(-1, 1) for _ in range(size)))

    def matrix(rows, columns):
        blocks = []
        for _ in range(rows * columns // BLOCK_ELEMENTS):
            # Scales of up to 63 times 15, less minimums of about half of that.
            blocks.append(struct.pack("<ee", 4e-4, 3e-3) + chance.randbytes(BLOCK_BYTES - 4))
        return b"".join(blocks)

    tensors = [("token_embd.weight", [hidden, len(tokens)], Q4_K, matrix(len(tokens), hidden)),
               ("output_norm.weight", [hidden], F32, vector(hidden))]
    wide = heads * head_dim
    for i in range(layers):
        for name, size in (("attn_norm", hidden), ("ffn_norm", hidden), ("attn_q_norm", head_dim), ("attn_k_norm", head_dim)):
            tensors.append((f"blk.{i}.{name}.weight", [size], F32, vector(size)))
        for name, rows, columns in (("attn_q", wide, hidden), ("attn_k", wide, hidden), ("attn_v", wide, hidden), ("attn_output", hidden, wide),
                                    ("ffn_gate", hidden, hidden), ("ffn_up", hidden, hidden), ("ffn_down", hidden, hidden)):
            tensors.append((f"blk.{i}.{name}.weight", [columns, rows], Q4_K, matrix(rows, columns)))
    metadata = [entry("general.architecture", STRING, "qwen3")]
    for key, value in (("embedding_length", hidden), ("feed_forward_length", hidden), ("block_count", layers), ("context_length", 2048),
                       ("attention.head_count", heads), ("attention.head_count_kv", heads), ("attention.key_length", head_dim),
                       ("attention.value_length", head_dim)):
        metadata.append(entry("qwen3." + key, UINT32, value))
    metadata += [entry("qwen3.attention.layer_norm_rms_epsilon", FLOAT32, 1e-6), entry("qwen3.rope.freq_base", FLOAT32, 1e6),
                 entry("tokenizer.ggml.model", STRING, "gpt2"), entry("tokenizer.ggml.pre", STRING, "qwen2"),
                 entry("tokenizer.ggml.tokens", STRING, tokens), entry("tokenizer.ggml.token_type", INT32, [1] * (len(tokens) - 1) + [3]),
                 entry("tokenizer.ggml.merges", STRING, ["h e"]), entry("tokenizer.ggml.eos_token_id", UINT32, len(tokens) - 1),
                 entry("tokenizer.chat_template", STRING, TEMPLATE)]
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + b"".join(metadata)
    data = b""
    for name, shape, kind, content in tensors:
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += content + bytes(-len(content) % ALIGNMENT)
    path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + data)
    return path
