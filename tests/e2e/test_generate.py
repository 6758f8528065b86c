"""The bundled engine over gRPC: the reference's tokens, prefixes reused, nothing leaked."""

import json
import os
import pathlib
import time

import grpc
import pytest
from pagoda_client import call_status, reason_of
from pagoda.v1 import engine_pb2, engine_pb2_grpc

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]) / "qwen3_tiny"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
CAPACITY = 1024
TOKENS_PER_BLOCK = 4


@pytest.fixture
def engine(start_daemon):
    daemon = start_daemon(engine={"model_dir": str(GOLDEN)}, cache={"layers": None, "primary_blocks": CAPACITY})
    return daemon, engine_pb2_grpc.EngineServiceStub(daemon.channel)


def generate(stub, prompt, max_new_tokens, **fields):
    """(tokens, report) of one generation."""
    request = engine_pb2.GenerateRequest(prompt_tokens=prompt, max_new_tokens=max_new_tokens, **fields)
    responses = list(stub.Generate(request, timeout=60))
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
    assert report.reused_tokens == (len(prompt) - 1) // TOKENS_PER_BLOCK * TOKENS_PER_BLOCK
    tier = daemon.primary()
    assert tier.active_blocks == 0 and tier.cached_blocks > 0


def test_a_conversation_reuses_its_last_turn(engine):
    _, stub = engine
    prompt = EXPECTED["prompt"]
    answer, _ = generate(stub, prompt, 10)
    next_turn = prompt + answer + [5, 6, 7]
    _, report = generate(stub, next_turn, 5)
    assert report.reused_tokens >= len(prompt) + len(answer) - 1


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


def refusal(stub, prompt, max_new_tokens=1):
    with pytest.raises(grpc.RpcError) as failure:
        generate(stub, prompt, max_new_tokens)
    return failure.value.code(), reason_of(call_status(failure.value))


def test_prompts_that_cannot_be_are_refused(engine):
    daemon, stub = engine
    vocabulary, longest = daemon.status().engine.vocab_size, daemon.status().engine.max_sequence_tokens
    for prompt, max_new_tokens in [([], 1), ([vocabulary], 1), ([1] * (longest + 1), 1), ([1, 2], 2**32 - 1)]:
        code, reason = refusal(stub, prompt, max_new_tokens)
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PROMPT"), (len(prompt), max_new_tokens)
    assert refusal(stub, [1], 0) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_COUNT")
    assert daemon.primary().free_blocks == CAPACITY


def test_a_cancelled_generation_gives_its_blocks_back(engine):
    daemon, stub = engine
    request = engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=3500)
    call = stub.Generate(request, timeout=60)
    next(call)
    assert daemon.primary().active_blocks > 0
    call.cancel()
    daemon.wait_until(lambda daemon: daemon.primary().active_blocks == 0)
    daemon.wait_until(lambda daemon: daemon.status().engine.running_requests == 0)
    tokens, _ = generate(stub, EXPECTED["prompt"], len(EXPECTED["ids"]))
    assert tokens == EXPECTED["ids"]


def test_requests_at_the_same_time_all_get_the_reference_tokens(engine):
    daemon, stub = engine
    request = engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=len(EXPECTED["ids"]))
    calls = [stub.Generate(request, timeout=60) for _ in range(6)]
    for call in calls:
        assert [token for response in call for token in response.tokens] == EXPECTED["ids"]
    assert daemon.primary().active_blocks == 0


def test_sigterm_waits_for_a_generation_or_ends_it_in_time(engine):
    daemon, stub = engine
    call = stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=EXPECTED["prompt"], max_new_tokens=3500))
    next(call)
    begun = time.monotonic()
    assert daemon.terminate() == 0, daemon.log.read_text()
    assert time.monotonic() - begun < 10


def test_a_daemon_without_a_model_says_so(daemon):
    code, reason = refusal(engine_pb2_grpc.EngineServiceStub(daemon.channel), [1, 2, 3])
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_ENGINE")
    assert not daemon.status().HasField("engine")
