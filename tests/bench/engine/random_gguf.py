"""Makes a GGUF file of Qwen3-0.6B's shape with random weights: the speed does not depend on them.

    python3 tests/bench/engine/random_gguf.py FILE.gguf Q4_K

Needs numpy and gguf. Quantised blocks are random bytes with scales that keep the numbers small. As
in files that people use, the embedding of Q4_K is Q6_K.
"""

import sys

import gguf
import numpy

LAYERS = 28
HIDDEN = 1024
INTERMEDIATE = 3072
HEADS = 16
KV_HEADS = 8
HEAD_DIM = 128
VOCABULARY = 151_936
LARGEST = 0.03

# Where a block has its scales (fp16), and which keep the numbers below LARGEST.
SCALES = {
    "Q8_0": {0: LARGEST / 127},
    "Q4_0": {0: LARGEST / 8},
    "IQ4_NL": {0: LARGEST / 127},
    "Q4_K": {0: LARGEST / 300, 2: LARGEST / 40},
    "Q5_K": {0: LARGEST / 600, 2: LARGEST / 40},
    "Q6_K": {208: LARGEST / 4000},
}


def matrix(random, kind, rows, columns):
    if kind.name in ("F32", "F16", "BF16"):
        numbers = (random.random((rows, columns), dtype=numpy.float32) - 0.5) * 2 * LARGEST
        if kind.name == "BF16":
            return (numbers.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
        return numbers.astype(numpy.float16 if kind.name == "F16" else numpy.float32)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=numpy.uint8)
    for at, scale in SCALES[kind.name].items():
        blocks[:, at:at + 2] = numpy.array([scale], numpy.float16).view(numpy.uint8)
    return blocks.reshape(rows, columns // elements * size)


def make(path, name):
    kind = gguf.GGMLQuantizationType[name]
    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(40_960)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("none")

    def add(tensor, rows, columns, of_kind=kind):
        content = matrix(random, of_kind, rows, columns)
        writer.add_tensor(tensor + ".weight", content, raw_dtype=None if of_kind.name in ("F32", "F16") else of_kind)

    def add_norm(tensor, size):
        writer.add_tensor(tensor + ".weight", numpy.ones(size, numpy.float32))

    add("token_embd", VOCABULARY, HIDDEN, gguf.GGMLQuantizationType.Q6_K if name == "Q4_K" else kind)
    add_norm("output_norm", HIDDEN)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        add_norm(block + "attn_norm", HIDDEN)
        add(block + "attn_q", HEADS * HEAD_DIM, HIDDEN)
        add(block + "attn_k", KV_HEADS * HEAD_DIM, HIDDEN)
        add(block + "attn_v", KV_HEADS * HEAD_DIM, HIDDEN)
        add_norm(block + "attn_q_norm", HEAD_DIM)
        add_norm(block + "attn_k_norm", HEAD_DIM)
        add(block + "attn_output", HIDDEN, HEADS * HEAD_DIM)
        add_norm(block + "ffn_norm", HIDDEN)
        add(block + "ffn_gate", INTERMEDIATE, HIDDEN)
        add(block + "ffn_up", INTERMEDIATE, HIDDEN)
        add(block + "ffn_down", HIDDEN, INTERMEDIATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2])
