"""The engine that a daemon has started, over gRPC: the reference's tokens, prefixes reused, nothing
leaked."""

import json
import os
import pathlib
import signal

import grpc
import pytest
from pagoda_daemon import QUIET_STOP_SECONDS
from pagoda.v1 import engine_pb2, engine_pb2_grpc

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]) / "qwen3_tiny"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
CAPACITY = 1024
# The longest generation that the cache takes, and a queue of them: 700,000 tokens. A test that
# needs a busy engine during its next step, milliseconds, would find it idle only if the engine
# generated millions of tokens a second.
LONG_TOKENS = 3500
QUEUED = 200


def start_engine(start_daemon, cache=None, **server):
    daemon = start_daemon(engine={"model_dir": str(GOLDEN)}, cache={"layers": None, "primary": CAPACITY} | (cache or {}),
                          server={"http_address": "127.0.0.1:0"} | server)
    return daemon, engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)


@pytest.fixture
def engine(start_daemon):
    return start_engine(start_daemon)


def start_long_generation(stub):
    """A generation of LONG_TOKENS that has begun: its first tokens have come, and `call` gives the
    rest."""
    call = stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=LONG_TOKENS))
    return call, list(next(call).tokens)


def start_queue(daemon, stub):
    """One long generation that has begun, and QUEUED more behind it. Most have not ended."""
    running, _ = start_long_generation(stub)
    request = engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=LONG_TOKENS)
    waiting = [stub.Generate(request) for _ in range(QUEUED)]
    daemon.wait_until(lambda daemon: (engine := daemon.status().engine).waiting_requests + engine.running_requests > QUEUED // 2)
    return [running, *waiting]


def generated_tokens(daemon):
    """What the engine has generated since its start."""
    return daemon.engine_metric("generated_tokens_total")


def generate(stub, prompt, max_new_tokens, **fields):
    """(tokens, report) of one generation."""
    request = engine_pb2.GenerateRequest(prompt_tokens=prompt, max_new_tokens=max_new_tokens, **fields)
    responses = list(stub.Generate(request, timeout=120))
    assert all(not response.HasField("report") for response in responses[:-1])
    return [token for response in responses for token in response.tokens], responses[-1].report


def test_the_reference_tokens_come_and_a_second_time_from_the_cache(engine):
    daemon, stub = engine
    prompt, expected = EXPECTED["prompt"], EXPECTED["ids"]
    tokens, report = generate(stub, prompt, len(expected))
    assert tokens == expected
    assert (report.prompt_tokens, report.reused_tokens, report.generated_tokens) == (len(prompt), 0, len(expected))
    assert report.finish_reason == engine_pb2.FINISH_REASON_LENGTH
    assert 0 < report.time_to_first_token.ToNanoseconds() <= report.total_time.ToNanoseconds()

    tokens, report = generate(stub, prompt, len(expected))
    assert tokens == expected
    assert report.reused_tokens == len(prompt) - 1, "only the last token is computed; the tokens before it in its block are copied"
    tier = daemon.primary()
    assert tier.active_blocks == 0 and tier.cached_blocks > 0


def test_a_salt_keeps_prefixes_apart(engine):
    _, stub = engine
    first, _ = generate(stub, EXPECTED["prompt"], 5)
    salted, report = generate(stub, EXPECTED["prompt"], 5, namespace={"cache_salt": "other"})
    assert salted == first and report.reused_tokens == 0


def test_a_stop_token_ends_the_generation(engine):
    _, stub = engine
    expected = EXPECTED["ids"]
    tokens, report = generate(stub, EXPECTED["prompt"], len(expected), stop_tokens=[expected[3]])
    assert tokens == expected[:expected.index(expected[3]) + 1]
    assert report.finish_reason == engine_pb2.FINISH_REASON_STOP_TOKEN


def test_cancelled_generations_end_and_give_their_blocks_back(engine):
    """Cancels the running generation and the waiting ones. Without the cancels the engine would be
    busy for minutes, or generate all tokens."""
    daemon, stub = engine
    calls = start_queue(daemon, stub)
    for call in calls:
        call.cancel()
    daemon.wait_until(lambda daemon: daemon.engine_metric("waiting_requests") == 0)
    daemon.wait_until(lambda daemon: daemon.engine_metric("running_requests") == 0)
    assert daemon.primary().active_blocks == 0
    daemon.wait_until(lambda daemon: daemon.status().engine.waiting_requests == daemon.status().engine.running_requests == 0)
    assert generated_tokens(daemon) <= LONG_TOKENS * (QUEUED // 2 + 1)
    tokens, _ = generate(stub, EXPECTED["prompt"], len(EXPECTED["ids"]))
    assert tokens == EXPECTED["ids"]


def test_sigterm_lets_a_generation_end(start_daemon):
    """The drain waits as long as drain_timeout allows. If the generation ended before the signal,
    all checks would hold as well."""
    daemon, stub = start_engine(start_daemon, drain_timeout="5m")
    call, tokens = start_long_generation(stub)
    daemon.process.send_signal(signal.SIGTERM)
    responses = list(call)
    tokens += [token for response in responses for token in response.tokens]
    assert tokens[:len(EXPECTED["ids"])] == EXPECTED["ids"]
    assert len(tokens) == responses[-1].report.generated_tokens == LONG_TOKENS
    assert daemon.wait(QUIET_STOP_SECONDS) == 0, daemon.log.read_text()


def test_sigterm_ends_generations_that_outlast_the_drain(start_daemon):
    daemon, stub = start_engine(start_daemon, drain_timeout="0s")
    calls = start_queue(daemon, stub)
    assert daemon.terminate() == 0, daemon.log.read_text()
    ended = [call for call in calls if outcome(call) != grpc.StatusCode.OK]
    assert ended
    assert {outcome(call) for call in ended} <= {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}


def outcome(call):
    """The status code of a call, once it has ended."""
    try:
        for _ in call:
            pass
    except grpc.RpcError:
        pass
    return call.code()


@pytest.mark.parametrize("with_model", [False, True])
def test_the_daemons_own_grpc_does_not_generate(start_daemon, with_model):
    daemon = start_engine(start_daemon)[0] if with_model else start_daemon()
    stub = engine_pb2_grpc.EngineServiceStub(daemon.channel)
    with pytest.raises(grpc.RpcError) as failure:
        generate(stub, [1, 2, 3], 1)
    assert failure.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert daemon.status().HasField("engine") == with_model
