"""The gain and the cost of Pagoda below a real vLLM. Prints one JSON object a line.
`deploy/bench.sh engines` runs it.

    bench_vllm.py [ID ...]     the figures whose ids begin so
"""

import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

from engine_processes import Daemon, Vllm, connector

FIGURES = ("vllm_ttft_hit_over_miss", "vllm_step_overhead", "vllm_load_bandwidth", "vllm_save_bandwidth", "connector_match_7000")
PROMPT_TOKENS = 2000
ROUNDS = 3


def say(figure, **values):
    print(json.dumps({"figure": figure, **values}), flush=True)


def tokens(rng, count):
    return [rng.randrange(5, 30_000) for _ in range(count)]


def lines(path, since):
    return [row for row in map(json.loads, path.read_text().splitlines()) if row["at"] >= since]


def vllm_figures(folder, model, wanted):
    times = folder / "times"
    os.environ["PAGODA_TIMES"] = str(times)
    os.environ["PYTHONPATH"] = f"{pathlib.Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    config = {"kv_connector": "TimedConnector", "kv_connector_module_path": "timed_connector"}
    rng = random.Random(1)
    with Daemon(folder / "daemon", host="4GiB") as daemon, Vllm(
            folder, model, kv_transfer_config=connector(daemon) | config, max_model_len=4096,
            max_num_batched_tokens=4096, num_gpu_blocks_override=200) as vllm:
        vllm.generate([tokens(rng, 200)], max_tokens=2)  # Warm-up.
        misses, hits, since = [], [], time.time()
        rounds = ROUNDS if "vllm_ttft_hit_over_miss" in wanted else 1
        for _ in range(rounds):
            prompt = tokens(rng, PROMPT_TOKENS)
            misses.append(vllm.generate([prompt], max_tokens=1)["seconds"])
            assert vllm.reset()
            answer = vllm.generate([prompt], max_tokens=1)
            assert answer["cached"] == [(PROMPT_TOKENS - 1) // 32 * 32]
            hits.append(answer["seconds"])
        miss, hit = statistics.median(misses), statistics.median(hits)
        say("vllm_ttft_hit_over_miss", value=hit / miss, hit_ms=hit * 1e3, miss_ms=miss * 1e3, goal=0.1)
        worker = lines(pathlib.Path(f"{times}.worker"), since)
        from timed_connector import memcpy_seconds
        for figure, size, took in (("vllm_load_bandwidth", "loaded", "load"), ("vllm_save_bandwidth", "saved", "save")):
            moved = [(row[size], row[took]) for row in worker if row[size] > 1 << 20]
            bandwidth = statistics.median(bytes_ / seconds for bytes_, seconds in moved)
            copy = moved[0][0] / memcpy_seconds(moved[0][0])
            say(figure, value=bandwidth / copy, bytes_per_second=bandwidth, memcpy_bytes_per_second=copy, bytes=moved[0][0], goal=0.8)
        prompts = [tokens(rng, 64) for _ in range(16)]
        vllm.generate(prompts, max_tokens=4)
        since = time.time()
        vllm.generate(prompts, max_tokens=60)
        # The first steps prefill; the others decode 16 sequences.
        scheduler, worker = (lines(pathlib.Path(f"{times}.{side}"), since)[10:] for side in ("scheduler", "worker"))
        per_step = [sum(row["took"].values()) for row in scheduler], [sum(row["took"].values()) for row in worker]
        step = statistics.median(b["at"] - a["at"] for a, b in zip(worker, worker[1:]))
        both = statistics.median(per_step[0]) + statistics.median(per_step[1])
        say("vllm_step_overhead", value=both / step, scheduler_us=statistics.median(per_step[0]) * 1e6,
            worker_us=statistics.median(per_step[1]) * 1e6, p99_us=sorted(map(sum, zip(*per_step)))[int(len(per_step[0]) * 0.99)] * 1e6,
            step_ms=step * 1e3, goal="0.02, and 1000 us")


def match_figure(folder):
    import pagoda

    with Daemon(folder / "match") as daemon:
        pagoda.open_cache(daemon.endpoint, "match", identity=pagoda.CacheIdentity("org/match"), tokens_per_block=16, host="64MiB",
                          layers=[pagoda.Layers.opaque(2, bytes_per_block=4096)])
        prompt = tokens(random.Random(1), 7000)
        with pagoda.connect(daemon.endpoint, cache="match") as client, client.sequence(prompt) as sequence:
            sequence.commit(computed=len(prompt))
        opens, empties = {}, {}
        # "auto" is shared memory here, if the package has its native extension.
        for transport in ("grpc", "auto") * 3:
            with pagoda.connect(daemon.endpoint, cache="match", transport=transport) as client:
                for _ in range(500):
                    started = time.perf_counter()
                    client.advance()
                    empties.setdefault(transport, []).append(time.perf_counter() - started)
                    started = time.perf_counter()
                    sequence = client.sequence(prompt, whole_blocks_only=True)
                    opens.setdefault(transport, []).append(time.perf_counter() - started)
                    assert sequence.matched_tokens == 6992
                    sequence.free()
        for transport, figure in (("grpc", "connector_match_7000_grpc"), ("auto", "connector_match_7000")):
            say(figure, value=statistics.median(opens[transport]) * 1e3, unit="ms", p99=sorted(opens[transport])[1485] * 1e3,
                empty_call_ms=statistics.median(empties[transport]) * 1e3, **({"goal": 0.1} if transport == "auto" else {}))


def main():
    wanted = [figure for figure in FIGURES if not sys.argv[1:] or figure.startswith(tuple(sys.argv[1:]))]
    if not wanted:
        sys.exit(f"no figure begins with this; there are {', '.join(FIGURES)}")
    import tiny_models

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "connector_match_7000" in wanted:
            match_figure(folder)
        if any(figure.startswith("vllm") for figure in wanted):
            models = pathlib.Path(os.environ["PAGODA_ENGINES"]) / "models"
            models.mkdir(parents=True, exist_ok=True)
            vllm_figures(folder, tiny_models.make("qwen3-0.5b", models), wanted)


if __name__ == "__main__":
    main()
