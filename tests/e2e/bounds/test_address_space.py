"""A daemon under `ulimit -v`: it starts only if the limits of its configuration fit, because its
libraries end the process when an allocation fails."""

import concurrent.futures

import grpc
import pytest
from pagoda.v1 import cache_pb2, prefixes_pb2
from pagoda_client import Client
from pagoda_daemon import Daemon

MIB = 1 << 20
# More than the daemon keeps free beside its keys, and less than the default of max_grpc_bytes.
LEFT = 1024 * MIB
TOKENS = 2_000_000
CALLERS = 8


class LimitedDaemon(Daemon):
    """A daemon that `address_space` bytes are enough for, or not."""

    address_space = 0

    def command(self):
        return ["prlimit", f"--as={self.address_space}", *super().command()]


@pytest.fixture
def limited(start_daemon, tmp_path):
    """limited(**server): a daemon that has LEFT bytes of address space behind its start."""
    status = open(f"/proc/{start_daemon().process.pid}/status").read()
    started_bytes = int(status.split("VmPeak:")[1].split()[0]) * 1024

    def make(**server):
        folder = tmp_path / "limited"
        folder.mkdir()
        daemon = LimitedDaemon(folder, server=server)
        daemon.address_space = started_bytes + LEFT
        return daemon

    return make


def test_keys_that_do_not_fit_are_refused_with_the_limit_and_the_keys(limited):
    daemon = limited()
    assert daemon.run_to_its_end() == 1
    log = daemon.log.read_text()
    assert f"the address space is limited to {daemon.address_space} bytes (ulimit -v)" in log
    assert "server.max_grpc_bytes" in log and "server.max_sequence_bytes" in log


def test_keys_that_fit_let_no_caller_use_it_up(limited):
    def match(number):
        options = [("grpc.max_send_message_length", -1)]
        with Client(daemon.connect(options=options)) as client:
            tokens = [number] + [70_000] * TOKENS
            operation = cache_pb2.Operation(match_prefix=prefixes_pb2.MatchPrefixRequest(tokens=tokens))
            try:
                return not client.execute(operation)[0].HasField("error")
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    with limited(max_grpc_bytes=128 * MIB, max_sequence_bytes=64 * MIB) as daemon:
        with concurrent.futures.ThreadPoolExecutor(CALLERS) as callers:
            assert all(callers.map(match, range(CALLERS)))
        assert daemon.process.poll() is None
