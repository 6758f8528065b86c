"""A real vLLM with Pagoda as its cache: the same tokens as without Pagoda, and the most possible
from the cache."""

import random

import pytest
from engine_processes import Daemon, Vllm, connector

pytest.importorskip("vllm", reason="vLLM is not installed")

BLOCK = 32
MODELS = ["qwen3", "gemma3"]


def whole(prompts):
    """Tokens that a cache of whole blocks has of each prompt, but for the last token."""
    return [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def one_by_one(vllm, prompts, **options):
    """Each prompt alone: its tokens, and how many of the prompt were cached."""
    answers = [vllm.generate([prompt], **options) for prompt in prompts]
    return [one["tokens"][0] for one in answers], [one["cached"][0] for one in answers]


@pytest.fixture
def plain(models, tmp_path):
    """plain(model, prompts) returns vLLM's output without a connector: computed, and with its own
    prefix cache."""
    def run(model, prompts, **options):
        with Vllm(tmp_path, models(model), name=f"plain-{model}", **options) as vllm:
            cold, _ = one_by_one(vllm, prompts)
            warm, cached = one_by_one(vllm, prompts)
            assert cached == whole(prompts)
        return cold, warm

    return run


@pytest.mark.parametrize("model", MODELS)
def test_same_tokens_cold_warm_and_from_pagoda(model, models, prompts, plain, tmp_path):
    """Also with sliding windows in five groups of layers."""
    asked = prompts(100, 33, 200, 333, 31, 640)
    cold, warm = plain(model, asked)
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models(model), kv_transfer_config=connector(daemon)) as vllm:
        assert one_by_one(vllm, asked) == (cold, [0] * len(asked))
        assert one_by_one(vllm, asked) == (warm, whole(asked)), "from vLLM's own cache"
        assert vllm.reset()
        assert one_by_one(vllm, asked) == (warm, whole(asked)), "from Pagoda"
        metrics = vllm.metrics()
        assert metrics["vllm:pagoda_hit_tokens"] == sum(whole(asked))
        assert metrics["vllm:external_prefix_cache_hits"] == sum(whole(asked))
        assert vllm.reset(connector=True)
        assert one_by_one(vllm, asked) == (cold, [0] * len(asked)), "after reset_cache nothing is cached"


def test_an_engine_that_cannot_use_cached_kv_is_left_alone(models, prompts, tmp_path):
    """vLLM's latent attention on the CPU: it would compute wrong tokens behind a prefix."""
    asked = prompts(100, 200)
    with Vllm(tmp_path, models("deepseek"), name="plain") as vllm:
        expected = one_by_one(vllm, asked)
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("deepseek"), kv_transfer_config=connector(daemon)) as vllm:
        for _ in range(2):
            assert one_by_one(vllm, asked) == expected
        assert "Pagoda is not used" in vllm.said()


def test_generated_tokens_are_cached_too(models, prompts, tmp_path):
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon)) as vllm:
        (prompt,) = prompts(50)
        turn = vllm.generate([prompt], max_tokens=100)["tokens"][0]
        assert vllm.reset()
        # The KV of the last token is not computed: 149 tokens have KV.
        assert vllm.generate([prompt + turn + [7] * 50])["cached"] == [128]


def test_what_differs_does_not_match(models, prompts, tmp_path):
    """Another salt, another model of the same shape, another type: each is a miss, and has its own
    tokens."""
    asked = prompts(200, 100)
    with Daemon(tmp_path / "daemon") as daemon:
        with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon)) as vllm:
            mine, _ = one_by_one(vllm, asked)
            assert vllm.reset()
            assert vllm.generate(asked, cache_salt="of a user")["cached"] == [0, 0]
            assert vllm.reset()
            assert vllm.generate(asked, cache_salt="of a user")["cached"] == whole(asked)
        with Vllm(tmp_path, models("qwen3-other"), kv_transfer_config=connector(daemon), name="other") as other:
            others, cached = one_by_one(other, asked)
            assert cached == [0, 0] and others != mine
        with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), dtype="bfloat16", name="bfloat16") as rounded:
            assert one_by_one(rounded, asked)[1] == [0, 0]
        with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="again") as again:
            assert one_by_one(again, asked)[1] == whole(asked)


def test_two_engines_share_one_copy(models, prompts, tmp_path):
    """Each reads what the other wrote, at once; the pool holds it once."""
    import pagoda

    first, second = prompts(*[300] * 6), prompts(*[300] * 6)
    with Daemon(tmp_path / "daemon") as daemon, \
            Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="a") as a, \
            Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="b") as b:
        for vllm, asked in ((a, first), (b, second)):
            vllm.send(do="generate", prompts=asked, max_tokens=4)
        written = {vllm: vllm.answer()["tokens"] for vllm in (a, b)}
        (cache,) = pagoda.list_caches(daemon.endpoint)
        used = cache.tiers[0].used_blocks
        for vllm, asked in ((a, second), (b, first)):
            vllm.send(do="generate", prompts=asked, max_tokens=4)
        crossed = {a: a.answer(), b: b.answer()}
        for vllm, other in ((a, b), (b, a)):
            assert crossed[vllm]["tokens"] == written[other]
            assert crossed[vllm]["cached"] == whole(first)
        (cache,) = pagoda.list_caches(daemon.endpoint)
        assert cache.sessions == 2
        assert used == cache.tiers[0].used_blocks == 12 * 9


@pytest.mark.parametrize("writer, reader", [(1, 2), (2, 1)])
@pytest.mark.parametrize("model", ["qwen3", "gemma3"])
def test_another_number_of_ranks_reads_it(writer, reader, model, models, prompts, tmp_path):
    """Each rank's heads are a range of one slot."""
    asked = prompts(200, 333, 64)
    with Daemon(tmp_path / "daemon") as daemon:
        with Vllm(tmp_path, models(model), kv_transfer_config=connector(daemon), tensor_parallel_size=writer, name="writer") as vllm:
            one_by_one(vllm, asked)
            warm, _ = one_by_one(vllm, asked)
        with Vllm(tmp_path, models(model), kv_transfer_config=connector(daemon), tensor_parallel_size=reader, name="reader") as vllm:
            tokens, cached = one_by_one(vllm, asked)
            assert cached == whole(asked)
            # Two ranks add numbers in another order than one rank, so only the first tokens must
            # agree.
            assert [one[0] for one in tokens] == [one[0] for one in warm]
            assert one_by_one(vllm, asked) == (tokens, cached), "vLLM's own cache gives the same"


def test_chunks_and_preemption(models, prompts, plain, tmp_path):
    """Prompts in chunks of 64 tokens; and so many at once that vLLM has to preempt."""
    asked = prompts(*[150] * 12)
    options = {"max_num_batched_tokens": 64, "max_num_seqs": 12, "num_gpu_blocks_override": 40}
    with Vllm(tmp_path, models("qwen3"), name="plain", **options) as vllm:
        expected, _ = one_by_one(vllm, asked, max_tokens=100)
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), **options) as vllm:
        for _ in range(3):
            answer = vllm.generate(asked, max_tokens=100)
            assert answer["tokens"] == expected
            assert vllm.reset()
        assert vllm.metrics()["vllm:num_preemptions"] > 0
        assert sum(answer["cached"]) > 0


def test_a_cache_a_tenth_of_what_is_asked(models, plain, tmp_path):
    """200 requests with shared prefixes."""
    rng = random.Random(3)
    roots = [[rng.randrange(5, 500) for _ in range(160)] for _ in range(20)]
    asked = [rng.choice(roots) + [rng.randrange(5, 500) for _ in range(96)] for _ in range(200)]
    with Vllm(tmp_path, models("qwen3"), name="plain", enable_prefix_caching=False) as vllm:
        expected = vllm.generate(asked, max_tokens=8)["tokens"]
    # A block of the model has 64 KiB. 200 requests have 8 blocks each. The first 5 blocks of a
    # request are those of one of 20 roots. Together these are 700 blocks.
    with Daemon(tmp_path / "daemon", host="4MiB") as daemon, Vllm(
            tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, host="100%"), num_gpu_blocks_override=80) as vllm:
        hits = 0
        for _ in range(2):
            answer = vllm.generate(asked, max_tokens=8)
            assert answer["tokens"] == expected
            hits += vllm.metrics()["vllm:pagoda_hit_tokens"]
            assert vllm.reset()
        assert hits > 0
        assert "Error" not in daemon.log.read_text()
