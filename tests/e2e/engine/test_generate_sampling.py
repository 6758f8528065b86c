"""Sampling, several samples, draft tokens, priorities and tenants' quotas, through EngineService
and HTTP of the engine that a daemon has started."""

import http.client
import json
import re
import time
import urllib.error
import urllib.request

import grpc
import pagodactl
import pytest
from pagoda_client import call_status, reason_of
from pagoda.v1 import admin_pb2, engine_pb2, engine_pb2_grpc
from pagoda_daemon import HTTP
from test_generate import EXPECTED, GOLDEN, LONG_TOKENS, generate, start_engine, start_long_generation

PROMPT = EXPECTED["prompt"]
RED, BLUE, OPERATOR = (f"token-of-{name}-0123456789" for name in ("red", "blue", "the-operator"))
SAMPLED = {"temperature": 1.2, "top_k": 40, "top_p": 0.9}


@pytest.fixture
def stub(start_daemon):
    return start_engine(start_daemon)[1]


def samples(stub, max_new_tokens, **fields):
    """(tokens of each sample, report)"""
    request = engine_pb2.GenerateRequest(prompt_tokens=PROMPT, max_new_tokens=max_new_tokens, **fields)
    said = {}
    for response in stub.Generate(request, timeout=120):
        for token in response.generated:
            said.setdefault(token.sample, []).append(token.token)
    return [said[sample] for sample in sorted(said)], response.report


def test_the_same_seed_says_the_same_and_another_does_not(stub):
    first, _ = generate(stub, PROMPT, 30, seed=5, **SAMPLED)
    again, report = generate(stub, PROMPT, 30, seed=5, **SAMPLED)
    other, _ = generate(stub, PROMPT, 30, seed=6, **SAMPLED)
    assert first == again and report.reused_tokens == len(PROMPT) - 1, "cached blocks do not change the tokens"
    assert first != other
    greedy, _ = generate(stub, PROMPT, 30)
    assert first != greedy == EXPECTED["ids"][:30] + greedy[len(EXPECTED["ids"]):]


def test_each_option_narrows_what_is_drawn(stub):
    greedy, _ = generate(stub, PROMPT, 20)
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        assert generate(stub, PROMPT, 20, seed=3, **({"temperature": 2.0} | narrow))[0] == greedy, narrow
    firsts = {top_k: {generate(stub, PROMPT, 1, temperature=50.0, top_k=top_k, seed=seed)[0][0] for seed in range(40)} for top_k in (2, 0)}
    assert len(firsts[2]) == 2 and len(firsts[0]) > 20, "at this temperature all candidates are almost equally likely"


def test_four_samples_are_four_seeds_and_count_together(stub):
    said, report = samples(stub, 25, num_samples=4, seed=9, **SAMPLED)
    assert [generate(stub, PROMPT, 25, seed=9 + sample, **SAMPLED)[0] for sample in range(4)] == said
    assert len({tuple(tokens) for tokens in said}) == 4
    assert (report.prompt_tokens, report.generated_tokens, len(report.finish_reasons)) == (len(PROMPT), 100, 4)
    assert report.tokens_per_second > 0


def test_draft_tokens_change_nothing_but_the_steps(start_daemon):
    daemon, stub = start_engine(start_daemon)
    prompt = PROMPT + PROMPT
    for fields in ({}, {"temperature": 0.3, "seed": 4}):
        plain, _ = generate(stub, prompt, 400, **fields)
        drafted, report = generate(stub, prompt, 400, max_draft_tokens=6, **fields)
        assert drafted == plain
        assert 0 < report.accepted_draft_tokens <= report.drafted_tokens
    told = pagodactl.run_json(daemon, "generate", "--prompt-tokens", ",".join(map(str, prompt)), "--max-new-tokens", "400",
                              "--draft-tokens", "6")["report"]
    assert 0 < told["accepted_draft_tokens"] <= told["drafted_tokens"] and told["preemptions"] == 0


# --- Tenants ---


def start_tenants(start_daemon, red, blue, engine={}, **cache):
    return start_daemon(
        engine={"model_dir": str(GOLDEN)} | engine, cache={"layers": None, "primary": 3200} | cache, operator_token=OPERATOR,
        secrets={"red.tokens": RED, "blue.tokens": BLUE}, server={"http_address": "127.0.0.1:0"},
        tenants=[{"name": "red", "tokens_file": "red.tokens"} | red, {"name": "blue", "tokens_file": "blue.tokens"} | blue])


def stub_of(daemon, token):
    return engine_pb2_grpc.EngineServiceStub(daemon.connect_engine(token))


def refusal(stub, prompt, max_new_tokens, **fields):
    with pytest.raises(grpc.RpcError) as failure:
        generate(stub, prompt, max_new_tokens, **fields)
    return reason_of(call_status(failure.value)), failure.value.details()


def test_a_quota_binds_its_own_tenant_alone(start_daemon):
    # A block has 4 tokens. One long generation takes at most 900 blocks.
    daemon = start_tenants(start_daemon, {"primary_blocks": 1000}, {})
    red, blue = stub_of(daemon, RED), stub_of(daemon, BLUE)
    alone, _ = generate(blue, PROMPT, LONG_TOKENS)
    longest = 1000 * 4 - len(PROMPT) + 1
    reason, message = refusal(red, PROMPT, longest + 1)
    assert reason == "INVALID_COUNT" and "the quota of the tenant 'red' is 1000" in message
    request = engine_pb2.GenerateRequest(prompt_tokens=PROMPT, max_new_tokens=LONG_TOKENS)
    calls = [stub.Generate(request, timeout=120) for stub in (red, red, blue)]
    ended = []
    for call in calls:
        responses = list(call)
        assert [token for response in responses for token in response.tokens] == alone
        ended.append(responses[-1].report)
    assert ended[0].preemptions + ended[1].preemptions > 0, "two generations do not fit red's quota"
    assert ended[2].preemptions == 0 and ended[2].reused_tokens == len(PROMPT) - 1
    use = {tenant.name: tenant.use[0] for tenant in daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=20).tenants}
    assert 0 < use["red"].used_blocks <= 1000


def test_what_waits_is_bounded_in_bytes(start_daemon):
    daemon = start_tenants(start_daemon, {}, {}, engine={"max_running_sequences": 1, "max_waiting_bytes": 1 << 20})
    red, blue = stub_of(daemon, RED), stub_of(daemon, BLUE)
    # The stop tokens have 400 KB. Red has a sixth of the bytes for itself, and can use the half
    # that all share.
    stop_tokens = [511 - number % 256 for number in range(100_000)]
    reason, message = refusal(red, PROMPT, 4, stop_tokens=2 * stop_tokens)
    assert reason == "INVALID_COUNT" and "engine.max_waiting_bytes" in message
    long_call, _ = start_long_generation(red)
    waits = red.Generate(engine_pb2.GenerateRequest(prompt_tokens=PROMPT, max_new_tokens=4, stop_tokens=stop_tokens), timeout=120)
    daemon.wait_until(lambda daemon: daemon.status().engine.waiting_requests == 1)
    reason, message = refusal(red, PROMPT, 4, stop_tokens=stop_tokens)
    assert reason == "QUEUE_FULL" and "1 request of the tenant 'red' with" in message and "engine.max_waiting_bytes" in message
    others = blue.Generate(engine_pb2.GenerateRequest(prompt_tokens=PROMPT, max_new_tokens=4, stop_tokens=stop_tokens[:40_000]), timeout=120)
    daemon.wait_until(lambda daemon: daemon.status().engine.waiting_requests == 2)
    long_call.cancel()
    assert list(waits) and list(others)


def complete(daemon, token, **fields):
    """(status, answer) of a completion over HTTP."""
    body = json.dumps({"model": GOLDEN.name, "prompt": PROMPT, "max_tokens": 4, "temperature": 0} | fields).encode()
    request = urllib.request.Request(f"http://{daemon.engine_http_address}/v1/completions", body,
                                     {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    try:
        with HTTP.open(request, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def outcomes(daemon):
    """How generations over HTTP have ended."""
    metrics = daemon.engine_http_as("/metrics", OPERATOR)[1]
    return {name: int(re.search(rf'pagoda_http_generations_total{{outcome="{name}"}} (\d+)\n', metrics)[1])
            for name in ("answered", "refused", "failed")}


def test_http_has_draft_tokens_and_counts_how_generations_end(start_daemon):
    daemon = start_tenants(start_daemon, {"primary_blocks": 1000}, {})
    _, plain = complete(daemon, BLUE, max_tokens=400, ignore_eos=True, return_token_ids=True)
    _, drafted = complete(daemon, BLUE, max_tokens=400, ignore_eos=True, return_token_ids=True, max_draft_tokens=6)
    assert drafted["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    assert 0 < drafted["pagoda"]["accepted_draft_tokens"] <= drafted["pagoda"]["drafted_tokens"]
    assert plain["pagoda"]["drafted_tokens"] == 0
    assert outcomes(daemon) == {"answered": 2, "refused": 0, "failed": 0}
    # The engine learns of the quota when it runs the request. Nothing was generated, and another
    # try fails too.
    status, answer = complete(daemon, RED, max_tokens=1000 * 4 - len(PROMPT) + 2)
    assert status == 400 and answer["error"]["code"] == "invalid_count" and "the quota of the tenant 'red' is 1000" in answer["error"]["message"]
    assert outcomes(daemon) == {"answered": 2, "refused": 1, "failed": 0}
    # A client that closes its connection after the first token.
    host, port = daemon.engine_http_address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({"model": GOLDEN.name, "prompt": PROMPT, "max_tokens": LONG_TOKENS, "stream": True,
                                                              "ignore_eos": True}), {"Authorization": f"Bearer {BLUE}"})
    reply = connection.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    reply.close()
    connection.close()
    end = time.monotonic() + 60
    while outcomes(daemon)["failed"] == 0:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert outcomes(daemon) == {"answered": 2, "refused": 1, "failed": 1}


def test_a_tenants_priority_has_a_limit(start_daemon):
    daemon = start_tenants(start_daemon, {}, {"max_priority": 3})
    red, blue = stub_of(daemon, RED), stub_of(daemon, BLUE)
    reason, message = refusal(red, PROMPT, 4, priority=1)
    assert reason == "PERMISSION_DENIED" and "priority is 1; the tenant 'red' may ask for at most 0" in message
    assert refusal(blue, PROMPT, 4, priority=4)[0] == "PERMISSION_DENIED"
    for stub, priority in ((red, 0), (blue, 3), (engine_pb2_grpc.EngineServiceStub(daemon.engine_channel), 1000)):
        assert generate(stub, PROMPT, 4, priority=priority)[0] == EXPECTED["ids"][:4]
    status, answer = complete(daemon, RED, priority=1)
    assert status == 403 and "max_priority" in answer["error"]["message"]
    for token, priority in ((RED, -5), (RED, 0), (BLUE, 3), (OPERATOR, 1000)):
        status, answer = complete(daemon, token, priority=priority)
        assert status == 200, answer
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(PROMPT) - 1
    assert {"time_to_first_token_seconds", "tokens_per_second", "reused_tokens", "reused_lower_tokens", "preemptions", "drafted_tokens",
            "accepted_draft_tokens"} <= set(answer["pagoda"])
    metrics = daemon.engine_http_as("/metrics", OPERATOR)[1]
    for outcome, count in (("answered", 4), ("refused", 1), ("failed", 0)):
        assert f'pagoda_http_generations_total{{outcome="{outcome}"}} {count}\n' in metrics
