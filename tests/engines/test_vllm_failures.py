"""Failures of the cache, or of something beside it, under a real vLLM: hits are lost, and nothing
else."""

import os
import random
import signal
import subprocess
import time

import pagoda
import pytest
from engine_processes import Daemon, Vllm, connector

pytest.importorskip("vllm", reason="vLLM is not installed")

BLOCK = 32


def whole(prompts):
    return [(len(prompt) - 1) // BLOCK * BLOCK for prompt in prompts]


def wait_until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"the condition is not met in {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def asked():
    """40 prompts, of which half share prefixes."""
    rng = random.Random(5)
    roots = [[rng.randrange(5, 500) for _ in range(256)] for _ in range(4)]
    return [rng.choice(roots) + [rng.randrange(5, 500) for _ in range(rng.randrange(40, 400))] for _ in range(40)]


@pytest.fixture
def expected(asked, models, tmp_path):
    with Vllm(tmp_path, models("qwen3"), name="plain") as vllm:
        return vllm.generate(asked)["tokens"]


def test_the_daemon_is_killed_and_comes_back(asked, expected, models, tmp_path):
    """Failures at ten moments of loads and saves. Cached content is found again, without a restart
    of vLLM."""
    rng = random.Random(1)
    with Daemon(tmp_path / "daemon", warm_restart=True) as daemon, \
            Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, timeout=1)) as vllm:
        calm = vllm.generate(asked)
        assert calm["tokens"] == expected
        for _ in range(10):
            assert vllm.reset()
            vllm.send(do="generate", prompts=asked, max_tokens=16)
            time.sleep(rng.random() * calm["seconds"])
            daemon.kill()
            answer = vllm.answer()
            assert answer["tokens"] == expected and set(answer["reasons"]) == {"length"}
            print(f"with a kill: {answer['seconds']:.2f} s; without: {calm['seconds']:.2f} s")
            assert answer["seconds"] < 2 * calm["seconds"] + 2
            daemon.start()
            (cache,) = pagoda.list_caches(daemon.endpoint)
            with pagoda.connect(daemon.endpoint, cache=cache.name) as client:
                assert client.match(asked[0]).matched_tokens >= whole([asked[0]])[0], "the restarted daemon has the contents"
            assert vllm.reset()
            wait_until(lambda: vllm.generate([asked[0]])["cached"] == whole([asked[0]]) and vllm.reset())
        lost = vllm.metrics()["vllm:pagoda_lost_sessions"]
        assert lost >= 10


def test_the_daemon_is_stopped_for_ten_seconds(asked, expected, models, tmp_path):
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, timeout=1)) as vllm:
        calm = vllm.generate(asked)
        assert vllm.reset()
        vllm.send(do="generate", prompts=asked, max_tokens=16)
        time.sleep(calm["seconds"] / 4)
        daemon.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        answer = vllm.answer()
        assert answer["tokens"] == expected
        for prompt, tokens in zip(asked[:5], expected):
            one = vllm.generate([prompt])
            assert one["tokens"] == [tokens] and one["seconds"] < 1 + calm["seconds"]
        assert answer["seconds"] < 3 + 2 * calm["seconds"], "one time-out of a second each for scheduler and worker, and the computation"
        time.sleep(max(10 - (time.monotonic() - stopped), 0))
        daemon.signal(signal.SIGCONT)
        assert vllm.reset()
        wait_until(lambda: vllm.generate([asked[1]])["cached"] == whole([asked[1]]) and vllm.reset())


def test_vllm_starts_without_a_daemon_and_finds_it(asked, expected, models, tmp_path):
    daemon = Daemon(tmp_path / "daemon")
    with Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, start_timeout=1)) as vllm:
        assert vllm.generate(asked)["tokens"] == expected
        with daemon:
            def found():
                assert vllm.reset()
                return vllm.generate([asked[0]])["cached"] == whole([asked[0]])

            wait_until(found)


def test_blocks_on_disk_come_back(models, prompts, tmp_path):
    """The host tier holds a few prompts, and the disk holds all."""
    asked = prompts(*[300] * 30)
    with Vllm(tmp_path, models("qwen3"), name="plain") as vllm:
        expected = vllm.generate(asked)["tokens"]
    with Daemon(tmp_path / "daemon", host="8MiB", disk="64MiB") as daemon, \
            Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, host="100%", disk="100%")) as vllm:
        for prompt, tokens in zip(asked, expected):
            assert vllm.generate([prompt])["tokens"] == [tokens]
            time.sleep(0.05)  # Time for the disk.
        assert vllm.reset()
        answers = [vllm.generate([prompt]) for prompt in asked]
        assert [one["tokens"][0] for one in answers] == expected
        metrics = vllm.metrics()
        assert metrics["vllm:pagoda_disk_hit_tokens"] > 300
        assert sum(one["cached"][0] for one in answers) >= metrics["vllm:pagoda_disk_hit_tokens"]


def test_a_killed_engine_costs_the_others_nothing(asked, expected, models, tmp_path):
    with Daemon(tmp_path / "daemon") as daemon, Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="a") as a, \
            Vllm(tmp_path, models("qwen3"), kv_transfer_config=connector(daemon), name="b") as b:
        a.send(do="generate", prompts=asked, max_tokens=16)
        time.sleep(0.3)
        workers = subprocess.run(["pgrep", "-f", "VLLM::Worker", "-s", str(a.process.pid)], capture_output=True, text=True).stdout.split()
        assert workers
        for worker in workers:
            os.kill(int(worker), signal.SIGKILL)
        assert b.generate(asked)["tokens"] == expected
        a.close()
        assert b.reset()
        answer = b.generate(asked)
        assert answer["tokens"] == expected and answer["cached"] == whole(asked)
        wait_until(lambda: pagoda.list_caches(daemon.endpoint).caches[0].sessions == 1, 60)


def test_a_tenants_quota(asked, expected, models, tmp_path):
    """A tenant's quota of memory bounds its cache. Further blocks are not cached, no request fails,
    and the tokens are the same. The daemon has 64 times as much memory, and the connector asks for
    all of it."""
    quota = 4 << 20
    folder = tmp_path / "daemon"
    folder.mkdir()
    token = folder / "a.token"
    token.write_text("secret-of-a-tenant\n")
    token.chmod(0o600)
    extra = {"tenants": [{"name": "a", "tokens_file": str(token), "cache_memory": {"host": "4MiB"}}]}
    with Daemon(folder, extra=extra) as daemon, Vllm(
            tmp_path, models("qwen3"), kv_transfer_config=connector(daemon, host="100%", token_file=str(token))) as vllm:
        assert vllm.generate(asked)["tokens"] == expected
        assert vllm.metrics()["vllm:pagoda_unsaved_requests"] > 0, "the cache was full for some requests"
        for prompt, tokens in zip(asked[:10], expected):
            assert vllm.reset() and vllm.generate([prompt])["tokens"] == [tokens]
        secret = token.read_text().strip()
        caches = pagoda.list_caches(daemon.endpoint, token=secret)
        (cache,), (tier,) = caches, caches.caches[0].tiers
        block = tier.bytes // tier.capacity_blocks
        assert cache.tenant == "a" and quota - block < tier.bytes <= quota < sum(len(prompt) // BLOCK for prompt in asked) * block
        assert tier.used_blocks >= tier.capacity_blocks - 2, "the tier is full, apart from blocks that the last request did not fill"
        (budget,) = (budget for budget in caches.budgets if budget.medium is pagoda.Medium.HOST)
        assert budget.bytes == 64 * quota and budget.free_bytes < block, "nothing is free for the tenant"
        with pytest.raises(pagoda.Exhausted, match="of the tenant's limit") as refused:
            pagoda.open_cache(daemon.endpoint, "more", identity=pagoda.CacheIdentity("org/more"), tokens_per_block=BLOCK,
                              layers=[pagoda.Layers.opaque(1, bytes_per_block=block)], host=block, token=secret)
        assert refused.value.reason == "OUT_OF_MEMORY"
        assert vllm.metrics()["vllm:pagoda_saved_bytes"] > quota, "more was saved than the quota holds, so blocks were evicted"
        assert vllm.reset()
        answer = vllm.generate(asked)
        assert answer["tokens"] == expected and set(answer["reasons"]) == {"length"}
        assert 0 < sum(answer["cached"]) < sum(whole(asked))
