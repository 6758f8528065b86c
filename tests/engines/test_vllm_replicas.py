"""Replicas of one vLLM server (--data-parallel-size) share a cache. Each reads the others'
blocks."""

import concurrent.futures
import os
import pathlib
import time

import pytest
from engine_processes import Daemon, connector
from served_vllm import Served

pytest.importorskip("vllm", reason="vLLM is not installed")

BLOCKS = 9  # The whole blocks of a prompt of 300 tokens.


def used_blocks(daemon, expected):
    """The blocks of the only cache, once they are `expected` (a thread commits the saves), and its
    sessions."""
    import pagoda

    deadline = time.monotonic() + 30
    while True:
        (cache,) = pagoda.list_caches(daemon.endpoint)
        if cache.tiers[0].used_blocks == expected or time.monotonic() > deadline:
            return cache.tiers[0].used_blocks, cache.sessions
        time.sleep(0.1)


# Replicas of a dense model are independent. Replicas of a mixture of experts run in step, and their
# ranks form one group.
@pytest.mark.parametrize("model, replicas, module", [("qwen3", 4, "pagoda.vllm"), ("qwen3-experts", 2, "experts_on_cpu")])
def test_each_replica_reads_what_the_others_wrote(model, replicas, module, models, prompts, tmp_path):
    asked = prompts(*[300] * replicas)
    here = str(pathlib.Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], here]), "VLLM_CPU_KVCACHE_SPACE": "1",
                                "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with Daemon(tmp_path / "daemon") as daemon, Served(
            tmp_path, "replicas", models(model), environment, connector(daemon) | {"kv_connector_module_path": module},
            "--data-parallel-size", str(replicas), start_seconds=900) as served, concurrent.futures.ThreadPoolExecutor(replicas) as at_once:

        def ask(shift):
            """The answers to all prompts, asked at once. Each replica has the prompt that is
            `shift` places further on."""
            return list(at_once.map(lambda number: served.tokens(asked[number], (number - shift) % replicas), range(replicas)))

        written = ask(0)
        assert served.metric("vllm:pagoda_hit_tokens") == 0
        assert used_blocks(daemon, replicas * BLOCKS) == (replicas * BLOCKS, replicas)
        for shift in range(1, replicas):
            assert ask(shift) == written
        hits = [served.metric("vllm:external_prefix_cache_hits", replica) for replica in range(replicas)]
        assert hits == [(replicas - 1) * BLOCKS * 32] * replicas
        assert used_blocks(daemon, replicas * BLOCKS) == (replicas * BLOCKS, replicas)
