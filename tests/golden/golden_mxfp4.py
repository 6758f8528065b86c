"""gpt-oss' experts in MXFP4: blocks of 32 elements of 4 bits with a common exponent."""

import json

import safetensors.torch
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


@torch.no_grad()
def draw(network, seed):
    """Random experts. The model gets the numbers that transformers reads from them. Returns the
    tensors of the file by name."""
    generator = torch.Generator().manual_seed(seed)
    packed = {}
    for name, parameter in sorted(network.named_parameters()):
        if parameter.dim() != 3:
            continue
        experts, inputs, outputs = parameter.shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(122, 125, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
        parameter.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        packed[name + "_blocks"] = blocks
        packed[name + "_scales"] = scales
    return packed


def write(packed, folder):
    """Replaces the experts in the folder's file."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for name in list(tensors):
        if name + "_blocks" in packed:
            del tensors[name]
    safetensors.torch.save_file({**tensors, **packed}, path, metadata={"format": "pt"})
    config = folder / "config.json"
    fields = json.loads(config.read_text())
    fields["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    config.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
