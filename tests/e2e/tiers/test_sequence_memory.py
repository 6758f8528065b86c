"""A tenant forks long sequences. Their memory is shared and bounded, and another tenant goes on."""

import grpc
import pytest
from pagoda_client import Client, OperationError, authorized, reason_of
from pagoda.v1 import admin_pb2, cache_pb2, types_pb2

QUIET, GREEDY, OPERATOR = (f"token-of-{name}-0123456789" for name in ("quiet", "greedy", "the-operator"))
QUOTA = 2
TOKENS = 4096
MIB = 1 << 20


def start(start_daemon, **cache):
    return start_daemon(
        cache={"primary": 256, **cache}, operator_token=OPERATOR, secrets={"quiet.tokens": QUIET, "greedy.tokens": GREEDY},
        tenants=[{"name": "quiet", "tokens_file": "quiet.tokens"},
                 {"name": "greedy", "tokens_file": "greedy.tokens", "primary_blocks": QUOTA}])


def resident_bytes(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def usage(daemon, name):
    tenants = daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=20).tenants
    return next(tenant for tenant in tenants if tenant.name == name)


def long_prompt(sequence_id, reserved_tokens=4):
    """More tokens than the quota holds. Capacity is reserved only for its beginning."""
    ranges = [types_pb2.RetentionRange(token_start=i, token_end=i + 1, priority=50) for i in range(TOKENS)]
    return cache_pb2.AddSequenceRequest(sequence_id=sequence_id, tokens=range(TOKENS), extra_token_ids=[7] * TOKENS,
                                        reserved_tokens=reserved_tokens, retention=ranges)


def refusals(result):
    return [each.error for each in result.results if each.HasField("error")]


def works(client):
    """Another tenant's sequence from its beginning to its end, found again."""
    prompt = list(range(70_000, 70_040))
    client.cache(1, prompt)
    return client.match(prompt).matched_tokens > 0


def test_forks_of_a_long_prompt_take_no_memory_for_its_tokens(start_daemon):
    # In a sliding window a prompt is added piece by piece, so it can be longer than the quota.
    daemon = start(start_daemon, layers=[{"count": 2, "window": 64, "num_kv_heads": 1, "head_dim": 8}])
    greedy = Client(authorized(daemon.connect(), GREEDY), "greedy", lease_ms=60_000)
    quiet = Client(authorized(daemon.connect(), QUIET), "quiet", lease_ms=60_000)
    before = resident_bytes(daemon)
    greedy.run(add_sequence=long_prompt(1))
    errors = []
    for batch in range(16):  # Up to 65,536 forks. A copy of the prompt's data would take 350 KiB.
        forks = [cache_pb2.Operation(fork_sequence=cache_pb2.ForkSequenceRequest(sequence_id=1, new_sequence_id=2 + 4096 * batch + i))
                 for i in range(4096)]
        errors = refusals(greedy.batch(*forks))
        if errors:
            break
    grown = resident_bytes(daemon) - before
    told = usage(daemon, "greedy")
    print(f"{told.sequences} sequences keep {told.sequence_bytes / MIB:.1f} MiB; the daemon grew by {grown / MIB:.1f} MiB")
    assert {reason_of(error) for error in errors} == {"TOO_MANY_SEQUENCES"}
    assert {error.code for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
    assert told.sequences == told.max_sequences < 65_536
    assert told.sequence_bytes <= told.max_sequence_bytes
    assert grown < 200 * MIB
    assert works(quiet)
    greedy.close()
    assert usage(daemon, "greedy").sequence_bytes == 0
    quiet.close()


def test_long_prompts_are_bounded(start_daemon):
    daemon = start(start_daemon, layers=[{"count": 2, "window": 64, "num_kv_heads": 1, "head_dim": 8}])
    greedy = Client(authorized(daemon.connect(), GREEDY), "greedy", lease_ms=60_000)
    quiet = Client(authorized(daemon.connect(), QUIET), "quiet", lease_ms=60_000)
    before = resident_bytes(daemon)
    # A prompt takes one block of the quota. Its fork takes none, but keeps all data of the prompt.
    errors, sequence_id = [], 0
    while not errors:
        sequence_id += 1
        errors = refusals(greedy.batch(
            cache_pb2.Operation(add_sequence=long_prompt(2 * sequence_id)),
            cache_pb2.Operation(fork_sequence=cache_pb2.ForkSequenceRequest(sequence_id=2 * sequence_id, new_sequence_id=2 * sequence_id + 1)),
            cache_pb2.Operation(free_sequence=cache_pb2.FreeSequenceRequest(sequence_id=2 * sequence_id))))
    grown = resident_bytes(daemon) - before
    told = usage(daemon, "greedy")
    print(f"{told.sequences} sequences keep {told.sequence_bytes / MIB:.1f} MiB; the daemon grew by {grown / MIB:.1f} MiB")
    assert reason_of(errors[0]) == "SEQUENCE_BYTES_EXHAUSTED"
    assert told.sequence_bytes <= told.max_sequence_bytes < 256 * MIB
    assert grown < 1.5 * told.max_sequence_bytes
    assert works(quiet)
    greedy.close()
    quiet.close()


def test_a_prompt_that_the_quota_can_never_hold_is_not_to_be_tried_again(start_daemon):
    daemon = start(start_daemon)
    greedy = Client(authorized(daemon.connect(), GREEDY), "greedy", lease_ms=60_000)
    with pytest.raises(OperationError) as refused:
        greedy.run(add_sequence=long_prompt(1))
    assert refused.value.reason == "INVALID_COUNT" and f"quota is {QUOTA}" in refused.value.message
    greedy.close()
