"""How a client of the Python package gets its rings, keeps them, and does without them."""

import contextlib
import dataclasses
import os
import threading
import time

import pagoda
import pytest
from fake_rings import MapSocket, Pair
from pagoda import _extension, _rings
from pagoda._map_socket import SessionRef
from ring_setting import SECONDS, SIZE, Calls, Channel, serve, start  # pylint: disable=unused-import

if _extension.native is None:
    pytest.skip("the build has no native extension, or PAGODA_NATIVE=0 turns it off", allow_module_level=True)


def descriptors_of(pair):
    """How many descriptors of the pair's memory this process has. Those of other pairs do not
    count: the pairs of earlier tests can end at any time."""
    memory = os.fstat(pair.memory)
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # The listing's own descriptor is gone.
            count += os.path.samestat(memory, os.stat(f"/proc/self/fd/{name}"))
    return count


def test_without_new_rings_everything_goes_over_grpc(start):
    setting = start()
    setting.sequence()
    setting.map_socket.close()
    setting.pair.end()
    for _ in range(3):
        setting.sequence()
    assert len(setting.calls.batches) == 3


def test_new_rings_are_not_asked_for_with_each_batch(start, monkeypatch):
    monkeypatch.setattr(_rings, "_PAUSE", 1e6)
    setting = start()
    for _ in range(4):
        setting.pair.end()
        setting.sequence()
        setting.sequence()
    assert len(setting.map_socket.pairs) == 2


def test_a_client_whose_first_request_for_rings_failed_asks_again(start, tmp_path):
    setting, calls, late = start(), Calls(), tmp_path / "late.sock"
    rings = _rings.open_rings("auto", dataclasses.replace(setting.ref, map_socket=str(late)), is_local=True)
    with pagoda.Client(Channel(), calls, setting.opened, SECONDS, rings) as client:
        client.advance()
        assert len(calls.batches) == 1 and not setting.seen
        late.symlink_to(setting.map_socket.path)
        client.advance()
        assert len(calls.batches) == 1 and len(setting.seen) == 1


def test_a_client_whose_first_request_for_rings_failed_does_not_ask_with_each_batch(start, tmp_path, monkeypatch):
    monkeypatch.setattr(_rings, "_PAUSE", 1e6)
    setting, calls, late = start(), Calls(), tmp_path / "late.sock"
    rings = _rings.open_rings("auto", dataclasses.replace(setting.ref, map_socket=str(late)), is_local=True)
    late.symlink_to(setting.map_socket.path)
    with pagoda.Client(Channel(), calls, setting.opened, SECONDS, rings) as client:
        for _ in range(3):
            client.advance()
    assert len(calls.batches) == 3 and len(setting.map_socket.asked) == 1


def test_a_daemon_of_another_version_is_not_asked_again(start):
    setting = start()
    setting.sequence()
    setting.map_socket.version = 3
    setting.pair.end()
    for _ in range(4):
        setting.sequence()
    assert len(setting.map_socket.asked) == 2 and len(setting.calls.batches) == 4


def test_a_map_socket_that_does_not_answer_delays_one_batch_a_little(start, monkeypatch):
    setting = start()
    setting.sequence()
    hangs, asked = threading.Event(), threading.Event()

    def hang():
        asked.set()
        hangs.wait(SECONDS)
        raise ValueError("too late")

    setting.map_socket._make_pair = hang
    # Other batches and close do not wait for the thread that asks for rings.
    monkeypatch.setattr(_rings, "_MAY_SECONDS", 2.0 * SECONDS)
    setting.pair.end()
    setting.sequence()  # Learns it.
    asking = threading.Thread(target=setting.sequence)
    asking.start()
    assert asked.wait(SECONDS)
    setting.sequence()
    assert len(setting.calls.batches) == 2 and asking.is_alive()
    setting.client._rings.close()
    assert asking.is_alive()
    hangs.set()
    asking.join()
    assert len(setting.calls.batches) == 3


def test_rings_that_come_after_the_client_has_closed_are_not_used(start):
    setting = start()
    setting.sequence()
    asked, go_on, make = threading.Event(), threading.Event(), setting.map_socket._make_pair

    def slow():
        asked.set()
        go_on.wait(SECONDS)
        return make()

    setting.map_socket._make_pair = slow
    setting.pair.end()
    setting.sequence()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_rings, "_MAY_SECONDS", SECONDS)
        asking = threading.Thread(target=setting.sequence)
        asking.start()
        assert asked.wait(SECONDS)
        setting.client._rings.close()
        go_on.set()
        asking.join()
    assert len(setting.map_socket.pairs) == 2 and not setting.client._rings._ring.is_open
    assert len(setting.seen) == 1 and len(setting.calls.batches) == 2


@pytest.mark.parametrize("transport, at_most", [("auto", 5), ("ring", None)])
def test_rings_that_need_not_be_had_are_not_waited_for_long(tmp_path, transport, at_most):
    go_on = threading.Event()
    map_socket = MapSocket(tmp_path / "map.sock", lambda: go_on.wait(SECONDS) and Pair(SIZE, serve))
    began = time.monotonic()
    if transport == "ring":
        threading.Timer(0.5, go_on.set).start()
    rings = _rings.open_rings(transport, SessionRef(1, (2, 3), map_socket.path), is_local=True)
    if at_most is None:
        assert rings._ring.is_open
    else:
        assert rings._ring is None and time.monotonic() - began < at_most
    rings.close()
    go_on.set()
    map_socket.close()


def test_an_answer_of_the_map_socket_that_is_none_leaves_no_open_files(tmp_path):
    map_socket = MapSocket(tmp_path / "map.sock", lambda: Pair(SIZE, serve))
    map_socket.garbage = b"\xff" * 9
    session = SessionRef(1, (2, 3), map_socket.path)
    with pytest.raises(pagoda.PagodaError, match="not a MapPoolsResponse"):
        _rings.open_rings("ring", session, is_local=True)
    (pair,) = map_socket.pairs
    assert descriptors_of(pair) == 2, "the daemon has two: its own and that of mmap"
    assert _rings.open_rings("auto", session, is_local=True)._ring is None
    map_socket.close()


@pytest.mark.parametrize("version", [0, 1, 3])
def test_rings_of_another_version_are_not_used(tmp_path, version):
    map_socket = MapSocket(tmp_path / "map.sock", lambda: Pair(SIZE, serve))
    map_socket.version = version
    session = SessionRef(1, (2, 3), map_socket.path)
    assert _rings.open_rings("auto", session, is_local=True) is None
    with pytest.raises(pagoda.CannotMap, match=f"the rings have version {version}, this client knows 2"):
        _rings.open_rings("ring", session, is_local=True)
    map_socket.close()


def test_a_pair_that_is_none_is_refused(tmp_path):
    pairs = [Pair(SIZE, serve, seals=0)]

    def make():
        if not pairs:
            raise ValueError("this daemon has no rings")
        return pairs.pop()

    map_socket = MapSocket(tmp_path / "map.sock", make)
    session = SessionRef(1, (2, 3), map_socket.path)
    with pytest.raises(pagoda.CannotMap, match="not sealed"):
        _rings.open_rings("ring", session, is_local=True)
    with pytest.raises(pagoda.NotServed, match="this daemon has no rings"):
        _rings.open_rings("ring", session, is_local=True)
    assert _rings.open_rings("auto", session, is_local=True) is None and len(map_socket.asked) == 3
    assert _rings.open_rings("auto", session, is_local=False) is None
    assert _rings.open_rings("grpc", session, is_local=True) is None and len(map_socket.asked) == 3
    map_socket.close()
    assert _rings.open_rings("auto", SessionRef(1, (2, 3), ""), is_local=True) is None
    with pytest.raises(pagoda.CannotMap):
        _rings.open_rings("ring", SessionRef(1, (2, 3), ""), is_local=True)


def test_the_transport_is_an_argument_or_in_the_environment(monkeypatch):
    monkeypatch.delenv("PAGODA_TRANSPORT", raising=False)
    assert [_rings.choose(given) for given in (None, "grpc", "ring", "auto")] == ["auto", "grpc", "ring", "auto"]
    monkeypatch.setenv("PAGODA_TRANSPORT", "grpc")
    assert (_rings.choose(None), _rings.choose("ring")) == ("grpc", "ring")
    with pytest.raises(ValueError, match="unknown transport 'tcp'; the transports are auto, grpc, ring"):
        pagoda.connect("unix:/nowhere", transport="tcp")


def test_without_the_extension_the_transport_ring_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(_rings, "native", None)
    session = SessionRef(1, (2, 3), str(tmp_path / "map.sock"))
    assert _rings.open_rings("auto", session, is_local=True) is None
    with pytest.raises(pagoda.CannotMap, match="no native extension"):
        _rings.open_rings("ring", session, is_local=True)
