"""deploy/kubernetes/node without a cluster: its daemon in one pod, engines in others, and between
them only a folder with two sockets."""

import contextlib
import functools
import os
import pathlib
import platform
import signal
import socket
import sys

import pytest
import yaml
from caches_daemon import BLOCK_BYTES, MEMORY, CachesDaemon
from pagoda_daemon import PAGODAD, QUIET_STOP_SECONDS
from pagoda.v1 import admin_pb2
from pods import CONFIG, ClientPod, MemoryGroup, Node, first_process, kill

KUBERNETES = pathlib.Path(__file__).parents[3] / "deploy" / "kubernetes"
OLD_KERNEL = pathlib.Path(__file__).with_name("old_kernel.py")
SO_PEERPIDFD = 77
PROMPT = list(range(40))
HELD_TOKENS, HELD_BLOCKS = 20, 5
CACHE_BYTES = 32 << 20
CACHE_BLOCKS = CACHE_BYTES // BLOCK_BYTES


def spec_of(file):
    """The pod of a manifest."""
    return yaml.safe_load((KUBERNETES / file).read_text())["spec"]["template"]["spec"]


def configuration():
    return yaml.safe_load(yaml.safe_load((KUBERNETES / "node" / "configmap.yaml").read_text())["data"]["pagodad.yaml"])


POD = spec_of("node/daemonset.yaml")
DAEMON_USER = POD["securityContext"]["runAsUser"]
ENDPOINT = {entry["name"]: entry["value"] for entry in spec_of("engines/vllm.yaml")["containers"][0]["env"]}["PAGODA_ENDPOINT"]
ENGINE = {"groups": spec_of("engines/vllm.yaml")["securityContext"]["supplementalGroups"], "read_only": True}


class NodeDaemon(CachesDaemon):
    """The pod of the DaemonSet, with its configuration and the memory of a test."""

    def __init__(self, node, *, old_kernel=False, memory=None, **pod):
        super().__init__(node.config)
        self.config = configuration()
        self.config["memory"] |= memory or {}
        self.unix_socket = node.shared / "pagoda.sock"
        self._node, self._pod, self._old_kernel = node, pod, old_kernel

    def command(self):
        self.write_config()
        program = [*([sys.executable, "-B", OLD_KERNEL] if self._old_kernel else []), PAGODAD]
        return self._node.command([*program, "--config", CONFIG / "pagodad.yaml", "--memory", f"{MEMORY >> 20}MiB"], user=DAEMON_USER,
                                  **self._pod)

    @property
    def pid(self):
        return first_process(self.process)

    def kill(self):
        if self.process is not None:
            kill(self.process)
        super().kill()

    def terminate(self, within_seconds=QUIET_STOP_SECONDS):
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(within_seconds)

    def watched(self):
        """How many descriptors of processes that can write the daemon has."""
        links = (os.readlink(link) for link in pathlib.Path(f"/proc/{self.pid}/fd").iterdir() if link.is_symlink())
        return sum("pidfd" in link for link in links)

    def is_whole(self):
        tier = self.primary()
        return tier.active_blocks == tier.in_flight_blocks == 0


@pytest.fixture
def node(tmp_path):
    """A node. The init container's command has made its folder."""
    node = Node(tmp_path)
    (init,) = POD["initContainers"]
    for _ in range(2):  # For the first pod of a node and for the next.
        node.run(init["command"], user=init["securityContext"]["runAsUser"],
                 capabilities=[name.lower() for name in init["securityContext"]["capabilities"]["add"]])
    return node


@pytest.fixture(params=[True, False], ids=["hostPID", "own-pids"])
def sees_node(request):
    """Whether the daemon sees the processes of other pods."""
    if not request.param and not names_peers():
        pytest.skip("needs Linux 6.5, which names a process of another PID namespace by a pidfd")
    return request.param


def linux():
    """The kernel's version."""
    return tuple(map(int, platform.release().split("-")[0].split(".")[:2]))


def names_peers():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            os.close(ours.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            return False
    return True


@pytest.fixture
def daemon(node, sees_node):
    with NodeDaemon(node, sees_node=sees_node) as daemon:
        yield daemon


def engine(node, user=20002, **options):
    return ClientPod(node, ENDPOINT, user=user, **ENGINE | options)


def test_the_folder_is_the_daemons_and_its_groups_alone(node):
    told = node.shared.stat()
    assert (told.st_uid, told.st_gid, told.st_mode & 0o7777) == (DAEMON_USER, ENGINE["groups"][0], 0o750)


def test_one_pod_reads_what_another_has_written(daemon, node):
    with engine(node) as writer, engine(node, user=20003) as reader:
        assert writer.ask("pid") == reader.ask("pid") == 1, "each is the first process of a PID namespace"
        writer.ask("open")
        assert writer.ask("keep", PROMPT, 7) is None
        reader.ask("open")
        assert reader.ask("find", PROMPT) == [7.0] * (len(PROMPT) // 4)


def test_what_a_killed_pod_held_is_free_again(daemon, node):
    with engine(node, lease=2.0) as doomed:
        doomed.ask("open")
        assert doomed.ask("hold", HELD_TOKENS) == HELD_BLOCKS
        assert daemon.watched() == 1
        doomed.kill()
        daemon.wait_until(lambda daemon: daemon.is_whole() and daemon.watched() == 0)


def test_what_a_stopped_pod_held_waits_for_its_end(daemon, node):
    """Its lease is over, but it could still write: its blocks are free only when it is dead."""
    with engine(node, lease=1.0) as stopped:
        stopped.ask("open")
        assert stopped.ask("hold", HELD_TOKENS) == HELD_BLOCKS
        stopped.send_signal(signal.SIGSTOP)
        daemon.wait_until(lambda daemon: daemon.status().quarantines == 1)
        assert daemon.status().sessions == 0 and daemon.primary().in_flight_blocks == HELD_BLOCKS
        stopped.kill()
        daemon.wait_until(NodeDaemon.is_whole)


def test_a_process_that_maps_often_is_one_writer(daemon, node, sees_node):
    """It maps once for each pool of its cache, and a session has 64 writers at most."""
    if not sees_node and linux() < (6, 9):
        pytest.skip("needs Linux 6.9, where pidfds tell one process of another PID namespace from the next")
    with engine(node) as mapping:
        mapping.ask("open")
        assert mapping.ask("map_again", 70) is None
        assert daemon.watched() == 1


def test_a_pod_without_the_group_is_refused(daemon, node):
    with engine(node, groups=[]) as stranger:
        assert stranger.ask("open").startswith("Unavailable")


def test_engines_find_the_daemon_of_the_next_pod(daemon, node, sees_node):
    with engine(node, lease=2.0) as living:
        living.ask("open")
        living.ask("keep", PROMPT, 7)
        daemon.kill()
        with NodeDaemon(node, sees_node=sees_node) as following:
            living.ask("open")
            assert living.ask("find", PROMPT) == []
            living.ask("keep", PROMPT, 8)
            assert living.ask("find", PROMPT) == [8.0] * (len(PROMPT) // 4)
            living.kill()
            following.wait_until(lambda following: following.watched() == 0)


def left_in_quarantine(daemon):
    """The blocks that the daemon still quarantines, after it has had time to see that a writer is
    dead."""
    daemon.wait_until(lambda daemon: daemon.status().sessions == 0)
    with contextlib.suppress(AssertionError):
        daemon.wait_until(lambda daemon: daemon.status().quarantined_blocks == 0, seconds=3)
    return daemon.status().quarantined_blocks


def release(daemon):
    """Does what an operator does who knows that the pod is gone."""
    for quarantine in daemon.admin.ListQuarantines(admin_pb2.ListQuarantinesRequest()).quarantines:
        daemon.admin.ReleaseQuarantine(admin_pb2.ReleaseQuarantineRequest(session_id=quarantine.session_id, force=True))
    daemon.wait_until(NodeDaemon.is_whole)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter of system calls is for x86-64")
@pytest.mark.parametrize("sees_node, left", [(True, 0), (False, HELD_BLOCKS)], ids=["hostPID", "own-pids"])
def test_before_linux_6_5_the_daemon_has_to_see_the_nodes_processes(node, sees_node, left):
    """Else it never learns that a killed pod is dead."""
    with NodeDaemon(node, old_kernel=True, sees_node=sees_node) as daemon, engine(node, lease=2.0) as doomed:
        doomed.ask("open")
        doomed.ask("hold", HELD_TOKENS)
        doomed.kill()
        assert left_in_quarantine(daemon) == left
        release(daemon)


@pytest.mark.parametrize("sees_node", [True, False], ids=["hostPID", "own-pids"])
def test_after_a_warm_restart_the_daemon_has_to_see_the_nodes_processes(node, tmp_path, sees_node):
    """The next daemon finds the writers of its predecessor only by their ids. A writer without an
    id counts as alive."""
    shm = tmp_path / "shm"
    shm.mkdir()
    shm.chmod(0o1777)
    start = functools.partial(NodeDaemon, node, memory={"warm_restart": True}, sees_node=sees_node, shm=shm)
    with contextlib.ExitStack() as stack:
        first = start()
        stack.callback(first.kill)
        first.start()
        doomed = stack.enter_context(engine(node))
        doomed.ask("open")
        doomed.ask("hold", HELD_TOKENS)
        first.kill()
        second = stack.enter_context(start())
        assert second.status().quarantined_blocks == CACHE_BLOCKS, "all blocks that are not cached"
        doomed.kill()
        assert left_in_quarantine(second) == (0 if sees_node else CACHE_BLOCKS)
        release(second)


@pytest.mark.parametrize("reservation, daemons_part, engines_part", [("whole", 1, 0), ("sparse", 0, 1)])
def test_a_caches_memory_counts_as_that_pods_which_takes_it(node, reservation, daemons_part, engines_part):
    """With the manifests, the memory is allocated when the cache opens. So an engine's writes count
    against no limit of its pod."""
    assert configuration()["memory"].get("reservation", "whole") == "whole"
    with MemoryGroup("daemon") as daemons, MemoryGroup("engine") as engines:
        with NodeDaemon(node, sees_node=True, group=daemons, memory={"reservation": reservation}), engine(node, group=engines) as writer:
            writer.ask("pid")
            before = daemons.used(), engines.used()
            writer.ask("open")
            assert writer.ask("fill") == CACHE_BYTES
            taken = daemons.used() - before[0], engines.used() - before[1]
            assert taken == pytest.approx((daemons_part * CACHE_BYTES, engines_part * CACHE_BYTES), abs=0.4 * CACHE_BYTES)
