"""pagodad for the tests of this folder. PAGODA_BIN names the folder of the programs."""

import contextlib
import json
import os
import pathlib
import subprocess
import time

BIN = pathlib.Path(os.environ.get("PAGODA_BIN", ""))
START_SECONDS = 60


@contextlib.contextmanager
def pagodad(folder, *arguments, **sections):
    """Yields the endpoint of a daemon with this configuration. Its log is folder/pagodad.log. An
    engine that it starts is at folder/engine.sock."""
    socket, log = folder / "pagodad.sock", folder / "pagodad.log"
    config = {"server": {"unix_socket": str(socket), "grpc_address": "127.0.0.1:0", "http_address": ""}} | sections
    if "engine" in config:
        config["engine"] = {"unix_socket": str(folder / "engine.sock"), "grpc_address": "", "http_address": ""} | config["engine"]
    (folder / "pagodad.yaml").write_text(json.dumps(config))  # JSON is YAML.
    with open(log, "wb") as output:
        process = subprocess.Popen([BIN / "pagodad", "--config", folder / "pagodad.yaml", *arguments], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS
        while "pagodad is ready" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield f"unix:{socket}"
    finally:
        process.terminate()
        process.wait(30)
