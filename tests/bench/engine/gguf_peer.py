r"""The speed of GGUF files' models beside llama.cpp, on the same file and processor.

    python3 tests/bench/engine/gguf_peer.py --bench build/release/bin/gguf_bench \
        --types Q4_K,Q8_0,BF16,F16

For each type it makes a Qwen3-0.6B of random weights (up to 1.2 GB, removed at the end). Then it
runs gguf_bench and llama.cpp in turn, each in its own process, --pairs times, and prints for each
figure one JSON object like those of deploy/bench.sh: the median of ours, that of llama.cpp, and the
median of the pairs' ratios. Figures: tokens per second of a prompt of 512 tokens, of one of
--longest-prompt, and of a decode behind 512; ids that end with _cpu count the processor's time of
all threads instead of the clock's, which is steadier on a busy machine. The last figure is the
memory beside the KV, over the file's bytes.

Needs numpy, gguf and llama-cpp-python. llama.cpp runs with its own defaults, KV in fp16, except:
--plain-buffers has it keep the file's weights as they are. A llama.cpp that GCC 12 has compiled for
a processor with AMX needs that, because its loading of the tiles' configuration crashes there.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import random_gguf

PROMPT = 512
DECODE_STEPS = 8


class Llama:
    """One sequence of random tokens in llama.cpp."""

    def __init__(self, path, threads, longest, plain_buffers):
        import llama_cpp

        self.api = llama_cpp
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        of_model = llama_cpp.llama_model_default_params()
        of_model.n_gpu_layers = 0
        of_model.use_extra_bufts = not plain_buffers
        model = llama_cpp.llama_model_load_from_file(path.encode(), of_model)
        of_context = llama_cpp.llama_context_default_params()
        of_context.n_ctx = max(longest, PROMPT) + 256
        of_context.n_batch = longest
        of_context.n_threads = of_context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(model, of_context)
        self.tokens = (llama_cpp.llama_token * longest)(*[(7919 * i) % random_gguf.VOCABULARY for i in range(longest)])

    def step(self, tokens, count):
        assert self.api.llama_decode(self.context, self.api.llama_batch_get_one(tokens, count)) == 0
        self.api.llama_get_logits(self.context)[0]  # Waits for the results.

    def prefill(self, count):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self.step(self.tokens, count)

    def decode(self):
        memory = self.api.llama_get_memory(self.context)
        for i in range(DECODE_STEPS):
            self.step((self.api.llama_token * 1)(self.tokens[i]), 1)
        self.api.llama_memory_seq_rm(memory, 0, PROMPT, -1)


def rates(work, tokens, threads, rounds):
    """Tokens per second of the clock, and of the processor: medians."""
    work()
    wall, processor = [], []
    for _ in range(rounds):
        before = time.perf_counter(), time.process_time()
        work()
        wall.append(tokens / (time.perf_counter() - before[0]))
        processor.append(tokens * threads / (time.process_time() - before[1]))
    return statistics.median(wall), statistics.median(processor)


def measure_llama(options):
    llama = Llama(options.llama, options.threads, options.longest_prompt, options.plain_buffers)
    line = {}
    for prompt in sorted({PROMPT, options.longest_prompt}):
        wall, processor = rates(lambda: llama.prefill(prompt), prompt, options.threads, options.rounds)
        line |= {f"prefill_{prompt}": wall, f"prefill_{prompt}_cpu": processor}
    llama.prefill(PROMPT)
    line["decode"], line["decode_cpu"] = rates(llama.decode, DECODE_STEPS, options.threads, options.rounds)
    print(json.dumps(line))


def output_of(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(options, kind, path):
    common = ["--threads", str(options.threads), "--rounds", str(options.rounds), "--longest-prompt", str(options.longest_prompt)]
    theirs_command = [sys.executable, __file__, "--llama", path, *common]
    if options.plain_buffers:
        theirs_command.append("--plain-buffers")
    pairs = [(output_of([options.bench, path, *common]), output_of(theirs_command)) for _ in range(options.pairs)]
    for figure in pairs[0][1]:
        ours, theirs = (statistics.median(pair[side][figure] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[0][figure] / pair[1][figure] for pair in pairs)
        print(json.dumps({"figure": f"{kind}_{figure}", "value": round(ours, 2), "unit": "token/s", "yardstick": "llama.cpp",
                          "yardstick_value": round(theirs, 2), "ratio": round(ratio, 3)}), flush=True)
    memory, size = (statistics.median(pair[0][name] for pair in pairs) for name in ("bytes_beside_kv", "file_bytes"))
    print(json.dumps({"figure": f"{kind}_memory", "value": memory, "unit": "byte", "yardstick": "the file",
                      "yardstick_value": size, "ratio": round(memory / size, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", help="the program gguf_bench")
    parser.add_argument("--types", default="Q4_K,Q8_0,BF16,F16")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--longest-prompt", type=int, default=2048)
    parser.add_argument("--plain-buffers", action="store_true")
    parser.add_argument("--llama", metavar="FILE", help="measure only llama.cpp, on this file")
    options = parser.parse_args()
    if options.llama:
        return measure_llama(options)
    for kind in options.types.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.gguf")
            random_gguf.make(path, kind)
            compare(options, kind, path)


if __name__ == "__main__":
    main()
