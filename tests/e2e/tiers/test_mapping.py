"""Processes that map pools: which ones may, and what the daemon does when a writer dies."""

import json
import mmap
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np
import pagoda
import pool_view
import pytest
from pagoda_client import Client, OperationError, ask_to_map
from pagoda.v1 import mapping_pb2, types_pb2

READ, READ_WRITE = mapping_pb2.MAP_ACCESS_READ, mapping_pb2.MAP_ACCESS_READ_WRITE
NOBODY = 65534
# A client that maps for writing, reports it, and then only waits.
WRITER = """
import sys, time
import pool_view
from pagoda_client import Client, connect
client = Client(connect(sys.argv[1]), "writer", lease_ms=1000)
pool_view.map_pool(client.pools()[0])[client.allocate(5)[0].slot_index] = 1
print("mapped", flush=True)
time.sleep(600)
"""


def test_a_pool_is_described_as_it_is_laid_out(daemon):
    with Client(daemon.channel) as client:
        (pool,) = client.pools()
        assert (pool.tier, pool.dtype) == (types_pb2.TIER_PRIMARY, types_pb2.DTYPE_FLOAT32)
        shape, strides = pool_view.geometry(pool)
        assert shape == (64, 2, 2, 2, 4, 8)
        contiguous = np.empty(shape, np.float32)
        assert strides == contiguous.strides
        (segment,) = pool.segments
        assert segment.size_bytes == contiguous.nbytes
        assert (segment.first_slot, segment.num_slots) == (0, 64)
        assert daemon.primary().block_bytes == pool.slot_stride_bytes


def pidfds(daemon):
    """How many processes the daemon watches."""
    links = (os.readlink(link) for link in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir() if link.is_symlink())
    return sum("pidfd" in link for link in links)


def test_the_daemon_watches_whoever_can_write(daemon):
    with Client(daemon.channel, "reader") as reader:
        pool_view.map_pool(reader.pools()[0], READ)
        assert pidfds(daemon) == 0
        with Client(daemon.channel, "writer") as writer:
            for _ in range(3):
                pool_view.map_pool(writer.pools()[0])
            assert pidfds(daemon) == 1
        daemon.wait_until(lambda daemon: pidfds(daemon) == 0)


def test_what_a_killed_writer_had_is_free_again(daemon):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, f"unix:{daemon.unix_socket}"], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert writer.stdout.readline() == "mapped\n"
    assert pidfds(daemon) == 1 and daemon.primary().active_blocks == 5
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == 64 and pidfds(daemon) == 0)


def test_what_a_stopped_writer_had_waits_for_its_end(daemon):
    """Its lease is over, but it could still write: its blocks are free only when it is dead."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, f"unix:{daemon.unix_socket}"], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert writer.stdout.readline() == "mapped\n"
    writer.send_signal(signal.SIGSTOP)
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    assert daemon.primary().in_flight_blocks == 5
    with Client(daemon.channel) as other:
        assert len(other.allocate(59)) == 59
        with pytest.raises(OperationError, match="BLOCKS_EXHAUSTED"):
            other.allocate(1)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    daemon.wait_until(lambda daemon: daemon.primary().free_blocks == 64 and pidfds(daemon) == 0)


def as_another_user(group, function, *arguments):
    """The result of `function` in a fork that runs as the user nobody with `group` as its only
    group: a JSON value, or the name of the exception."""
    result, told = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            answer = function(*arguments)
        except BaseException as error:
            answer = type(error).__name__
        os.write(told, json.dumps(answer).encode())
        os._exit(0)
    os.close(told)
    with os.fdopen(result) as answers:
        answer = json.load(answers)
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def shared_daemon(start_daemon):
    """A daemon whose map socket lies in a folder that every user may enter, and a client of it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be other users")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if as_another_user(os.getgid(), os.access, folder, os.X_OK) is not True:
            pytest.skip("another user cannot reach the temporary folder")
        daemon = start_daemon(server={"map_socket": f"{folder}/map.sock"})
        with Client(daemon.channel) as client:
            assert client.opened.map_socket == f"{folder}/map.sock"
            yield daemon, client


def request_of(client, access):
    return mapping_pb2.MapPoolsRequest(session=client.session, access=access).SerializeToString()


def test_another_user_in_the_sockets_group_maps_and_writes(shared_daemon):
    daemon, client = shared_daemon
    (pool,) = client.pools()
    (block,) = client.allocate(1)
    offset = block.slot_index * pool.slot_stride_bytes

    def write(path, request, size):
        _, (descriptor,) = ask_to_map(path, request)
        mmap.mmap(descriptor, size)[offset:offset + 4] = b"KEYS"
        return os.getuid()

    arguments = (client.opened.map_socket, request_of(client, READ_WRITE), pool.segments[0].size_bytes)
    assert as_another_user(os.getgid(), write, *arguments) == NOBODY
    assert pool_view.map_pool(pool)[block.slot_index].tobytes()[:4] == b"KEYS"


def test_a_reader_of_another_user_cannot_open_its_descriptor_for_writing(shared_daemon):
    daemon, client = shared_daemon

    def reopen(path, request, flags):
        _, (descriptor,) = ask_to_map(path, request)
        os.open(f"/proc/self/fd/{descriptor}", flags)
        return "opened"

    arguments = (client.opened.map_socket, request_of(client, READ))
    assert as_another_user(os.getgid(), reopen, *arguments, os.O_RDWR) == "PermissionError"


def test_another_user_outside_the_sockets_group_is_told_so(shared_daemon):
    daemon, client = shared_daemon

    def refused(session):
        try:
            pagoda._map_socket.MapSocket(session).open(0, 0, types_pb2.TIER_PRIMARY, READ)
        except pagoda.CannotMap as error:
            return str(error)

    session = pagoda.SessionRef(client.session.session_id, (client.session.token, client.session.token_high), client.opened.map_socket)
    assert "group" in as_another_user(NOBODY, refused, session)


def test_a_client_on_another_machine_is_told_where_the_pools_are(daemon, tmp_path):
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        socket_file = pathlib.Path(f"{daemon.unix_socket}.map")
        socket_file.rename(tmp_path / "elsewhere")
        (pool,) = client.pools()
        with pytest.raises(pagoda.CannotMap, match="on the daemon's machine"):
            pool.array
        (tmp_path / "elsewhere").rename(socket_file)
        assert pool.array.shape == pool.shape


def test_a_daemon_without_a_map_socket_says_so(start_daemon):
    daemon = start_daemon(server={"map_socket": ""})
    assert not pathlib.Path(f"{daemon.unix_socket}.map").exists()
    with pagoda.connect(f"unix:{daemon.unix_socket}") as client:
        with pytest.raises(pagoda.CannotMap, match="server.map_socket"):
            client.pools()[0].array


def test_garbage_and_oversized_packets_are_answered_and_others_served(daemon):
    with Client(daemon.channel) as client:
        path = client.opened.map_socket
        random = np.random.default_rng(11)
        for size in (1, 20, 1000, 1024, 1025, 100_000):
            for _ in range(20):
                response, descriptors = ask_to_map(path, random.bytes(size))
                assert response.HasField("error") and descriptors == [], size
        pool_view.map_pool(client.pools()[0])
    assert daemon.process.poll() is None


def test_2000_connections_that_say_nothing_keep_nobody_out(daemon):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    silent = []
    try:
        with Client(daemon.channel) as client:
            for count in range(2000):
                silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                silent[-1].settimeout(20)
                silent[-1].connect(client.opened.map_socket)
                if count % 500 == 0:
                    pool_view.map_pool(client.pools()[0], READ)
            pool_view.map_pool(client.pools()[0])
            assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 512
            assert client.match(range(5)).matched_tokens == 0
    finally:
        for connection in silent:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
