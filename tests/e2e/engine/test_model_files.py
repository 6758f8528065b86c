"""A model's file that changes while the engine serves it: the engine lives, says which file it is,
and serves no token that it computed from the changed bytes. The daemon does not depend on it."""

import os
import pathlib
import shutil

import grpc
import pytest
from pagoda.v1 import engine_pb2, engine_pb2_grpc

GOLDEN = pathlib.Path(os.environ["PAGODA_GOLDEN"]) / "qwen3_tiny"
PROMPT = [1, 2, 3, 4, 5]
# Hundreds of milliseconds: the file changes in the middle.
TOKENS = 3500
BEFORE = 20


def cut_to_nothing(path):
    os.truncate(path, 0)


def cut_within_a_page(path):
    """The kernel shows zeroes behind the end of the last page, and sends no signal."""
    os.truncate(path, path.stat().st_size - 100)


def overwrite(path):
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(50_000))


def request():
    return engine_pb2.GenerateRequest(prompt_tokens=PROMPT, max_new_tokens=TOKENS)


def tokens_until_the_end(call):
    """All tokens, and the error that ended the call."""
    tokens = []
    try:
        for response in call:
            tokens += response.tokens
    except grpc.RpcError as error:
        return tokens, error
    return tokens, None


@pytest.mark.parametrize("change", [cut_to_nothing, cut_within_a_page, overwrite])
def test_a_model_that_changes_while_it_generates(start_daemon, tmp_path_factory, change):
    model = tmp_path_factory.mktemp("model") / "tiny"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, model / name)
    weights = model / "model.safetensors"
    daemon = start_daemon(engine={"model_dir": str(model)}, cache={"layers": None, "primary": 2048},
                          server={"http_address": "127.0.0.1:0"})
    stub = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    expected, error = tokens_until_the_end(stub.Generate(request(), timeout=120))
    assert error is None and len(expected) == TOKENS
    assert daemon.engine_http("/readyz") == (200, "ok\n")
    engine = daemon.engine_pid()

    call = stub.Generate(request(), timeout=120)
    tokens = []
    while len(tokens) < BEFORE:
        tokens += next(call).tokens
    change(weights)
    rest, error = tokens_until_the_end(call)
    assert error is not None, "the rest was computed from a changed model"
    assert error.code() == grpc.StatusCode.DATA_LOSS
    assert str(weights) in error.details()
    tokens += rest
    assert tokens == expected[:len(tokens)]

    assert daemon.process.poll() is None and daemon.engine_pid() == engine
    _, error = tokens_until_the_end(stub.Generate(request(), timeout=120))
    assert error.code() == grpc.StatusCode.DATA_LOSS and str(weights) in error.details()
    assert daemon.engine_http("/livez")[0] == 200, "a new process would not help"
    assert daemon.engine_http("/readyz") == (503, "a file of the engine's model has changed\n")
    assert daemon.http("/livez")[0] == 200 and daemon.http("/readyz") == (200, "ok\n"), "the daemon serves others"
    # The engine has left nothing behind, and the cache serves on.
    daemon.wait_until(lambda daemon: daemon.primary().active_blocks == 0)
    daemon.wait_until(lambda daemon: str(weights) in daemon.log.read_text())


def test_a_new_file_in_the_old_ones_place_changes_nothing(start_daemon, tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "tiny"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, model / name)
    daemon = start_daemon(engine={"model_dir": str(model)}, cache={"layers": None, "primary": 2048})
    stub = engine_pb2_grpc.EngineServiceStub(daemon.engine_channel)
    (model / "new").write_bytes(b"another model")
    (model / "new").rename(model / "model.safetensors")
    _, error = tokens_until_the_end(stub.Generate(request(), timeout=120))
    assert error is None
