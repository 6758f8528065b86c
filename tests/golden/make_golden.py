"""Makes the tiny checkpoints of the golden tests, and Hugging Face transformers' answers with them.
See README.md.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers safetensors gguf
    /tmp/golden/bin/python tests/golden/make_golden.py [--output FOLDER] [--only-beams] [NAME...]

Makes all of them without NAMEs, and puts them beside this file without FOLDER. The weights are
drawn from seeds, so that the same versions of torch and
transformers give the same files.
"""

import argparse
import copy
import json
import pathlib

import golden_answers
import golden_beams
import golden_gguf
import golden_models
import golden_mxfp4
import safetensors.torch
import torch
import transformers

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__}


def write_checkpoint(model, network, folder):
    copy.deepcopy(network).to(model.dtype).save_pretrained(folder, max_shard_size=model.max_shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if model.architecture:
        config["architectures"] = [model.architecture]
    if model.kv_heads:
        config["num_key_value_heads"] = list(model.kv_heads)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_one_prompt(model, network, folder):
    generator = torch.Generator().manual_seed(golden_models.SEED + 1)
    prompt = torch.randint(0, model.config["vocab_size"], (64,), generator=generator).tolist()
    ids, logits = golden_answers.greedy(network, prompt, 0.02)
    assert golden_answers.is_worth(ids, logits, 0.02), ids
    expected = {"prompt": prompt, "ids": ids, "smallest_gap": golden_answers.gap_of(logits), **VERSIONS}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    safetensors.torch.save_file({"logits": logits.contiguous()}, folder / "expected.safetensors")


def write_cases(model, network, folder, check=True):
    lengths = golden_answers.PROMPT_LENGTHS
    cases = [golden_answers.answer(network, length, model, golden_models.SEED + 1000 * i) for i, length in enumerate(lengths)]
    if check:
        golden_answers.check_wrong(model, network, golden_models.build, cases)
    entries = [{"prompt": prompt, "ids": ids, "smallest_gap": golden_answers.gap_of(logits)} for prompt, ids, logits in cases]
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    (folder / "cases.json").write_text(f'{{\n "cases": [\n  {lines}\n ],\n "versions": {json.dumps(VERSIONS)}\n}}\n')
    tensors = {"logits": torch.stack([logits for _, _, logits in cases])}
    if model.lower_precision:
        lower = [golden_answers.lower_precision_logits(network, prompt, ids, model) for prompt, ids, _ in cases]
        tensors["lower_precision_logits"] = torch.stack(lower)
        print(f"  computed in {model.dtype}: the logits move by {(tensors['logits'] - torch.stack(lower)).abs().max():.3f}")
    safetensors.torch.save_file(tensors, folder / "cases.safetensors")
    print(f"  smallest gap {min(entry['smallest_gap'] for entry in entries):.3f}")


def write_beams(model, network, folder):
    lines = ",\n  ".join(json.dumps(case) for case in golden_beams.cases(model, network, golden_models.SEED + 50000))
    (folder / "beams.json").write_text(f'{{\n "cases": [\n  {lines}\n ],\n "versions": {json.dumps(VERSIONS)}\n}}\n')


def empty(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("model*", "config.json", "expected.*", "cases.*", "beams.json"):
        for old in folder.glob(pattern):
            old.unlink()


def write(model, output, only_beams):
    folder = output / model.name
    print(folder)
    network = golden_models.build(model)
    golden_models.draw_weights(model, network)
    packed = golden_mxfp4.draw(network, model.seed) if model.mxfp4 else {}
    if only_beams:
        return write_beams(model, network, folder)
    empty(folder)
    if model.family == "Qwen3Moe" and model.name.endswith("_gguf"):
        golden_gguf.write_qwen3_moe(model, network, folder / "model.gguf")
    elif model.family.startswith("Deepseek") and model.name.endswith("_gguf"):
        golden_gguf.write_deepseek(model, network, folder / "model.gguf", split=model.family == "DeepseekV3")
    elif model.family == "Bloom" and model.name.endswith("_gguf"):
        golden_gguf.write_bloom(model, network, folder / "model.gguf")
    elif model.name.endswith("_gguf"):
        golden_gguf.write_bf16(model, network, folder / "model.gguf")
    else:
        write_checkpoint(model, network, folder)
    if packed:
        golden_mxfp4.write(packed, folder)
        twin = output / (model.name + "_gguf")  # The same model, with the same answers.
        empty(twin)
        golden_gguf.write_gpt_oss(model, network, packed, twin / "model.gguf")
    if model.one_prompt:
        write_one_prompt(model, network, folder)
    write_cases(model, network, folder)
    write_beams(model, network, folder)
    if model.name == "llama3_tiny":
        write_twins(golden_gguf.write_llama, "F16", model, network, output)
    if model.name == "phi3_longrope_tiny":
        write_twins(golden_gguf.write_phi3, "F32", model, network, output)


def write_twins(write_gguf, exact_type, model, network, output):
    """The same model in GGUF: once with its own weights, which give the answers above, and once
    with coarser ones."""
    folder = output / f"{model.name}_{exact_type.lower()}_gguf"
    empty(folder)
    write_gguf(model, network, folder / "model.gguf", exact_type)
    folder = output / f"{model.name}_q8_0_gguf"
    print(folder)
    empty(folder)
    # After this call the weights are rounded as in Q8_0.
    write_gguf(model, network, folder / "model.gguf", "Q8_0")
    write_cases(model, network, folder, check=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--only-beams", action="store_true", help="write only beams.json, with the weights of the seed")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.names and not arguments.only_beams:
        lines = ",\n ".join(json.dumps(case) for case in golden_models.rotary_cases())
        (arguments.output / "rotary.json").write_text(f"[\n {lines}\n]\n")
    for model in golden_models.MODELS:
        if not arguments.names or model.name in arguments.names:
            write(model, arguments.output, arguments.only_beams)


if __name__ == "__main__":
    main()
