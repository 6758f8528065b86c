"""Pagoda as a tier of vLLM's own offloading, with vLLM's factory and its real tiering manager, on
the CPU, without a model."""

import signal
import time
import types

import numpy as np
import pytest
from engine_processes import Daemon

pytest.importorskip("vllm", reason="vLLM is not installed")

from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig,
                                       OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

CHUNKS, CHUNK_BYTES = 64, 4096


def config(**changes):
    model = OffloadingModelConfig(name=changes.get("name", "org/model"), dtype=changes.get("dtype", "bfloat16"))
    parallel = OffloadingParallelConfig(rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
                                        data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=False)
    return OffloadingConfig(groups=(OffloadingGroupConfig(16, ("layer.0",), 0),), worker_kv_bytes_per_block=CHUNK_BYTES,
                            enable_kv_cache_events=False, extra_config={"cpu_bytes_to_use": CHUNKS * CHUNK_BYTES}, engine_id="1", model=model,
                            cache=OffloadingCacheConfig(16, 1), parallel=parallel)


class Engine:
    """A host cache of vLLM, and the tier below as vLLM's factory makes it."""

    def __init__(self, daemon, **changes):
        self.chunks = np.zeros((CHUNKS, CHUNK_BYTES), np.int8)
        spec = types.SimpleNamespace(config=config(**changes))
        tier = {"type": "PagodaTier", "module_path": "pagoda.vllm.offloading", "options": {"endpoint": daemon.endpoint, "host": "8MiB"}}
        self.tier = SecondaryTierFactory.create_secondary_tier(tier, memoryview(self.chunks), spec)
        assert self.tier._pages.wait(10)
        self._jobs = 0

    def _job(self, submit, keys, chunks, is_promotion):
        self._jobs += 1
        submit(TransferJob(self._jobs, keys, np.array(chunks), is_promotion, ReqContext("r")))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for result in self.tier.get_finished_jobs():
                assert result.job_id == self._jobs
                return result
            time.sleep(0.005)
        raise AssertionError("the job does not end")

    def store(self, keys, chunks):
        return self._job(self.tier.submit_store, keys, chunks, False)

    def load(self, keys, chunks):
        return self._job(self.tier.submit_load, keys, chunks, True)

    def lookup(self, keys, request="r"):
        context = ReqContext(request)
        deadline = time.monotonic() + 10
        while LookupResult.RETRY in (found := [self.tier.lookup(key, context) for key in keys]):
            assert time.monotonic() < deadline
            self.tier.on_schedule_end(ScheduleEndContext((), ()))
            time.sleep(0.01)
        self.tier.on_request_finished(context)
        return [result is LookupResult.HIT for result in found]


@pytest.fixture
def daemon(tmp_path):
    with Daemon(tmp_path / "daemon") as started:
        yield started


@pytest.fixture
def engines(daemon):
    made = []

    def make(**changes):
        made.append(Engine(daemon, **changes))
        return made[-1]

    yield make
    for engine in made:
        engine.tier.shutdown()


KEYS = [make_offload_key(bytes([number]) * 32, 0) for number in range(10)]


def test_chunks_come_back_in_another_engine(engines):
    first, second = engines(), engines()
    first.chunks[:10] = np.arange(10)[:, None] + 1
    assert first.lookup(KEYS) == [False] * 10
    assert first.store(KEYS, range(10)).success
    assert second.lookup(KEYS) == [True] * 10
    assert second.load(KEYS[::-1], range(20, 30)).success
    assert (second.chunks[20:30] == np.arange(10, 0, -1)[:, None]).all()
    assert not second.chunks[:20].any() and not second.chunks[30:].any()


def test_what_is_not_there_is_told_key_by_key(engines):
    engine = engines()
    assert engine.store(KEYS[:3], range(3)).success
    result = engine.load(KEYS[:5], range(10, 15))
    assert not result.success and set(result.successful_keys) == set(KEYS[:3])
    assert engine.lookup(KEYS[:5]) == [True] * 3 + [False] * 2


@pytest.mark.parametrize("changes", [{"name": "org/other"}, {"dtype": "float16"}])
def test_another_model_or_type_does_not_match(engines, changes):
    assert engines().store(KEYS, range(10)).success
    assert engines(**changes).lookup(KEYS) == [False] * 10


def test_a_daemon_that_is_gone_or_stopped_is_a_miss(engines, daemon):
    engine = engines()
    assert engine.store(KEYS, range(10)).success
    daemon.signal(signal.SIGSTOP)
    started = time.monotonic()
    assert not engine.load(KEYS, range(10)).success
    assert time.monotonic() - started < 3
    daemon.signal(signal.SIGCONT)
    deadline = time.monotonic() + 20
    while not engine.load(KEYS, range(10)).success:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    daemon.kill()
    assert not engine.load(KEYS, range(10)).success and not engine.store(KEYS[:1], [0]).success
    assert engine.lookup(KEYS, "later") == [False] * 10


def test_the_spec_puts_pagoda_below_vllms_host_cache():
    from pagoda.vllm import PagodaOffloadingSpec

    given = config()
    given.extra_config["pagoda"] = {"host": "1GiB"}
    (tier,) = PagodaOffloadingSpec(given).secondary_tier_configs
    assert SecondaryTierFactory.get_tier_class(tier).__name__ == "PagodaTier"
    assert tier["options"] == {"host": "1GiB"}
