"""Pods of one node, without Kubernetes: processes in their own namespaces, like those of a
container runtime.

The image of all pods is this machine's root file system. Two pods share only the node's folder
/run/pagoda. Needs root. Without root, or if the system allows no namespaces, the test is skipped.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from pagoda_daemon import PAGODAD

CLIENT = pathlib.Path(__file__).with_name("pod_client.py")
# Each pod mounts the node's folder and its ConfigMap at these paths.
SHARED = pathlib.Path("/run/pagoda")
CONFIG = pathlib.Path("/run/config")
NAMESPACES = ("--mount", "--propagation", "private", "--ipc", "--uts", "--net", "--cgroup")
OWN_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")


class Node:
    """A node with `shared`, which every pod has at /run/pagoda, and `config`, in `folder`."""

    def __init__(self, folder):
        self.shared, self.config = folder / "shared", folder / "config"
        for path in (self.shared, self.config):
            path.mkdir()
            path.chmod(0o755)
        for user in (0, 65534):
            tried = self._run([PAGODAD, "--version"], user=user)
            if tried.returncode != 0:
                pytest.skip(f"no pods here; they need root, namespaces, and a build that every user may read: {tried.stdout.strip()}")

    def command(self, argv, *, user, groups=(), capabilities=(), sees_node=False, read_only=False, shm=None, group=None):
        """`argv` as the first process of a pod with its own /run, /dev/shm and network.

        It runs as the user and group `user`, and in `groups`, with only `capabilities`.
        sees_node: it sees the node's processes, like with hostPID. read_only: the node's folder is
        read-only. shm: a folder of the node for a /dev/shm that outlives the pod. group: its
        MemoryGroup.
        """
        mounts = [
            *([f"echo $$ > {group.folder}/cgroup.procs"] if group else []),
            f"mount -t tmpfs -o mode=755 tmpfs /run && mkdir {SHARED} {CONFIG}",
            f"mount --bind {self.shared} {SHARED}",
            *([f"mount -o remount,bind,ro {SHARED}"] if read_only else []),
            f"mount --bind {self.config} {CONFIG}",
            f"mount --bind {shm} /dev/shm" if shm else "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        ]
        script = " && ".join([*mounts, 'exec "$@"'])
        kept = ",".join(["-all", *(f"+{name}" for name in capabilities)])
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
                  "--inh-caps=-all", f"--bounding-set={kept}", "--no-new-privs", "--pdeathsig", "KILL"]
        return ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, *(() if sees_node else OWN_PIDS), "sh", "-c", script, "sh",
                *become, *argv]

    def run(self, argv, **pod):
        """Runs a pod that ends by itself, such as an init container, and returns its output. Fails
        if the pod fails."""
        ended = self._run(argv, **pod)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    def _run(self, argv, **pod):
        return subprocess.run(self.command(argv, **pod), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)


def first_process(process):
    """The process id, in this namespace, of the first process of the pod that runs as the
    subprocess `process`."""
    if "--fork" not in process.args:
        return process.pid
    (pid,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


def kill(process):
    """kill -9 for a pod; nothing where it has ended."""
    if process.poll() is None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(first_process(process), signal.SIGKILL)
        process.kill()


class MemoryGroup:
    """A cgroup that counts memory, until the end of a `with` block. The test is skipped if none can
    be made."""

    def __init__(self, name):
        version_2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        self.folder = pathlib.Path("/sys/fs/cgroup", *(() if version_2 else ["memory"]), f"pagoda-{os.getpid()}-{name}")
        self._usage = self.folder / ("memory.current" if version_2 else "memory.usage_in_bytes")

    def used(self):
        """Bytes."""
        return int(self._usage.read_text())

    def __enter__(self):
        try:
            self.folder.mkdir()
            self.used()
        except OSError as error:
            self.__exit__()
            pytest.skip(f"no cgroup for memory: {error}")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(FileNotFoundError):
            self.folder.rmdir()


class ClientPod:
    """A pod_client.py in a pod, until the end of a `with` block. `pod` holds the arguments of
    Node.command. The client ends its session at the end of the block. If it is killed, the session
    lives until its lease ends."""

    def __init__(self, node, endpoint, *, lease=30.0, **pod):
        self._process = subprocess.Popen(node.command([sys.executable, "-B", CLIENT, endpoint, str(lease)], **pod), stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)

    def ask(self, what, *arguments):
        """Calls a function of pod_client.py. Returns its value, or the name and message of its
        exception."""
        print(json.dumps([what, *arguments]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        return json.loads(line)

    def send_signal(self, number):
        os.kill(first_process(self._process), number)

    def kill(self):
        """kill -9."""
        kill(self._process)
        self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20)
        self.kill()
