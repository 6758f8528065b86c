"""pagoda-engine --serve: OpenAI's API and Generate in a process beside the daemon. The engine acts
for the tenant that asks, with that tenant's credentials."""

import json
import re
import socket
import threading
import time

import grpc
import pytest
from pagoda_client import call_status, reason_of
from serving_engine import ServingEngine
from test_generate import EXPECTED, GOLDEN
from test_openai import complete, post, refused
from pagoda.v1 import admin_pb2, engine_pb2, engine_pb2_grpc

MODEL = GOLDEN.resolve()
OPERATOR, RED, BLUE, ENGINE = (f"token-of-{name}-0123456789" for name in ("the-operator", "red", "blue", "the-engine"))
SECRETS = {"red.tokens": RED, "blue.tokens": BLUE, "engine.tokens": ENGINE}
TENANTS = [{"name": "red", "tokens_file": "red.tokens", "max_priority": 1}, {"name": "blue", "tokens_file": "blue.tokens"}]
LONG_TOKENS = 3000


@pytest.fixture
def start_cache(start_daemon):
    def start(**sections):
        return start_daemon(cache={"layers": None, "model_dir": str(MODEL), "tokens_per_block": 16, "primary": 1024},
                            sessions={"default_lease": "2s"}, **sections)

    return start


@pytest.fixture
def shared(start_cache):
    """A daemon with two tenants, and a third for the engine itself."""
    return start_cache(operator_token=OPERATOR, secrets=SECRETS, tenants=[*TENANTS, {"name": "engine", "tokens_file": "engine.tokens"}])


def doors(daemon, **sections):
    sections["engine"] = {"model_dir": str(MODEL)} | sections.get("engine", {})
    return ServingEngine(daemon, **sections)


def tenant_doors(daemon, **sections):
    return doors(daemon, token=ENGINE, tenants=TENANTS, operators={"tokens_file": "operators.tokens"}, **sections)


def generate(channel, prompt, tokens, **fields):
    stub = engine_pb2_grpc.EngineServiceStub(channel)
    return stub.Generate(engine_pb2.GenerateRequest(prompt_tokens=prompt, max_new_tokens=tokens, **fields), timeout=120)


def ids_of(call):
    return [token for response in call for token in response.tokens]


def held(daemon, tenant):
    """(sequences, blocks) of a tenant."""
    row = next(row for row in daemon.admin.ListTenants(admin_pb2.ListTenantsRequest(), timeout=20).tenants if row.name == tenant)
    return row.sequences, sum(use.used_blocks for use in row.use)


def test_both_doors_answer_with_the_reference_tokens(start_cache):
    daemon = start_cache()
    with doors(daemon) as engine:
        answer = complete(engine, model="qwen3_tiny", prompt=EXPECTED["prompt"], max_tokens=20, return_token_ids=True)
        assert answer["choices"][0]["token_ids"] == EXPECTED["ids"]
        assert ids_of(generate(engine.connect(), EXPECTED["prompt"], 20)) == EXPECTED["ids"]
        again = complete(engine, model="qwen3_tiny", prompt=EXPECTED["prompt"], max_tokens=1)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(EXPECTED["prompt"]) - 1
        assert engine.engine_http("/readyz") == (200, "ok\n") and engine.engine_http("/livez")[0] == 200
        assert engine.metric("pagoda_engine_connected") == 1 and engine.metric("pagoda_engine_generated_tokens_total") == 41
        assert json.loads(engine.engine_http("/v1/models")[1])["data"][0]["id"] == "qwen3_tiny"
        assert daemon.status().sessions == 1
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_its_default_addresses_are_not_the_daemons(start_cache):
    if not (is_free(7074) and is_free(7076)):
        pytest.skip("another program has the default ports")
    engine = doors(start_cache())
    engine.config["engine"] = {"model_dir": str(MODEL)}
    with engine:
        assert engine.engine_http_address == "127.0.0.1:7076"
        assert re.search(r"gRPC on unix:\S+/pagoda\.sock\.engine and 127\.0\.0\.1:7074, HTTP", engine.log.read_text())


def test_the_addresses_of_the_section_server_are_the_daemons(start_cache):
    daemon = start_cache()
    with doors(daemon, server={"unix_socket": str(daemon.unix_socket), "grpc_address": daemon.grpc_address}) as engine:
        assert ids_of(generate(engine.connect(), EXPECTED["prompt"], 20)) == EXPECTED["ids"]


def test_a_tenant_works_with_its_own_rights(shared):
    with tenant_doors(shared) as engine:
        red, blue = engine.connect(RED), engine.connect(BLUE)
        assert ids_of(generate(red, EXPECTED["prompt"], 20)) == EXPECTED["ids"]
        # The blocks are the tenant's, in the tenant's session, and nothing is the engine's.
        assert held(shared, "red")[1] > 0 and held(shared, "blue")[1] == held(shared, "engine")[1] == 0
        sessions = shared.admin.ListSessions(admin_pb2.ListSessionsRequest(page_size=100), timeout=20).sessions
        assert sorted(session.tenant for session in sessions) == ["engine", "red"]
        # Another tenant finds nothing of it, and the same tenant all of it, through either door.
        reports = [list(generate(channel, EXPECTED["prompt"], 1))[-1].report for channel in (blue, red)]
        assert [report.reused_tokens for report in reports] == [0, len(EXPECTED["prompt"]) - 1]
        answer = complete(engine, token=RED, model="qwen3_tiny", prompt=EXPECTED["prompt"], max_tokens=1)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(EXPECTED["prompt"]) - 1
        # Several samples: they fork the prompt in the batch that adds it.
        samples = [token for response in generate(red, EXPECTED["prompt"], 20, num_samples=3) for token in response.generated]
        assert [token.token for token in samples if token.sample == 2] == EXPECTED["ids"] and len(samples) == 60
        # Both at once: steps hold sequences of both sessions.
        calls = [generate(channel, EXPECTED["prompt"], 20) for channel in (red, blue) * 4]
        assert all(ids_of(call) == EXPECTED["ids"] for call in calls)


def test_nobody_else_is_let_in(shared):
    with tenant_doors(shared) as engine:
        assert refused(engine, 401, prompt=[1], model="qwen3_tiny")["code"] == "invalid_api_key"
        assert refused(engine, 401, prompt=[1], token="another-token-0123456789")["code"] == "invalid_api_key"
        assert refused(engine, 403, prompt=[1], token=BLUE, model="qwen3_tiny", priority=1)["code"] == "permission_denied"
        with pytest.raises(grpc.RpcError) as error:
            ids_of(generate(engine.connect(), [1], 1))
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert held(shared, "engine") == (0, 0)


def test_a_token_that_only_the_door_knows_is_refused(shared):
    shared.write_secret("door.tokens", "token-that-only-the-door-knows-0123")
    door_tenants = [{"name": "red", "tokens_file": "door.tokens"}, TENANTS[1]]
    with doors(shared, token=ENGINE, tenants=door_tenants, operators={"tokens_file": "operators.tokens"}) as engine:
        error = refused(engine, 401, prompt=EXPECTED["prompt"], token="token-that-only-the-door-knows-0123", model="qwen3_tiny")
        assert error["code"] == "invalid_api_key"
        assert held(shared, "red") == held(shared, "blue") == (0, 0)
        # Nor while a session of the tenant is open.
        shared.write_secret("door.tokens", f"token-that-only-the-door-knows-0123\n{RED}")
        engine.wait_until(lambda engine: post(engine, "/v1/completions", {"model": "qwen3_tiny", "prompt": [1], "max_tokens": 1}, RED)[0] == 200)
        error = refused(engine, 401, prompt=EXPECTED["prompt"], token="token-that-only-the-door-knows-0123", model="qwen3_tiny")
        assert error["code"] == "invalid_api_key"
    # A tenant cannot be taken for another one either: the door says red, the daemon blue.
    shared.write_secret("door.tokens", BLUE)
    with doors(shared, token=ENGINE, tenants=door_tenants[:1], operators={"tokens_file": "operators.tokens"}) as engine:
        error = refused(engine, 403, prompt=EXPECTED["prompt"], token=BLUE, model="qwen3_tiny")
        assert error["code"] == "permission_denied"
        assert held(shared, "blue") == (0, 0)


def test_requests_end_together_when_no_daemon_comes(start_cache):
    daemon = start_cache()
    with doors(daemon, arguments=("--timeout", "1", "--reconnect-seconds", "5")) as engine:
        calls = [generate(engine.connect(), EXPECTED["prompt"] + [i], LONG_TOKENS) for i in range(6)]
        for call in calls:
            next(call)
        daemon.kill()
        begin = time.monotonic()
        for call in calls:
            with pytest.raises(grpc.RpcError) as error:
                ids_of(call)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - begin < 20, "each searched by itself"
        daemon.start()
        engine.wait_until(lambda engine: engine.engine_http("/readyz")[0] == 200)
        assert ids_of(generate(engine.connect(), EXPECTED["prompt"], 20)) == EXPECTED["ids"]


def test_a_generation_outlives_the_daemon(start_cache):
    """Each token comes once, although the daemon is killed meanwhile and another one starts."""
    daemon = start_cache()
    with doors(daemon) as engine:
        expected = ids_of(generate(engine.connect(), EXPECTED["prompt"], LONG_TOKENS))
        for _ in range(2):
            call = generate(engine.connect(), EXPECTED["prompt"], LONG_TOKENS)
            got = list(next(call).tokens)
            while len(got) < 200:
                got += next(call).tokens
            daemon.kill()
            assert engine.engine_http("/livez")[0] == 200
            engine.wait_until(lambda engine: engine.engine_http("/readyz")[0] == 503)
            daemon.start()
            got += ids_of(call)
            assert got == expected
            engine.wait_until(lambda engine: engine.engine_http("/readyz")[0] == 200)
        assert engine.metric("pagoda_engine_connected") == 1


def test_tenants_go_on_over_another_daemon(shared):
    with tenant_doors(shared) as engine:
        expected = {}
        for token in (RED, BLUE):
            expected[token] = ids_of(generate(engine.connect(token), EXPECTED["prompt"] + [len(expected)], LONG_TOKENS))
        calls = {token: generate(engine.connect(token), EXPECTED["prompt"] + [i], LONG_TOKENS) for i, token in enumerate((RED, BLUE))}
        begun = {token: list(next(call).tokens) for token, call in calls.items()}
        shared.kill()
        shared.start()
        for token, call in calls.items():
            assert begun[token] + ids_of(call) == expected[token]
        assert held(shared, "red")[1] > 0 and held(shared, "blue")[1] > 0 and held(shared, "engine")[1] == 0


def test_an_ended_session_of_a_tenant_is_replaced(shared):
    with tenant_doors(shared) as engine:
        expected = ids_of(generate(engine.connect(RED), EXPECTED["prompt"], LONG_TOKENS))
        call = generate(engine.connect(RED), EXPECTED["prompt"], LONG_TOKENS)
        got = list(next(call).tokens)
        session = next(session for session in shared.admin.ListSessions(admin_pb2.ListSessionsRequest(page_size=100), timeout=20).sessions
                       if session.tenant == "red")
        shared.admin.EndSession(admin_pb2.EndSessionRequest(session_id=session.session_id), timeout=20)
        assert got + ids_of(call) == expected
        assert ids_of(generate(engine.connect(BLUE), EXPECTED["prompt"], 20)) == EXPECTED["ids"]


def test_a_revoked_token_ends_its_generations(shared):
    with tenant_doors(shared) as engine:
        call = generate(engine.connect(RED), EXPECTED["prompt"], LONG_TOKENS, num_samples=5)
        next(call)
        shared.write_secret("red.tokens", "new-token-of-red-0123456789")
        with pytest.raises(grpc.RpcError) as error:
            ids_of(call)
        assert reason_of(call_status(error.value)) == "UNAUTHENTICATED"
        deadline = time.monotonic() + 20
        while True:  # The daemon and the engine read the file within a second of each other.
            try:
                assert ids_of(generate(engine.connect("new-token-of-red-0123456789"), EXPECTED["prompt"], 20)) == EXPECTED["ids"]
                break
            except grpc.RpcError as late:
                assert late.code() == grpc.StatusCode.UNAUTHENTICATED and time.monotonic() < deadline
                time.sleep(0.1)


def test_an_engine_that_drains_answers_what_runs(start_cache):
    daemon = start_cache()
    with doors(daemon) as engine:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(post(engine, "/v1/completions", {
            "model": "qwen3_tiny", "prompt": EXPECTED["prompt"], "max_tokens": 400, "temperature": 0})))
        thread.start()
        daemon.wait_until(lambda daemon: daemon.primary().active_blocks > 6)
        engine.stop()
        thread.join()
        assert answers[0][0] == 200 and json.loads(answers[0][2])["usage"]["completion_tokens"] == 400


def test_an_open_door_in_front_of_a_daemon_with_callers_is_refused(shared):
    engine = doors(shared, token=ENGINE)
    with pytest.raises(AssertionError, match="everybody on this machine would work with the engine's rights"):
        engine.start()


def test_a_configuration_without_a_model_is_refused(start_cache, tmp_path):
    engine = ServingEngine(start_cache())
    with pytest.raises(AssertionError, match="has no engine.model_dir, and there is no --model"):
        engine.start()
