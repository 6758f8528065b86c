"""The bundled engine in its own process. The cache survives the engine's death, and the engine
survives the daemon's."""

import json
import random
import signal
import subprocess
import time

import pool_view
import pytest
from engine_process import MODEL, PAGODA_ENGINE, EngineProcess, run
from pagoda_client import Client, handles
from pagoda_daemon import QUIET_STOP_SECONDS
from redis_server import RedisServer
from tcp_proxy import TcpProxy

EXPECTED = json.loads((MODEL / "expected.json").read_text())
PROMPT, IDS = EXPECTED["prompt"], EXPECTED["ids"]
TOKENS_PER_BLOCK = 16
CAPACITY = 1024
# Long enough that a test finds the generation under way. Its first tokens are the reference tokens.
LONG_TOKENS = 3500
LEASE_SECONDS = 2


@pytest.fixture
def start_cache(start_daemon):
    """A daemon whose cache is the model's, and that does not run it."""
    def start(**cache):
        return start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": TOKENS_PER_BLOCK,
                                   "primary": CAPACITY} | cache)

    return start


@pytest.fixture
def cache(start_cache):
    return start_cache()


def hits(daemon):
    """(tokens looked up, tokens found) since the daemon's start."""
    window = daemon.status().windows[0]
    return window.prefix_lookup_tokens_total, window.prefix_hit_tokens_total


def cached_bytes(daemon, tokens):
    """{slot: its bytes} of the cached whole blocks of a prompt, as another process sees them."""
    with Client(daemon.channel, "looker") as looker:
        view = pool_view.map_pool(looker.pools()[0])
        blocks = handles(looker.match(tokens).blocks)[:(len(tokens) - 1) // TOKENS_PER_BLOCK]
        assert len(blocks) == (len(tokens) - 1) // TOKENS_PER_BLOCK
        return {block.slot_index: view[block.slot_index].tobytes() for block in blocks}


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_generating(daemon, blocks):
    """Waits until a sequence has grown to this many blocks. It generates, and has committed most of
    what it computed."""
    daemon.wait_until(lambda daemon: daemon.primary().active_blocks >= blocks)


def wait_until_nothing_is_held(daemon):
    """Until the dead engine's session is over and all its blocks are free or cached."""
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    daemon.wait_until(lambda daemon: daemon.primary().active_blocks + daemon.primary().in_flight_blocks == 0)


def test_the_reference_tokens_come_over_the_daemons_cache(cache):
    with EngineProcess(cache) as engine:
        answer = engine.generate(PROMPT, len(IDS), id="first")
        assert answer["id"] == "first" and answer["tokens"] == IDS
        assert (answer["prompt_tokens"], answer["reused_tokens"], answer["finish_reason"]) == (len(PROMPT), 0, "length")
        assert 0 < answer["time_to_first_token_ms"] <= answer["total_ms"]
        assert cache.status().sessions == 1 and not cache.status().HasField("engine")
        assert engine.finish() == 0
    wait_until_nothing_is_held(cache)


def test_an_engine_killed_while_idle_finds_its_prefixes_and_their_bytes(cache):
    with EngineProcess(cache, "--lease-seconds", LEASE_SECONDS) as engine:
        assert engine.generate(PROMPT, len(IDS))["tokens"] == IDS
        before = cached_bytes(cache, PROMPT)
        engine.kill()
    with EngineProcess(cache, "--lease-seconds", LEASE_SECONDS) as engine:
        looked_up, found = hits(cache)
        answer = engine.generate(PROMPT, len(IDS))
        assert answer["tokens"] == IDS
        assert answer["reused_tokens"] == len(PROMPT) - 1, "only the last token is computed, because its logits are needed"
        assert hits(cache) == (looked_up + len(PROMPT), found + len(PROMPT) - 1)
        assert cached_bytes(cache, PROMPT) == before
        assert engine.finish() == 0
    wait_until_nothing_is_held(cache)


@pytest.mark.parametrize("blocks", [len(PROMPT) // TOKENS_PER_BLOCK + 1, 20, 100])
def test_an_engine_killed_while_it_generates_finds_what_it_had_committed(cache, blocks):
    """The next engine finds the committed blocks at once, while the dead engine's session still has
    its lease. The uncommitted blocks come back later."""
    with EngineProcess(cache, "--lease-seconds", LEASE_SECONDS) as engine:
        engine.send(PROMPT, LONG_TOKENS)
        wait_until_generating(cache, blocks)
        before = cached_bytes(cache, PROMPT)
        engine.kill()
        assert not engine.has_answered()
    with EngineProcess(cache, "--lease-seconds", LEASE_SECONDS) as engine:
        answer = engine.generate(PROMPT, len(IDS))
        assert answer["tokens"] == IDS
        # The killed engine's sequence continues behind the prompt. If the prompt ends inside a
        # block, that block does not match as a whole.
        assert answer["reused_tokens"] >= len(PROMPT) - TOKENS_PER_BLOCK
        assert cached_bytes(cache, PROMPT) == before
        continued = PROMPT + IDS
        assert engine.generate(continued, 1)["reused_tokens"] >= len(continued) - TOKENS_PER_BLOCK
        assert engine.finish() == 0
    wait_until_nothing_is_held(cache)
    tier = cache.primary()
    assert tier.free_blocks + tier.cached_blocks == CAPACITY and tier.cached_blocks >= blocks - 2


def test_two_engines_share_a_system_prompt(cache):
    rng = random.Random(5)
    with EngineProcess(cache, "--name", "one") as one, EngineProcess(cache, "--name", "two") as two:
        assert one.generate(PROMPT, len(IDS))["tokens"] == IDS
        answer = two.generate(PROMPT, len(IDS))
        assert (answer["tokens"], answer["reused_tokens"]) == (IDS, len(PROMPT) - 1)

        # Both engines run at once, each with its own user prompt behind the system prompt. Then
        # each runs the same prompt without the cache, under a new salt.
        questions = {engine: PROMPT + [rng.randrange(512) for _ in range(40)] for engine in (one, two)}
        for engine, question in questions.items():
            for _ in range(4):
                engine.send(question, 40)
        for engine, question in questions.items():
            answers = [engine.answer() for _ in range(4)]
            assert answers[0]["reused_tokens"] >= len(PROMPT) - TOKENS_PER_BLOCK
            alone = engine.generate(question, 40, cache_salt=f"nobody else's {id(engine)}")
            assert alone["reused_tokens"] == 0
            assert [answer["tokens"] for answer in answers] == 4 * [alone["tokens"]]
        assert cache.status().sessions == 2
        assert one.finish() == 0 and two.finish() == 0


def restart_after_drain(daemon):
    assert daemon.terminate() == 0, daemon.log.read_text()
    daemon.start()


def restart_after_kill(daemon):
    daemon.kill()
    daemon.start()


@pytest.mark.parametrize("restart", [restart_after_drain, restart_after_kill])
def test_a_generation_outlives_its_daemon(cache, restart):
    """It runs again from its beginning, in a session with the next daemon."""
    with EngineProcess(cache, "--timeout", 3) as engine:
        engine.send(PROMPT, LONG_TOKENS, id=7)
        wait_until_generating(cache, 20)
        restart(cache)
        answer = engine.answer()
        assert answer["id"] == 7 and "error" not in answer, answer
        assert len(answer["tokens"]) == LONG_TOKENS and answer["tokens"][:len(IDS)] == IDS
        assert "lost the session" in engine.said and "continues in a new session" in engine.said
        assert engine.said.count("through shared memory") == 2, "it says so of each session"
        assert engine.generate(PROMPT, len(IDS))["tokens"] == IDS
        assert engine.finish() == 0
    wait_until_nothing_is_held(cache)


def test_an_idle_engine_opens_a_session_with_the_next_daemon(cache):
    with EngineProcess(cache, "--lease-seconds", LEASE_SECONDS) as engine:
        assert engine.generate(PROMPT, len(IDS))["tokens"] == IDS
        restart_after_kill(cache)
        cache.wait_until(lambda daemon: daemon.status().sessions == 1)
        engine.wait_until_said("continues in a new session")
        assert engine.generate(PROMPT, len(IDS))["tokens"] == IDS
        assert engine.finish() == 0


def test_an_engine_gives_up_when_no_daemon_comes(cache):
    with EngineProcess(cache, "--timeout", 1, "--reconnect-seconds", 1) as engine:
        engine.send(PROMPT, LONG_TOKENS, id=1)
        wait_until_generating(cache, 20)
        cache.kill()
        answer = engine.answer()
        assert answer["id"] == 1 and answer["error"]["reason"] == "UNAVAILABLE", answer
        assert engine.wait(60) == 3, engine.said


@pytest.mark.parametrize("over", ["unix", "tcp"])
@pytest.mark.parametrize("killed", ["before the drain", "in the drain"])
def test_a_daemon_whose_engine_was_killed_ends_at_once(start_cache, over, killed):
    """The drain ends well below its drain_timeout. The dead engine's calls have ended, and the
    drain does not wait for its session's lease, which still runs."""
    cache = start_cache(secondary=512)
    with EngineProcess(cache, endpoint=cache.grpc_address if over == "tcp" else None) as engine:
        for _ in range(8):
            engine.send(PROMPT, LONG_TOKENS)
        wait_until_generating(cache, 20)
        if killed == "before the drain":
            engine.kill()
            assert cache.status().sessions == 1
            assert cache.terminate(QUIET_STOP_SECONDS) == 0, cache.log.read_text()
        else:
            cache.process.send_signal(signal.SIGTERM)
            engine.kill()
            assert cache.wait(QUIET_STOP_SECONDS) == 0, cache.log.read_text()


def test_broken_connections_do_not_disturb_a_generation(cache):
    """The session outlives them, and every batch runs once."""
    with TcpProxy(cache.grpc_address) as proxy, EngineProcess(cache, endpoint=proxy.address) as engine:
        engine.send(PROMPT, LONG_TOKENS)
        cuts = 0
        while not engine.has_answered():
            engine.wait_for_answer(0.3)
            cuts += proxy.cut() > 0
        answer = engine.answer()
        assert len(answer["tokens"]) == LONG_TOKENS and answer["tokens"][:len(IDS)] == IDS
        assert cuts >= 3
        assert cache.status().sessions == 1 and "lost the session" not in engine.said
        assert engine.finish() == 0
    wait_until_nothing_is_held(cache)


def test_an_engine_that_stood_still_for_longer_than_its_lease_goes_on_in_another_session(cache):
    with TcpProxy(cache.grpc_address) as proxy, EngineProcess(cache, "--lease-seconds", 1, endpoint=proxy.address) as engine:
        assert engine.generate(PROMPT, len(IDS))["tokens"] == IDS
        engine.stop()
        proxy.cut()  # The lease does not run while a stream is open.
        cache.wait_until(lambda daemon: daemon.status().sessions == 0)
        engine.go_on()
        answer = engine.generate(PROMPT, len(IDS))
        assert (answer["tokens"], answer["reused_tokens"]) == (IDS, len(PROMPT) - 1)
        assert "lost the session" in engine.said
        assert engine.finish() == 0


def test_a_signal_ends_an_engine_and_its_session(cache):
    with EngineProcess(cache) as engine:
        assert engine.generate(PROMPT, 1)["tokens"] == IDS[:1]
        assert engine.terminate() == 0, engine.said
    wait_until_nothing_is_held(cache)
    with EngineProcess(cache) as engine:
        engine.send(PROMPT, LONG_TOKENS)
        wait_until_generating(cache, 20)
        assert engine.terminate() == 1
        assert engine.answer()["error"]["reason"] == "CANCELLED"
    wait_until_nothing_is_held(cache)


def test_one_signal_ends_an_answer_whose_daemon_is_away(cache, tmp_path):
    """What was said before is printed. The search for a daemon does not go on for a minute."""
    out, err = tmp_path / "out", tmp_path / "err"
    command = ["setpriv", "--pdeathsig", "KILL", PAGODA_ENGINE, "--connect", f"unix:{cache.unix_socket}", "--model", MODEL,
               "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-new-tokens", str(LONG_TOKENS), "--reconnect-seconds", "60"]
    with out.open("w") as stdout, err.open("w") as stderr, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr) as process:
        try:
            wait_until(lambda: len(out.read_text().split()) > len(IDS))
            cache.kill()
            wait_until(lambda: "looking for a daemon" in err.read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert out.read_text().split()[:len(IDS)] == [str(token) for token in IDS]
    assert "stopped" in err.read_text()


def test_a_bad_request_is_answered_and_the_others_run(cache):
    lines = ['{"id": 1, "prompt": [1, -2]}', "no JSON", '{"prompt": [1], "temperature": "warm"}', '{"id": [1], "prompt": [1]}',
             '{"id": "long", "prompt": [1], "max_new_tokens": 4294967295}', "",
             json.dumps({"id": "good", "prompt": PROMPT, "max_new_tokens": len(IDS), "stop_tokens": [IDS[3]]})]
    status, out, err = run("--connect", f"unix:{cache.unix_socket}", "--model", MODEL, "--requests", "-", stdin="\n".join(lines))
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer.get("error", {}).get("reason") for answer in answers] == 4 * ["INVALID_ARGUMENT"] + ["INVALID_PROMPT", None]
    assert [answer["id"] for answer in answers] == [1, None, None, [1], "long", "good"]
    assert answers[-1]["tokens"] == IDS[:IDS.index(IDS[3]) + 1] and answers[-1]["finish_reason"] == "stop token"
    assert status == 1 and "5 of 6 requests failed" in err


def test_a_cache_of_another_model_is_refused_by_both_names(cache):
    other = MODEL.parent / "qwen3_tiny_untied_bf16"
    status, _, err = run("--connect", f"unix:{cache.unix_socket}", "--model", other, "--prompt-tokens", "1")
    assert status == 1 and "MODEL_MISMATCH" in err
    assert err.count("Qwen3ForCausalLM-") == 2, err


def test_one_generation_and_the_exit_codes(cache, tmp_path):
    where = ("--connect", f"unix:{cache.unix_socket}", "--model", MODEL)
    prompt_file = tmp_path / "prompt"
    prompt_file.write_text(" ".join(map(str, PROMPT)))
    status, out, err = run(*where, "--prompt-file", prompt_file, "--max-new-tokens", len(IDS))
    assert status == 0 and out.splitlines()[0] == " ".join(map(str, IDS)), err
    status, out, _ = run(*where, "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-new-tokens", len(IDS), "-o", "json")
    assert status == 0 and json.loads(out)["tokens"] == IDS and json.loads(out)["reused_tokens"] == len(PROMPT) - 1
    assert run(*where, "--prompt-tokens", "1", "--salt", "s")[0] == 0
    status, out, err = run(*where, "--max-new-tokens", 8, stdin="Hello\nAnd you?\n")
    assert status == 0 and err.count("first token after") == 2, "without a prompt it chats"
    assert run(*where, "--kv", "basic", "--prompt-tokens", "1")[0] == 2, "only with --local"
    assert run(*where, "--prompt-tokens", "one")[0] == 2
    assert run("--prompt-tokens", "1")[0] == 2, "no model"
    assert run("--help")[0] == 0
    assert run(*where, "--prompt-tokens", "600")[0] == 1, "outside the vocabulary"
    status, _, err = run("--connect", f"unix:{tmp_path}/nobody.sock", "--model", MODEL, "--prompt-tokens", "1")
    assert status == 3 and "--connect" in err


def test_requests_run_side_by_side_and_get_the_answers_that_they_get_alone(cache):
    requests = [{"id": i, "prompt": PROMPT[: 20 + i], "max_new_tokens": 12} for i in range(24)]
    sampled = [{"id": 100 + i, "prompt": PROMPT, "max_new_tokens": 10, "temperature": 1.5, "seed": i, "num_samples": 2} for i in range(4)]
    lines = "\n".join(json.dumps(request) for request in requests + sampled)

    def answers(concurrency):
        status, out, err = run("--connect", f"unix:{cache.unix_socket}", "--model", MODEL, "--requests", "-", "--concurrency", str(concurrency),
                               stdin=lines)
        assert status == 0, err
        said = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
        return {id: [sample["tokens"] for sample in answer.get("samples", [answer])] for id, answer in said.items()}

    together = answers(16)
    assert together == answers(1)
    assert len(together) == len(requests) + len(sampled)
    assert together[100][0] != together[100][1], "the samples differ"


def test_the_basic_cache_needs_no_daemon_and_gives_the_same_tokens():
    status, out, err = run("--local", "--model", MODEL, "--kv", "basic", "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-new-tokens", str(len(IDS)),
                           "-o", "json")
    assert status == 0, err
    assert json.loads(out)["tokens"] == IDS
    requests = [{"id": i, "prompt": PROMPT, "max_new_tokens": len(IDS)} for i in range(20)]
    status, out, err = run("--local", "--model", MODEL, "--kv", "basic", "--requests", "-", "--concurrency", 16,
                           stdin="\n".join(map(json.dumps, requests + [{"id": 20, "prompt": PROMPT, "max_new_tokens": 2, "beam_width": 9}])))
    answers = {answer["id"]: answer for answer in map(json.loads, out.splitlines())}
    assert [answers[i]["tokens"] for i in range(20)] == 20 * [IDS], err
    assert status == 1 and answers[20]["error"]["reason"] == "INVALID_COUNT"
    status, out, err = run("--local", "--model", MODEL, "--kv", "quadratic", "--prompt-tokens", "1")
    assert status == 2 and "basic" in out + err and "paged" in out + err
    status, out, err = run("--local", "--model", MODEL, "--kv", "basic", "--backend", "cuda", "--prompt-tokens", "1")
    assert status == 1 and "--kv basic" in err and "--backend" in err and "primary_memory" not in err


@pytest.mark.skipif(RedisServer.program is None, reason="redis-server is not installed")
def test_a_prompt_that_another_machine_computed_comes_from_the_store(start_daemon):
    prompt = [1 + token * 7 % 50 for token in range(100)]
    with RedisServer() as redis:
        daemons = [start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": TOKENS_PER_BLOCK, "primary": CAPACITY},
                                store={"servers": [redis.address], "publish": {"min_uses": 0, "delay": "0s"}}, fetch={"base": "20s"})
                   for _ in range(2)]
        with EngineProcess(daemons[0]) as engine:
            computed = engine.generate(prompt, 8)
            assert computed["reused_tokens"] == 0
        # Each whole block of the prompt and of the answer's first seven tokens.
        daemons[0].wait_until(lambda _: redis.keys() == (len(prompt) + 7) // TOKENS_PER_BLOCK)
        with EngineProcess(daemons[1]) as engine:
            fetched = engine.generate(prompt, 8)
            assert fetched["tokens"] == computed["tokens"]
            assert fetched["reused_tokens"] == len(prompt) // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK
            # A store that has gone costs hits alone.
            redis.kill()
            other = engine.generate(prompt[::-1], 8)
            assert other["reused_tokens"] == 0 and len(other["tokens"]) == 8
