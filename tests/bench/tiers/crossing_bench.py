"""Compares an engine over a daemon's cache with the same engine in one process, in turns.
`deploy/bench.sh crossing` runs it.

    /usr/bin/python3 tests/bench/tiers/crossing_bench.py PAGODAD [--model MODEL] [--smoke] [ID...]

Beside the program PAGODAD is pagoda-engine. MODEL is a GGUF file, such as random_gguf.py makes, or
a model's folder; the tests' tiny model by default. What the daemon costs in proportion depends on
how long a step of the model takes. Prints one JSON object a line for each figure whose id begins
with one of the IDs (all, without IDs): medians of the rounds, next to those of pagoda-engine
--local. The figures:

    crossing_decode_ms
        Milliseconds between two tokens of one request.
    crossing_first_token_ms
        Milliseconds to the first token of a prompt of 64 tokens that nothing has cached.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from figure import show

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "llama3_tiny"
ROUNDS, REQUESTS = 7, 4
PROMPT_TOKENS, NEW_TOKENS = 64, 33
VOCABULARY = 256  # Every model has these token ids.


def requests(seed):
    draw = random.Random(seed)
    return "".join(json.dumps({"prompt": [draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)], "max_new_tokens": NEW_TOKENS}) + "\n"
                   for _ in range(REQUESTS))


def times_of(command, lines):
    """The milliseconds to the first token and between two tokens, of each request but the first:
    in it the model's pages come into memory."""
    run = subprocess.run([*command, "--requests", "-"], input=lines, stdout=subprocess.PIPE, check=True, text=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == REQUESTS and all(answer["generated_tokens"] == NEW_TOKENS for answer in answers), run.stdout
    return ([answer["time_to_first_token_ms"] for answer in answers[1:]],
            [(answer["total_ms"] - answer["time_to_first_token_ms"]) / (NEW_TOKENS - 1) for answer in answers[1:]])


def compare(programs, model, rounds):
    figures = {name: ([], []) for name in ("crossing_first_token_ms", "crossing_decode_ms")}
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "pagodad.yaml")
        config.write_text(f"memory: {{host: 1GiB}}\nserver: {{unix_socket: {folder}/socket, grpc_address: '', http_address: ''}}\nlog: {{level: warning}}\n")
        daemon = subprocess.Popen([programs / "pagodad", "--config", config], stdout=sys.stderr)
        try:
            engine = [programs / "pagoda-engine", "--model", model]
            over = [*engine, "--connect", f"unix:{folder}/socket", "--cache", "crossing", "--open-cache", "512MiB"]
            for turn in range(rounds):
                lines = requests(seed=turn)
                sides = [(0, over), (1, [*engine, "--local"])]
                for side, command in sides if turn % 2 else sides[::-1]:
                    for of_all, times in zip(figures.values(), times_of(command, lines)):
                        of_all[side].extend(times)
        finally:
            daemon.terminate()
            daemon.wait()
    return {name: [statistics.median(times) for times in sides] for name, sides in figures.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pagodad", type=pathlib.Path)
    parser.add_argument("--model", default=GOLDEN)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("ids", nargs="*")
    options = parser.parse_args()
    for name, (over, local) in compare(options.pagodad.resolve().parent, options.model, 1 if options.smoke else ROUNDS).items():
        if not options.ids or any(name.startswith(each) for each in options.ids):
            show(name, over, "ms", "pagoda-engine --local", local)


if __name__ == "__main__":
    main()
