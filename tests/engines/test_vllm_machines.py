"""Two machines, each with a pagodad and a vLLM: a store between them, and prefill and decode
apart. The second vLLM gives the tokens that one vLLM gives from its own cache."""

import time

import pytest
from engine_processes import Daemon, Vllm, connector
from redis_server import RedisServer

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.skipif(RedisServer.program is None, reason="redis-server is not installed")

BLOCK = 32
DEADLINE = 20  # Seconds, for a machine with other load.


def whole(prompts):
    return [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def one_by_one(vllm, prompts, **options):
    answers = [vllm.generate([prompt], **options) for prompt in prompts]
    return [one["tokens"][0] for one in answers], [one["cached"][0] for one in answers]


@pytest.fixture
def machine(models, tmp_path):
    """machine(name, ...) is the folder's daemon, which answers others and fetches from them, and
    the options of a vLLM with it."""
    def make(name, store=None, model="qwen3", role="kv_both"):
        sections = {"peers": {"address": "127.0.0.1:0", "sources": ["127.0.0.1:*"]}, "fetch": {"base": f"{DEADLINE}s"}}
        if store:
            sections["store"] = {"servers": [store.address], "publish": {"min_uses": 0, "delay": "0s"}}
        daemon = Daemon(tmp_path / f"daemon-{name}", extra=sections)
        return daemon, lambda: Vllm(tmp_path, models(model), name=name,
                                    kv_transfer_config=connector(daemon, fetch_deadline=DEADLINE) | {"kv_role": role})

    return make


def wait_for(happens):
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_prompt_of_one_machine_is_a_hit_on_another(machine, prompts):
    asked = prompts(100, 33, 200, 333, 31, 640)
    with RedisServer() as redis:
        (daemon, vllm), (other_daemon, other_vllm) = machine("a", redis), machine("b", redis)
        with daemon, other_daemon:
            with vllm() as first:
                cold, cached = one_by_one(first, asked)
                assert cached == [0] * len(asked)
                warm, cached = one_by_one(first, asked)
                assert cached == whole(asked)
                # Generated tokens are whole blocks too: 15 of 16 have KV.
                blocks = {tuple((prompt + tokens)[:end]) for prompt, tokens in zip(asked, cold)
                          for end in range(BLOCK, len(prompt) + 15 + 1, BLOCK)}
                wait_for(lambda: redis.keys() == len(blocks))
            with other_vllm() as second:
                assert one_by_one(second, asked) == (warm, whole(asked))
                metrics = second.metrics()
                assert metrics["vllm:pagoda_remote_hit_tokens"] == metrics["vllm:pagoda_hit_tokens"] == sum(whole(asked))
                assert metrics["vllm:external_prefix_cache_hits"] == sum(whole(asked))
                redis.pause()
                (fresh,) = prompts(250)
                assert one_by_one(second, [fresh[:40]], max_tokens=4)[1] == [0], "a store that stands still costs its deadline"
                redis.go_on()


def test_a_cache_that_cannot_be_exchanged_is_computed(machine, prompts):
    """Sliding windows: each machine computes for itself, and asks nobody more than once."""
    asked = prompts(100, 200)
    with RedisServer() as redis:
        (daemon, vllm), (other_daemon, other_vllm) = machine("a", redis, "gemma3"), machine("b", redis, "gemma3")
        with daemon, other_daemon:
            with vllm() as first:
                cold, _ = one_by_one(first, asked)
            with other_vllm() as second:
                assert one_by_one(second, asked) == (cold, [0, 0])
            assert redis.keys() == 0


def test_a_prompt_is_prefilled_on_one_machine_and_decoded_on_another(machine, prompts):
    """No store: the decode side's daemon fetches from the prefill side's."""
    asked = prompts(100, 333, 640)
    (daemon, vllm), (other_daemon, other_vllm) = machine("p", role="kv_producer"), machine("d", role="kv_consumer")
    with daemon, other_daemon, vllm() as prefill, other_vllm() as decode:
        transfers = []
        for prompt in asked:
            answer = prefill.generate([prompt], max_tokens=1)
            (transfer,) = answer["transfers"]
            assert transfer["pagoda"]["tokens"] == len(prompt) // BLOCK * BLOCK
            transfers.append(transfer)
            answer = decode.generate([prompt], transfer=transfer)
            assert answer["cached"] == whole([prompt]) and answer["transfers"] == [None]
        assert decode.metrics()["vllm:pagoda_remote_hit_tokens"] == sum(whole(asked))
        # The tokens are those of an engine that has the prompt in its own cache.
        expected, cached = one_by_one(prefill, asked)
        assert cached == whole(asked)
        assert decode.reset(connector=True)
        got = [decode.generate([prompt], transfer=transfer) for prompt, transfer in zip(asked, transfers)]
        assert [one["cached"] for one in got] == [[tokens] for tokens in whole(asked)]
        assert [one["tokens"][0] for one in got] == expected


def test_an_engine_of_both_roles_hands_over_what_it_is_told_to(machine, prompts):
    asked = prompts(200, 100)
    (daemon, vllm), (other_daemon, other_vllm) = machine("a"), machine("b")
    with daemon, other_daemon, vllm() as first, other_vllm() as second:
        assert first.generate(asked, max_tokens=1)["transfers"] == [None, None]
        answer = first.generate(asked, max_tokens=1, transfer={"do_remote_decode": True})
        for prompt, transfer in zip(asked, answer["transfers"]):
            assert second.generate([prompt], transfer=transfer)["cached"] == whole([prompt])
        (wrong,) = prompts(150)
        nowhere = {"pagoda": {"source": "127.0.0.1:1", "tokens": 128}}
        assert second.generate([wrong[::-1]], transfer=nowhere)["cached"] == [0], "a source that is away costs the hit alone"
