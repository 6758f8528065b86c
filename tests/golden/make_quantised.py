"""Writes tests/golden/quantised/blocks.gguf: a tensor of each quantised type that the engine reads,
and the same numbers as the PyPI package gguf dequantises them.

    python3 tests/golden/make_quantised.py

The tensor TYPE has the shape [3][2][512] and random bytes, so that every bit of a block matters.
Only the scales of fp16 are finite and of ordinary size. The tensor TYPE.fp32 has its numbers.
"""

import pathlib

import gguf
import numpy

# The offsets of fp16 numbers in a block.
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
SHAPE = (3, 2, 512)


def random_blocks(kind, random):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (SHAPE[0] * SHAPE[1] * SHAPE[2] // elements, size), dtype=numpy.uint8)
    for offset in SCALES[kind.name]:
        scale = random.normal(0, 0.1, len(blocks)).astype(numpy.float16)
        scale[0] = 6e-8  # The smallest positive number.
        blocks[:, offset:offset + 2] = scale.view(numpy.uint8).reshape(-1, 2)
    if kind.name == "MXFP4":  # Exponents of ordinary size, and the two smallest ones.
        blocks[:, 0] = random.integers(110, 135, len(blocks))
        blocks[:2, 0] = [0, 1]
    return blocks.reshape(*SHAPE[:2], SHAPE[2] // elements * size)


def main():
    folder = pathlib.Path(__file__).parent / "quantised"
    folder.mkdir(exist_ok=True)
    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(folder / "blocks.gguf", "none")
    for name in SCALES:
        kind = gguf.GGMLQuantizationType[name]
        blocks = random_blocks(kind, random)
        writer.add_tensor(name, blocks, raw_dtype=kind)
        writer.add_tensor(name + ".fp32", gguf.quants.dequantize(blocks, kind).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
