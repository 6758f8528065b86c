"""The engine that a daemon has started is a process of its own. What its death, its silence and the
daemon's death cost, and whom it serves."""

import os
import pathlib
import re
import shutil
import signal
import time
import urllib.error

import grpc
import pytest
from free_ports import free_port
from pagoda_client import Client, authorized, call_status, handles, reason_of
from pagoda_daemon import CALL_SECONDS, ENGINE, HTTP, QUIET_STOP_SECONDS, Daemon, sample_of
from test_engine_doors import held
from test_generate import EXPECTED, GOLDEN, LONG_TOKENS, generate, start_long_generation
from test_openai import complete, make_model, refused
from warm_daemon import SHM
from pagoda.v1 import admin_pb2_grpc, caches_pb2, engine_pb2_grpc

MODEL = GOLDEN.resolve()
PROMPT, IDS = EXPECTED["prompt"], EXPECTED["ids"]
TOKENS_PER_BLOCK = 16
CAPACITY = 1024
# The pause of the daemon's supervision before the first restart. Each further one is twice
# as long.
FIRST_PAUSE_SECONDS = 0.1
RED, BLUE, OPERATOR, STRANGER = (f"token-of-{name}-0123456789" for name in ("red", "blue", "the-operator", "a-stranger"))


def sections_of(model=MODEL, engine=None, server=None, **others):
    """A daemon's configuration. The default lease is that of the engine's sessions."""
    return {"engine": {"model_dir": str(model)} | (engine or {}), "server": {"http_address": "127.0.0.1:0"} | (server or {}),
            "cache": {"layers": None, "tokens_per_block": TOKENS_PER_BLOCK, "primary": CAPACITY}, "sessions": {"default_lease": "2s"}} | others


@pytest.fixture
def start(start_daemon):
    return lambda **changes: start_daemon(**sections_of(**changes))


def stub_of(daemon, token=None):
    """Over a new connection: an earlier one, to a process that has ended, waits before it connects
    again. Without a token it has the operator's if there is one."""
    return engine_pb2_grpc.EngineServiceStub(daemon.connect_engine(token or daemon.operator_token))


def wait_until(condition, seconds=60):
    """For what does not ask the daemon."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is not met in {seconds} s"
        time.sleep(0.02)


def metric(daemon, name):
    return sample_of(daemon.metrics(), name)


def kill_the_engine(daemon):
    os.kill(daemon.engine_pid(), signal.SIGKILL)


def wait_until_up(daemon, restarts):
    """Until the daemon says that the engine is up, after so many restarts."""
    daemon.wait_until(lambda daemon: daemon.status().engine.up and daemon.status().engine.restarts == restarts)
    daemon.engine_http_address = daemon.status().engine.addresses.http


def addresses(admin):
    """(whether the daemon has an engine, where the engine serves gRPC, HTTP), as any caller learns
    them."""
    (row,) = admin.ListCaches(caches_pb2.ListCachesRequest(), timeout=CALL_SECONDS).caches
    return row.has_engine, list(row.engine_addresses.grpc), row.engine_addresses.http


# --- Its own death ---


def test_a_killed_engine_loses_no_committed_block(start):
    daemon = start()
    where = addresses(daemon.admin)
    assert where == (True, [f"unix:{daemon.folder / 'engine.sock'}"], daemon.engine_http_address)
    with Client(daemon.channel, "bystander", lease_ms=60_000) as bystander:
        blocks = handles(bystander.add(1, range(1000, 1040)).tables[0].blocks)
        call, tokens = start_long_generation(stub_of(daemon))
        while len(tokens) < 10 * TOKENS_PER_BLOCK:
            tokens += next(call).tokens
        before = daemon.engine_process()
        kill_the_engine(daemon)
        with pytest.raises(grpc.RpcError) as failure:
            list(call)
        assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
        wait_until_up(daemon, restarts=1)
        assert before.poll() is not None and daemon.engine_pid() != before.pid
        assert "signal 9" in daemon.status().engine.problem
        assert metric(daemon, "pagoda_engine_up") == 1 and metric(daemon, "pagoda_engine_restarts_total") == 1
        assert addresses(daemon.admin)[:2] == where[:2]

        # The tokens that the caller has were computed in full blocks, up to the last few.
        continued = PROMPT + tokens
        said, report = generate(stub_of(daemon), continued, 1)
        assert report.reused_tokens >= (len(continued) // TOKENS_PER_BLOCK - 1) * TOKENS_PER_BLOCK
        said, report = generate(stub_of(daemon), PROMPT, len(IDS))
        assert said == IDS and report.reused_tokens >= len(PROMPT) - TOKENS_PER_BLOCK

        described = bystander.describe(1)
        assert handles(described.tables[0].blocks) == blocks and described.token_count == 40
        bystander.append(1, [7])
        bystander.free_sequence(1)
    # The dead engine's session ends with its lease, and what it held is free or cached.
    daemon.wait_until(Daemon.has_only_its_own_sessions)
    tier = daemon.primary(daemon.settle())
    assert tier.free_blocks + tier.cached_blocks == CAPACITY


def test_an_idle_engine_that_is_killed_finds_all_of_its_prompt(start):
    daemon = start()
    assert generate(stub_of(daemon), PROMPT, len(IDS))[0] == IDS
    kill_the_engine(daemon)
    wait_until_up(daemon, restarts=1)
    tokens, report = generate(stub_of(daemon), PROMPT, len(IDS))
    assert tokens == IDS and report.reused_tokens == len(PROMPT) - 1, "only the last token is computed, because its logits are needed"
    answer = complete(daemon, model=MODEL.name, prompt=PROMPT, max_tokens=len(IDS), return_token_ids=True)
    assert answer["choices"][0]["token_ids"] == IDS


def test_an_engine_that_cannot_start_again_is_down_and_the_daemon_serves(start, tmp_path):
    """Its weights are away for a time."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(MODEL / name, model / name)
    daemon = start(model=model)
    assert generate(stub_of(daemon), PROMPT, len(IDS))[0] == IDS
    assert metric(daemon, "pagoda_engine_up") == 1
    (model / "model.safetensors").rename(model / "away")
    kill_the_engine(daemon)
    daemon.wait_until(lambda daemon: daemon.status().engine.restarts >= 2)
    status = daemon.status().engine
    assert not status.up and str(model) in status.problem, status
    assert metric(daemon, "pagoda_engine_up") == 0 and metric(daemon, "pagoda_engine_restarts_total") >= 2
    assert addresses(daemon.admin) == (True, [], "")
    assert daemon.http("/readyz") == (200, "ok\n")
    with Client(daemon.channel, "bystander") as bystander:
        assert bystander.match(PROMPT).matched_tokens == len(PROMPT) - 1

    (model / "away").rename(model / "model.safetensors")
    daemon.wait_until(lambda daemon: daemon.status().engine.up)
    assert metric(daemon, "pagoda_engine_up") == 1
    tokens, report = generate(stub_of(daemon), PROMPT, len(IDS))
    assert tokens == IDS and report.reused_tokens == len(PROMPT) - 1


def test_the_pauses_grow_while_an_engine_is_killed_again_and_again(start):
    daemon = start()
    assert generate(stub_of(daemon), PROMPT, len(IDS))[0] == IDS
    with Client(daemon.channel, "bystander") as bystander:
        for kills in range(4):
            pid, begin = daemon.engine_pid(), time.monotonic()
            os.kill(pid, signal.SIGKILL)

            def is_back(daemon):
                assert bystander.match(PROMPT).matched_tokens == len(PROMPT) - 1, "the daemon serves others"
                return any(other != pid for other in daemon.engine_pids())

            daemon.wait_until(is_back)
            assert time.monotonic() - begin >= FIRST_PAUSE_SECONDS * 2**kills
            status = daemon.status().engine
            assert status.restarts == kills + 1 and "signal 9" in status.problem
    wait_until_up(daemon, restarts=4)
    tokens, report = generate(stub_of(daemon), PROMPT, len(IDS))
    assert tokens == IDS and report.reused_tokens == len(PROMPT) - 1


# --- Its start ---


def without_weights(folder):
    shutil.copy(MODEL / "config.json", folder)
    return {"model_dir": str(folder)}, str(folder)


def without_its_adapter(folder):
    return {"adapters": [{"name": "absent", "path": str(folder / "absent")}]}, str(folder / "absent")


def at_an_address_that_is_taken(folder):
    """The daemon's own one."""
    address = f"127.0.0.1:{free_port()}"
    return {"http_address": address}, address


@pytest.mark.parametrize("broken", [without_weights, without_its_adapter, at_an_address_that_is_taken])
def test_a_daemon_whose_engine_cannot_start_ends_with_the_engines_message(tmp_path, broken):
    folder = tmp_path / "model"
    folder.mkdir()
    engine, named = broken(folder)
    server = {"http_address": named} if broken is at_an_address_that_is_taken else {}
    daemon = Daemon(tmp_path, **sections_of(engine=engine, server=server))
    assert daemon.run_to_its_end() == 1
    log = daemon.log.read_text()
    assert re.search(rf"(?m)^pagodad: .*{re.escape(named)}", log), log
    assert "pagodad is ready" not in log
    assert not daemon.unix_socket.exists() and not (tmp_path / "engine.sock").exists()


@pytest.fixture
def loading(tmp_path):
    """(a daemon whose engine loads its model until somebody opens a pipe, that pipe)."""
    model = make_model(tmp_path / "model")
    pipe = model / "tokenizer_config.json"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    probe = f"127.0.0.1:{free_port()}"
    daemon = Daemon(tmp_path, **sections_of(model=model, server={"probe_address": probe}))
    daemon.probe_address = probe
    daemon.spawn()
    try:
        wait_until(lambda: daemon.unix_socket.exists() and daemon.engine_pids())
        yield daemon, pipe
    finally:
        daemon.kill()


def readiness_of(daemon):
    try:
        with HTTP.open(f"http://{daemon.probe_address}/readyz", timeout=CALL_SECONDS) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def has_reported(pid):
    """Whether the engine has sent its daemon several reports: its thread that does so has slept a
    report's time often."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "pagoda-link\n":
            return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", (task / "status").read_text(), re.MULTILINE)[1]) > 50
    return False


def test_the_cache_serves_while_the_engine_loads_its_model(loading):
    daemon, pipe = loading
    engine = daemon.engine_pid()
    with Client(daemon.connect(), "bystander") as client:
        client.cache(1, range(1000, 1040))
    assert readiness_of(daemon) == 503
    wait_until(lambda: has_reported(engine))
    with open(pipe, "w"):
        pass
    ready = daemon.wait_until_ready()
    assert readiness_of(daemon) == 200 and daemon.engine_pid() == engine
    assert ready["engine_http"]
    assert generate(engine_pb2_grpc.EngineServiceStub(daemon.connect_engine()), PROMPT, len(IDS))[0] == IDS
    assert daemon.terminate() == 0, daemon.log.read_text()


def test_a_drain_does_not_wait_for_an_engine_that_loads_its_model(loading):
    daemon, _ = loading
    engine = daemon.engine_process()
    assert daemon.terminate() == 0, daemon.log.read_text()
    assert engine.poll() is not None


# --- The daemon's end ---


@pytest.mark.parametrize("again", ["at once", "after the engine's end"])
def test_an_engine_ends_with_its_killed_daemon(start, again):
    fixed = [f"127.0.0.1:{free_port()}" for _ in range(4)]
    daemon = start(server={"grpc_address": fixed[0], "http_address": fixed[1]},
                   engine={"grpc_address": fixed[2], "http_address": fixed[3]})
    call, _ = start_long_generation(stub_of(daemon))
    engine = daemon.engine_process()
    daemon.kill()
    with pytest.raises(grpc.RpcError) as failure:
        list(call)
    assert failure.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    if again != "at once":
        wait_until(lambda: engine.poll() is not None, seconds=20)
    daemon.start()
    wait_until(lambda: engine.poll() is not None, seconds=20)
    assert [daemon.grpc_address, daemon.http_address, daemon.engine_grpc_address, daemon.engine_http_address] == fixed
    assert daemon.engine_pid() != engine.pid and daemon.status().engine.restarts == 0
    assert generate(stub_of(daemon), PROMPT, len(IDS))[0] == IDS
    answer = complete(daemon, model=MODEL.name, prompt=PROMPT, max_tokens=len(IDS), return_token_ids=True)
    assert answer["choices"][0]["token_ids"] == IDS


def test_a_drain_lets_the_engines_generations_end(start):
    """If the generation ended before the signal, all checks would hold as well."""
    daemon = start(server={"drain_timeout": "5m"})
    engine = daemon.engine_process()
    call, tokens = start_long_generation(stub_of(daemon))
    daemon.process.send_signal(signal.SIGTERM)
    tokens += [token for response in call for token in response.tokens]
    assert tokens[:len(IDS)] == IDS and len(tokens) == LONG_TOKENS
    assert daemon.wait(QUIET_STOP_SECONDS) == 0, daemon.log.read_text()
    assert engine.poll() is not None
    assert not list(daemon.folder.glob("*.sock*"))
    assert not list(SHM.glob(f"pagoda-{daemon.config['cache']['name']}*"))


def test_a_drain_does_not_wait_for_an_engine_that_stands_still(start):
    daemon = start(server={"drain_timeout": "1s"})
    engine = daemon.engine_process()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        assert daemon.terminate() == 0, daemon.log.read_text()
        assert engine.poll() is not None
    finally:
        if engine.poll() is None:
            os.kill(engine.pid, signal.SIGKILL)


# --- Its silence ---


def test_an_engine_that_stands_still_holds_up_nobody_else(start):
    daemon = start(sessions={"default_lease": "60s"})
    engine = daemon.engine_pid()
    call, tokens = start_long_generation(stub_of(daemon))
    os.kill(engine, signal.SIGSTOP)
    try:
        with Client(daemon.channel, "bystander") as bystander:
            bystander.cache(1, range(1000, 1040))
            daemon.wait_until(lambda daemon: not daemon.status().engine.up)
            assert "has not reported" in daemon.status().engine.problem
            assert metric(daemon, "pagoda_engine_up") == 0 and addresses(daemon.admin) == (True, [], "")
            assert daemon.http("/readyz") == (200, "ok\n")
            bystander.cache(2, range(2000, 2040))
            assert bystander.match(range(1000, 1040)).matched_tokens == 39
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_until_up(daemon, restarts=0)
    assert daemon.engine_pid() == engine and metric(daemon, "pagoda_engine_up") == 1
    tokens += [token for response in call for token in response.tokens]
    assert tokens[:len(IDS)] == IDS and len(tokens) == LONG_TOKENS


# --- Its callers ---


@pytest.fixture
def guarded(start):
    """A daemon with two tenants and an operator. Nobody has configured a credential for the
    engine."""
    return start(operator_token=OPERATOR, secrets={"red.tokens": RED, "blue.tokens": BLUE},
                 tenants=[{"name": name, "tokens_file": f"{name}.tokens"} for name in ("red", "blue")])


def engines_sessions(daemon):
    return sorted(session.tenant for session in daemon.sessions() if session.client_name == ENGINE)


def test_a_tenants_generation_is_the_tenants(guarded):
    red, blue = stub_of(guarded, RED), stub_of(guarded, BLUE)
    assert engines_sessions(guarded) == [""]
    tokens, report = generate(red, PROMPT, len(IDS))
    assert tokens == IDS and report.reused_tokens == 0
    assert held(guarded, "red")[1] > 0 and held(guarded, "blue")[1] == held(guarded, "")[1] == 0
    assert engines_sessions(guarded) == ["", "red"]
    assert generate(blue, PROMPT, 1)[1].reused_tokens == 0, "blue finds nothing of red's"
    assert generate(red, PROMPT, 1)[1].reused_tokens == len(PROMPT) - 1
    answer = complete(guarded, token=RED, model=MODEL.name, prompt=PROMPT, max_tokens=1)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(PROMPT) - 1
    # An operator's is the default tenant's, in the engine's own session.
    assert generate(stub_of(guarded), PROMPT, len(IDS))[0] == IDS
    assert engines_sessions(guarded) == ["", "blue", "red"]


def test_who_has_no_known_credential_is_refused(guarded):
    for token in (None, STRANGER):
        with pytest.raises(grpc.RpcError) as failure:
            generate(engine_pb2_grpc.EngineServiceStub(guarded.connect_engine(token)), PROMPT, 1)
        assert reason_of(call_status(failure.value)) == "UNAUTHENTICATED"
        assert refused(guarded, 401, model=MODEL.name, prompt=PROMPT, token=token)["code"] == "invalid_api_key"
    assert engines_sessions(guarded) == [""]


def test_a_new_process_of_the_engine_has_the_same_callers(guarded):
    assert generate(stub_of(guarded, RED), PROMPT, len(IDS))[0] == IDS
    kill_the_engine(guarded)
    wait_until_up(guarded, restarts=1)
    tokens, report = generate(stub_of(guarded, RED), PROMPT, len(IDS))
    assert tokens == IDS and report.reused_tokens == len(PROMPT) - 1
    with pytest.raises(grpc.RpcError) as failure:
        generate(stub_of(guarded, STRANGER), PROMPT, 1)
    assert reason_of(call_status(failure.value)) == "UNAUTHENTICATED"


def test_a_tenant_learns_where_the_engine_is(guarded):
    for token in (RED, OPERATOR):
        assert addresses(admin_pb2_grpc.AdminServiceStub(authorized(guarded.connect(), token))) == addresses(guarded.admin)
    assert addresses(guarded.admin) == (True, [f"unix:{guarded.folder / 'engine.sock'}"], guarded.engine_http_address)
    with pytest.raises(grpc.RpcError) as failure:
        addresses(admin_pb2_grpc.AdminServiceStub(authorized(guarded.connect(), STRANGER)))
    assert reason_of(call_status(failure.value)) == "UNAUTHENTICATED"
