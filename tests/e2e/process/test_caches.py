"""Several caches in one daemon. Clients open them, work in them side by side, and end them, with
the package and with pagodactl."""

import asyncio
import contextlib
import json
import threading

import numpy as np
import pagoda
import pagoda.aio
import pytest
from caches_daemon import BLOCK_BYTES, IDENTITY, LAYERS, MEMORY, TOKENS_PER_BLOCK, CachesDaemon
from engine_process import MODEL
from engine_process import run as run_engine
from google.protobuf import json_format
from pagoda.v1 import admin_pb2, caches_pb2, status_pb2, types_pb2
from pagodactl import PAGODA_PLAN, run, run_json, run_message, run_ok

BLOCKS = (1 << 20) // BLOCK_BYTES


@pytest.fixture
def start_caches(tmp_path):
    """start_caches(memory=..., ...) starts a CachesDaemon. It is stopped at the end, with every
    check."""
    with contextlib.ExitStack() as running:
        def start(**sections):
            folder = tmp_path / f"daemon-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return running.enter_context(CachesDaemon(folder, **sections))

        yield start


@pytest.fixture
def daemon(start_caches):
    return start_caches()


def keep(client, prompt, value):
    """Caches a prompt's KV, which is `value` everywhere."""
    (pool,) = client.pools()
    with client.sequence(prompt) as sequence:
        sequence.wait_ready()
        for slot in sequence.table.slots:
            pool.writable_array[slot] = value
        sequence.commit(computed=len(prompt))


def found(client, prompt):
    """The KV of a prompt's cached whole blocks."""
    (pool,) = client.pools()
    with client.sequence(prompt) as sequence:
        sequence.wait_ready()
        return pool.array[sequence.table.slots[:sequence.matched_tokens // TOKENS_PER_BLOCK]].copy()


# --- Opening ---


def test_a_daemon_without_a_cache_waits_for_clients(daemon):
    assert (daemon.caches(), daemon.free()) == ({}, MEMORY)
    with pytest.raises(pagoda.NotFound) as refusal:
        pagoda.connect(daemon.endpoint)
    assert refusal.value.reason == "UNKNOWN_CACHE"
    assert "waits for clients" in run_ok(daemon, "status")
    assert not run_message(daemon, admin_pb2.GetStatusResponse(), "status").HasField("cache")


def test_over_http_the_status_needs_no_cache_and_strangers_see_no_budgets(start_caches):
    daemon = start_caches(server={"http_address": "127.0.0.1:0"})
    status = daemon.told("status", admin_pb2.GetStatusResponse())
    assert status.state == status_pb2.DAEMON_STATE_SERVING and not status.HasField("cache")
    daemon.open("llama")
    # Without configured callers, a client behind a proxy is a stranger.
    operator, stranger = (daemon.told("caches", caches_pb2.ListCachesResponse(), **headers) for headers in ({}, {"Via": "1.1 proxy"}))
    for answer, is_whole in ((operator, True), (stranger, False)):
        (row,) = answer.caches
        assert (row.cache.name, row.tiers[0].bytes > 0) == ("llama", True)
        assert [row.HasField("identity"), len(row.layers) > 0, len(answer.budgets) == 1] == [is_whole] * 3


def test_what_a_client_opens_is_what_it_asked_for(daemon):
    opened = daemon.open("llama", layers=[*LAYERS, pagoda.Layers.key_only(1, head_dim=16, dtype="float16", window=64)], host="25%")
    assert opened.created and (opened.cache.name, opened.cache.tokens_per_block) == ("llama", TOKENS_PER_BLOCK)
    assert [window.window_size for window in opened.cache.windows] == [64, 0]
    assert [(tier.name, tier.medium) for tier in opened.cache.tiers] == [("host", pagoda.Medium.HOST)]
    (cache,) = pagoda.list_caches(daemon.endpoint)
    assert (cache.identity, cache.cache, cache.epoch, cache.tenant, cache.sessions) == (IDENTITY, opened.cache, opened.epoch, "", 0)
    assert [(group.count, group.kind, group.window) for group in cache.layers] == [
        (2, pagoda.LayerKind.KEY_VALUE, 0), (1, pagoda.LayerKind.KEY_ONLY, 64)]
    (tier,) = cache.tiers
    assert 0.95 * MEMORY / 4 < tier.bytes <= MEMORY / 4
    assert daemon.free() == MEMORY - tier.bytes, "only whole blocks are taken"
    assert tier.capacity_blocks == sum(window.blocks[0] for window in opened.cache.windows) and tier.used_blocks == 0
    with pagoda.connect(daemon.endpoint) as client:
        windowed, full = sorted(client.pools(), key=lambda pool: -pool.window_size)
        assert (windowed.window_size, windowed.shape[2], windowed.array.dtype) == (64, 1, np.float16), "K only"
        assert (full.window_size, full.shape[2], full.array.dtype) == (0, 2, np.float32)


@pytest.mark.parametrize("change, reason", [
    ({"disk": "1MiB"}, "OUT_OF_MEMORY"), ({"host": None, "disk": "1MiB"}, "INVALID_ARGUMENT"), ({"tenant": "nobody"}, "UNKNOWN_TENANT")])
def test_what_cannot_be_is_refused_and_leaves_nothing(daemon, change, reason):
    with pytest.raises(pagoda.PagodaError) as refusal:
        daemon.open("llama", **change)
    assert refusal.value.reason == reason
    assert (daemon.caches(), daemon.free()) == ({}, MEMORY)


# --- Working ---


def test_two_caches_are_worked_in_side_by_side(daemon):
    prompt = list(range(40))
    daemon.open("a")
    daemon.open("b", model="org/gemma", host="50%")
    with pagoda.connect(daemon.endpoint, cache="a") as a, pagoda.connect(daemon.endpoint, cache="b") as b:
        assert (a.cache.name, b.cache.name) == ("a", "b") and a.epoch != b.epoch
        keep(a, prompt, 1.5)
        assert b.match(prompt).matched_tokens == 0, "it does not match the other model's KV"
        keep(b, prompt, 2.5)
        assert (found(a, prompt) == 1.5).all() and (found(b, prompt) == 2.5).all()
        assert len(found(a, prompt)) == len(found(b, prompt)) == 9
        assert a.status().cache.name == "a" and b.status().windows[0].tiers[0].capacity_blocks > BLOCKS
        assert (daemon.caches()["a"].sessions, daemon.caches()["a"].tiers[0].used_blocks) == (1, 10)
        assert a.reset_prefix_cache() == 10
        assert (a.match(prompt).matched_tokens, b.match(prompt).matched_tokens) == (0, 39)


def test_a_watch_is_of_one_cache(daemon):
    daemon.open("a")
    daemon.open("b")
    with pagoda.connect(daemon.endpoint, cache="a") as a, pagoda.connect(daemon.endpoint, cache="b") as b:
        with a.watch(types=[pagoda.Stored]) as of_client, pagoda.watch(daemon.endpoint, cache="b", types=[pagoda.Stored]) as of_b:
            keep(a, [7] * 8, 1)
            keep(b, [9] * 8, 1)
            for watch, client, token in ((of_client, a, 7), (of_b, b, 9)):
                stored = next(watch)
                assert stored.blocks[0].tokens == (token,) * TOKENS_PER_BLOCK and watch.epoch == client.epoch


def test_two_caches_are_loaded_at_once(daemon):
    failures = []

    def load(name):
        try:
            with pagoda.connect(daemon.endpoint, cache=name) as client:
                for turn in range(40):
                    prompt = [turn] * 32
                    keep(client, prompt, ord(name))
                    assert (found(client, prompt) == ord(name)).all()
        except BaseException as error:  # pylint: disable=broad-exception-caught
            failures.append((name, error))

    for name in "ab":
        daemon.open(name)
    threads = [threading.Thread(target=load, args=name) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- Ending ---


def test_a_cache_that_never_had_a_session_ends_soon(start_caches):
    daemon = start_caches(memory={"linger": "1h"})
    for name in ("used", "unused"):
        daemon.open(name)
    with pagoda.connect(daemon.endpoint, cache="used"):
        pass
    daemon.wait_until(lambda daemon: all(cache.ends_in is not None for cache in daemon.caches().values()))
    ends_in = {name: cache.ends_in for name, cache in daemon.caches().items()}
    assert 0 < ends_in["unused"] <= 30 and 3500 < ends_in["used"] <= 3600


def test_one_tenant_cannot_take_all_places_for_caches(monkeypatch, start_caches):
    tokens = {name: f"tenant-{name}-0123456789abcdef" for name in ("a", "b")}
    daemon = start_caches(memory={"max_caches": 12}, operator_token="operator-0123456789abcdef",
                          secrets={f"{name}.tokens": token for name, token in tokens.items()},
                          tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in tokens])
    (daemon.folder / "token").write_text("operator-0123456789abcdef\n")
    monkeypatch.setenv("PAGODA_TOKEN_FILE", str(daemon.folder / "token"))  # For the checks at the end.
    with pytest.raises(pagoda.Exhausted) as refusal:
        for number in range(12):
            daemon.open(f"a{number}", token=tokens["a"])
    assert refusal.value.reason == "TOO_MANY_CACHES" and number == 8, "a sixth of them, and the half that all share"
    for number in range(2):
        daemon.open(f"b{number}", token=tokens["b"])


# --- Beside the configuration's cache ---


def test_a_daemon_without_memory_for_them_opens_none(start_daemon):
    daemon = start_daemon()
    with pytest.raises(pagoda.Exhausted, match="--memory") as refusal:
        pagoda.open_cache(f"unix:{daemon.unix_socket}", "a", identity=IDENTITY, layers=LAYERS, tokens_per_block=4)
    assert refusal.value.reason == "OUT_OF_MEMORY"


def test_pagoda_engine_names_its_cache(start_daemon):
    daemon = start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": 16, "primary": 256}, memory={"host": "4MiB"})
    endpoint, own = f"unix:{daemon.unix_socket}", daemon.config["cache"]["name"]
    pagoda.open_cache(endpoint, "guest", identity=IDENTITY, layers=LAYERS, tokens_per_block=4, host="1MiB")
    arguments = ["--connect", endpoint, "--model", MODEL, "--prompt-tokens", "1,2,3", "--max-new-tokens", 2, "-o", "json"]
    status, _, said = run_engine(*arguments)
    assert status == 1 and "CACHE_NOT_NAMED" in said
    status, out, said = run_engine(*arguments, "--cache", own)
    assert status == 0 and '"generated_tokens":2' in out, said
    assert pagoda.drop_cache(endpoint, "guest") == 0


# --- asyncio and pagodactl ---


def test_two_models_run_in_one_daemon_and_are_found_after_it_was_killed(start_caches):
    """Two engines in processes of their own, each with a model and a cache that it brings."""
    daemon = start_caches(memory={"host": "1MiB", "warm_restart": True})
    models = {name: MODEL.parent / name for name in ("qwen3_tiny", "gemma2_tiny")}
    prompt = ",".join(str(5 + token % 60) for token in range(64))

    def answer(name):
        status, out, said = run_engine("--connect", daemon.endpoint, "--cache", name, "--open-cache", "8MiB", "--model", models[name],
                                       "--prompt-tokens", prompt, "--max-new-tokens", 12, "-o", "json")
        assert status == 0, said
        told = json.loads(out)
        return told["tokens"], told["reused_tokens"]

    first = {name: answer(name) for name in models}
    assert {reused for _, reused in first.values()} == {0}
    assert set(daemon.caches()) == set(models)
    again = {name: answer(name) for name in models}
    assert {name: tokens for name, (tokens, _) in again.items()} == {name: tokens for name, (tokens, _) in first.items()}
    assert {reused for _, reused in again.values()} == {63}
    status, _, said = run_engine("--connect", daemon.endpoint, "--cache", "gemma2_tiny", "--model", models["qwen3_tiny"], "--prompt-tokens", prompt,
                                 "--max-new-tokens", 2)
    assert status == 1 and "MODEL_MISMATCH" in said
    daemon.kill()
    daemon.start()
    assert set(daemon.caches()) == set(models)
    assert {name: answer(name) for name in models} == again
    for name in models:
        pagoda.drop_cache(daemon.endpoint, name)


def test_asyncio_has_the_same(daemon):
    async def work():
        asked = {"layers": LAYERS, "tokens_per_block": TOKENS_PER_BLOCK, "host": "1MiB"}
        for name in "ab":
            assert (await pagoda.aio.open_cache(daemon.endpoint, name, identity=IDENTITY, **asked)).created
        with pytest.raises(pagoda.Conflict) as refusal:
            await pagoda.aio.open_cache(daemon.endpoint, "a", identity=pagoda.CacheIdentity("org/other"), **asked)
        assert refusal.value.reason == "CACHE_MISMATCH"
        with pytest.raises(pagoda.Conflict):
            await pagoda.aio.connect(daemon.endpoint)
        async with pagoda.aio.connect(daemon.endpoint, cache="b") as client, client.watch() as watch:
            async with pagoda.aio.watch(daemon.endpoint, cache="a") as other:
                assert watch.epoch == client.epoch != other.epoch
            assert {cache.name: cache.sessions for cache in await client.caches()} == {"a": 0, "b": 1}
            assert (await client.status()).cache.name == "b"
            with pytest.raises(pagoda.Conflict):
                await pagoda.aio.drop_cache(daemon.endpoint, "b")
            assert await client.drop_cache("a") == 0
            assert await pagoda.aio.drop_cache(daemon.endpoint, "b", force=True) == 1
            with pytest.raises(pagoda.SessionGone):
                await client.match([1])
        assert not (await pagoda.aio.list_caches(daemon.endpoint)).caches

    asyncio.run(work())


def test_pagodactl_opens_lists_shows_and_drops(daemon):
    layers = ["--layers", "2x2x8:float32", "1xK16:float16@64"]
    out = run_ok(daemon, "caches", "open", "llama", "--model", "org/llama", "--tokens-per-block", 4, *layers, "--host", "25%")
    assert out.startswith("the cache llama is open\n") and "window 64: host" in out
    again = run_json(daemon, "caches", "open", "llama", "--model", "org/llama", "--tokens-per-block", 4, *layers)
    assert again["created"] is False
    refused = run(daemon, "caches", "open", "llama", "--model", "org/llama", "--tokens-per-block", 8, *layers)
    assert refused.returncode == 1 and "CACHE_MISMATCH" in refused.stderr
    daemon.open("gemma")

    listed = run_message(daemon, caches_pb2.ListCachesResponse(), "caches")
    assert [(row.cache.name, [window.window_size for window in row.cache.windows], [group.count for group in row.layers])
            for row in listed.caches] == [("llama", [64, 0], [2, 1]), ("gemma", [0], [2])]
    assert list(listed.budgets) == [caches_pb2.BudgetRow(medium=types_pb2.MEDIUM_HOST, bytes=MEMORY, free_bytes=daemon.free())]
    table = run_ok(daemon, "caches")
    assert "org/llama" in table and "2 caches" in table and "64.0 MiB" in table
    assert "2x2x8:float32 1xK16:float16@64" in run_ok(daemon, "caches", "show", "llama")

    with pagoda.connect(daemon.endpoint, cache="gemma", name="engine-0"):
        unnamed = run(daemon, "sessions")
        assert unnamed.returncode == 1 and "CACHE_NOT_NAMED" in unnamed.stderr and "--cache NAME" in unnamed.stderr
        assert [row["client_name"] for row in run_json(daemon, "sessions", "--cache", "gemma")["sessions"]] == ["engine-0"]
        assert run_json(daemon, "sessions", "--cache", "llama")["sessions"] == []
        statuses = [json_format.Parse(line, admin_pb2.GetStatusResponse()) for line in run_ok(daemon, "status", "-o", "json").splitlines()]
        assert [(one.cache.name, one.sessions) for one in statuses] == [("llama", 0), ("gemma", 1)]
        assert run_message(daemon, admin_pb2.GetStatusResponse(), "status", "--cache", "gemma").sessions == 1
        assert run_ok(daemon, "status").count("pagodad ") == 1
        top = run(daemon, "top", "--once", "--interval", "0.1", "--cache", "gemma")
        assert top.returncode == 0 and "gemma" in top.stdout
        used = run(daemon, "caches", "drop", "gemma")
        assert used.returncode == 1 and "CACHE_IN_USE" in used.stderr and "--force" in used.stderr
        assert run_ok(daemon, "caches", "drop", "gemma", "--force") == "the cache gemma is dropped; 1 session ended\n"
    assert run_ok(daemon, "caches", "drop", "llama") == "the cache llama is dropped\n"
    daemon.wait_until(lambda daemon: daemon.free() == MEMORY)


def test_commands_work_in_a_named_cache(daemon):
    for name in "ab":
        daemon.open(name)
    workload = run_json(daemon, "workload", "--cache", "b", "--conversations", "2", "--turns", "1", program=PAGODA_PLAN)
    assert workload["turns"] == 2
    used = {name: cache.tiers[0].used_blocks for name, cache in daemon.caches().items()}
    assert used["a"] == 0 and used["b"] > 0
    assert run_json(daemon, "bench", "--cache", "a", "--seconds", "0.2", "--batch", "16")


def test_a_daemon_with_several_caches_is_drained(daemon):
    for name in "ab":
        daemon.open(name)
    assert run_json(daemon, "drain", "--wait") == {}
    assert daemon.wait(20) == 0
