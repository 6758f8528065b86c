"""Compares Pagoda with LMCache, below two replicas of a real vLLM: time to the first token, and
host memory. Prints one JSON object a line. `deploy/bench.sh engines vllm_beside_lmcache` runs it.

    bench_lmcache.py [--prompts N] [--rounds N] [--hits N]

The configurations take turns, and start anew in each round:
    none
        two engines without such a cache: the cost of a miss, and the engines' memory
    pagoda
        PagodaConnector and one pagodad
    lmcache_mp
        LMCacheMPConnector and one `lmcache server`, with shared memory
    lmcache_in_process
        LMCacheConnectorV1 as released; reported as not run if it cannot, as on a CPU
    lmcache_in_process_with_cpu_copies
        instead of it: the same with the copies of lmcache_on_cpu.py
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import tiny_models
import transformers
from engine_processes import HERE, Daemon, Vllm, connector

FIGURE = "vllm_beside_lmcache"
CHUNK_TOKENS = 256  # LMCache's own unit; Pagoda's is vLLM's block of 32 tokens.
CACHED_TOKENS = 8 * CHUNK_TOKENS
PROMPT_TOKENS = CACHED_TOKENS + 1  # An engine always computes one token. All others can come from any of the caches.
LAYERS, KV_HEADS, HEAD_DIM = 28, 8, 128
QUIET_SECONDS = 1.5  # vLLM's processes poll for a second after their last step. With few cores this slows the other replica.
SLACK_BYTES = 64 << 20  # The size of a pool that is reserved whole, beyond its contents.
PROMPT_BYTES = CACHED_TOKENS * 2 * LAYERS * KV_HEADS * HEAD_DIM * 4


def _model():
    """A model with the KV size of bench_vllm.py's model, 229 KB a token in float32, and less
    computing: 0.06 B parameters."""
    return transformers.Qwen3Config(
        vocab_size=8_000, hidden_size=256, intermediate_size=512, num_hidden_layers=LAYERS, num_attention_heads=8,
        num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.2)


tiny_models.MODELS["qwen3-much-kv"] = (_model, 1)


def say(**values):
    print(json.dumps({"figure": FIGURE, **values}), flush=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def environment(**values):
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def lmcache_server(folder, size_bytes):
    """An `lmcache server` whose memory the engines map; its port and its process. In its other mode
    (lmcache_driven: the server copies) a hit took two to five times as long on two cores."""
    port, log = free_port(), folder / "lmcache.log"
    command = [str(pathlib.Path(sys.executable).parent / "lmcache"), "server", "--port", str(port), "--http-port", str(free_port()),
               "--chunk-size", str(CHUNK_TOKENS), "--l1-size-gb", str(size_bytes / (1 << 30)), "--eviction-policy", "LRU",
               "--supported-transfer-mode", "engine_driven", "--no-l1-use-lazy", "--shm-name", f"pagoda_bench_{os.getpid()}",
               "--max-workers", "2", "--disable-metrics"]  # A worker for each engine. Its metrics need a package that is not installed.
    with open(log, "wb") as out:
        process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield port, process
    finally:
        process.terminate()  # The server removes its shared memory.
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def descendants(pid):
    """The process and all that it has started."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(stat.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found.extend(children.get(one, []))
    return found


def memory_bytes(pids):
    """The proportional set size of these processes and their children: heap, shared memory and
    libraries. A page that several processes map counts once in all. The sizes of the pools alone
    would hide the memory of a cache's own process and its buffers in the engines, and would count
    unused pages. Pagoda's engines map the whole pool, so all of it is included."""
    total = 0
    for pid in (one for root in pids for one in descendants(root)):
        with contextlib.suppress(OSError):
            total += int(re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1]) << 10
    return total


def random_prompt(rng):
    return [rng.randrange(5, 8_000) for _ in range(PROMPT_TOKENS)]


class Replicas:
    """Engines with one way of caching, and the processes of that cache."""

    def __init__(self, stack, folder, model, kv_transfer_config=None, *, servers=(), engines=2, **variables):
        self._servers = servers
        with environment(**variables):
            self._engines = [stack.enter_context(Vllm(
                folder, model, name=f"engine-{index}", kv_transfer_config=kv_transfer_config, max_model_len=PROMPT_TOKENS + 63,
                max_num_batched_tokens=4096, num_gpu_blocks_override=80)) for index in range(engines)]

    def first_token(self, replica, prompt):
        """(seconds, how many tokens came from a cache, the token)"""
        time.sleep(QUIET_SECONDS)
        answer = self._engines[replica].generate([prompt], max_tokens=1)
        return answer["seconds"], answer["cached"][0], answer["tokens"][0][0]

    def reset(self, replica):
        """Empties the engine's own prefix cache, once its last store is done."""
        deadline = time.monotonic() + 60
        while not self._engines[replica].reset():
            assert time.monotonic() < deadline, "the prefix cache cannot be reset"
            time.sleep(0.05)

    def memory_bytes(self):
        """(of the engines, of the cache's own processes)"""
        return memory_bytes([engine.process.pid for engine in self._engines]), memory_bytes([one.pid for one in self._servers])

    def said(self):
        return "".join(engine.said() for engine in self._engines)


def none(stack, folder, model, contents_bytes):
    return Replicas(stack, folder, model)


def pagoda(stack, folder, model, contents_bytes):
    size_mib = (contents_bytes + SLACK_BYTES) >> 20
    daemon = stack.enter_context(Daemon(folder / "daemon", host=f"{size_mib + 64}MiB"))
    return Replicas(stack, folder, model, connector(daemon, host=f"{size_mib}MiB"), servers=[daemon.process])


def lmcache_mp(stack, folder, model, contents_bytes):
    # It evicts when it is four fifths full. It takes memory only for stored data, so the rest costs
    # nothing.
    port, server = stack.enter_context(lmcache_server(folder, contents_bytes * 4 // 3))
    extra = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port}
    return Replicas(stack, folder, model, {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra},
                    servers=[server])


def lmcache_in_process(stack, folder, model, contents_bytes, name="LMCacheConnectorV1", **options):
    return Replicas(stack, folder, model, {"kv_connector": name, "kv_connector_module_path": "lmcache_on_cpu", "kv_role": "kv_both"},
                    # A replica has computed all prompts but one: the first prompt of the other
                    # replica.
                    LMCACHE_LOCAL_CPU="True", LMCACHE_MAX_LOCAL_CPU_SIZE=str((contents_bytes - PROMPT_BYTES + SLACK_BYTES) / (1 << 30)),
                    LMCACHE_CHUNK_SIZE=str(CHUNK_TOKENS), **options)


def lmcache_in_process_with_cpu_copies(stack, folder, model, contents_bytes):
    return lmcache_in_process(stack, folder, model, contents_bytes, "LMCacheInProcess")


def why_not(configuration, folder, model):
    """The reason why an engine of this configuration does not find what it has computed before.
    None if it does."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        one = configuration(stack, folder, model, 2 * PROMPT_BYTES, engines=1)
        prompt = random_prompt(random.Random(0))
        one.first_token(0, prompt)
        one.reset(0)
        if one.first_token(0, prompt)[1] == CACHED_TOKENS:
            return None
        errors = re.findall(r"^\w*Error: .*", one.said(), re.M)
        return errors[0] if errors else "it does not find what it has stored"


def measure(replicas, prompts, rounds, samples):
    """Replica 1 computes the prompts. Then both replicas run them, after their own prefix caches
    are emptied. Each replica computes one more prompt first, so that it is warm and has the memory
    of an engine that has computed."""
    for replica, prompt in enumerate(prompts[:2]):
        for _ in range(2):
            replicas.first_token(replica, prompt)
            replicas.reset(replica)
    expected = {}
    for number, prompt in enumerate(prompts[2:]):
        seconds, cached, expected[number] = replicas.first_token(0, prompt)
        assert cached == 0, cached
        samples["miss"].append(seconds)
    for round_ in range(rounds):
        for number, prompt in enumerate(prompts[2:]):
            for replica, kind in enumerate(("hit", "other")):
                replicas.reset(replica)
                seconds, cached, token = replicas.first_token(replica, prompt)
                assert token == expected[number], f"another token, with {cached} tokens from a cache"
                if kind == "hit":
                    assert cached == CACHED_TOKENS, f"{cached} tokens from the cache"
                # When a replica has computed a prompt, it finds it later even without a shared
                # cache. So only its first answers count.
                if kind == "hit" or round_ == 0:
                    samples[kind].append(seconds)
                    samples[f"{kind}_tokens"].append(cached)
    samples["memory"].append(replicas.memory_bytes())


def report(samples, contents_bytes):
    bare = statistics.median(engines for engines, _ in samples["none"]["memory"])
    results = {}
    for name, of in samples.items():
        memory = statistics.median(map(sum, of["memory"])) - bare
        results[name] = {kind: statistics.median(of[kind]) * 1e3 for kind in ("miss", "hit", "other") if of[kind]} | {"memory": memory}
        spread = {f"{kind}_range_ms": [round(bound(of[kind]) * 1e3) for bound in (min, max)] for kind in ("hit", "other") if of[kind]}
        say(configuration=name, **{f"{kind}_ms": value for kind, value in results[name].items() if kind != "memory"}, **spread,
            other_tokens=[min(of["other_tokens"]), max(of["other_tokens"])] if of["other"] else None,
            memory_bytes=memory, memory_over_contents=memory / contents_bytes, engines_bytes=[engines for engines, _ in of["memory"]],
            servers_bytes=[servers for _, servers in of["memory"]])
    ours = results["pagoda"]
    for name, theirs in results.items():
        if name.startswith("lmcache"):
            say(beside=name, value=ours["hit"] / theirs["hit"], other_replica=ours["other"] / theirs["other"],
                memory=ours["memory"] / theirs["memory"], goal="1.0 and 1.0; memory 0.5")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prompts", type=int, default=3, help="number of timed prompts")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; each configuration restarts in each round")
    parser.add_argument("--hits", type=int, default=3, help="number of hits of each prompt in a round")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # The exit also ends the engines.
    rng = random.Random(1)
    prompts = [random_prompt(rng) for _ in range(2 + chosen.prompts)]
    models = pathlib.Path(os.environ["PAGODA_ENGINES"]) / "models"
    models.mkdir(parents=True, exist_ok=True)
    model = tiny_models.make("qwen3-much-kv", models)
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    with tempfile.TemporaryDirectory() as name, environment(
            VLLM_CPU_OMP_THREADS_BIND="nobind", LMCACHE_DISABLE_BANNER="1", LMCACHE_TRACK_USAGE="false",
            PYTHONHASHSEED="0",  # In process, LMCache's keys are Python's hashes.
            PYTHONPATH=f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"):
        configurations = [none, pagoda, lmcache_mp]
        if reason := why_not(lmcache_in_process, pathlib.Path(name) / "probe", model):
            say(configuration="lmcache_in_process", not_run=reason)
        configurations.append(lmcache_in_process_with_cpu_copies if reason else lmcache_in_process)
        for round_ in range(chosen.rounds):
            first = round_ % len(configurations)
            for configuration in configurations[first:] + configurations[:first]:
                print(f"round {round_ + 1} of {chosen.rounds}: {configuration.__name__}", file=sys.stderr, flush=True)
                folder = pathlib.Path(name) / f"{configuration.__name__}-{round_}"
                folder.mkdir()
                with contextlib.ExitStack() as stack:
                    replicas = configuration(stack, folder, model, len(prompts) * PROMPT_BYTES)
                    measure(replicas, prompts, 0 if configuration is none else chosen.hits, samples[configuration.__name__])
    report(samples, len(prompts) * PROMPT_BYTES)


if __name__ == "__main__":
    main()
