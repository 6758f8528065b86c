"""The check of deploy/kubernetes/cluster finds each planted violation, and nothing in the real
files."""

import copy
import pathlib
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kubernetes_cluster_manifests as checks
from deployment import DOCKERFILE, image
from kubernetes_manifests import load

CLUSTER, NODE = load(checks.FOLDER / "cluster"), load(checks.FOLDER / "node")
README = (checks.FOLDER / "cluster" / "README.md").read_text()
SECRETS = checks.SECRETS
# The values that pagodad prints, as far as the checks read them.
CONFIG = {
    "server": {"http_address": "0.0.0.0:7071"},
    "store": {"servers": [f"valkey-{i}.valkey:6379" for i in range(6)], "password_file": f"{SECRETS}/store.password", "secret_file": f"{SECRETS}/store.secret"},
    "peers": {"address": "0.0.0.0:7073", "advertised": "10.1.2.3:7073", "sources": ["10.*:7073"], "tokens_file": f"{SECRETS}/peers.token",
              "source_token_file": f"{SECRETS}/peers.token"},
}
POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
INIT = (*POD, "initContainers", 1)
POLICY = ("spec", "ingress")


def changed(documents, kind, name, place, value):
    """A copy with another value at the place. None removes the key."""
    copied = copy.deepcopy(documents)
    part = checks.by_name(copied, kind, name)
    for key in place[:-1]:
        part = part[key]
    if value is None:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return copied


def found(cluster=CLUSTER, config=CONFIG, readme=README):
    return checks.violations(cluster, NODE, config, image(DOCKERFILE.read_text()), readme)


def test_the_files_as_they_are_have_no_violations():
    assert found() == []


@pytest.mark.parametrize("kind, name, place, value, word", [
    ("StatefulSet", "valkey", ("spec", "replica"), 6, "replica"),
    ("Job", "valkey-create", (*POD, "restartpolicy"), "Never", "restartpolicy"),
    # The daemons.
    ("DaemonSet", "pagodad-node", (*POD, "hostPID"), None, "not that of node/"),
    ("DaemonSet", "pagodad-node", (*CONTAINER, "resources", "limits", "memory"), "68Gi", "not that of node/"),
    ("DaemonSet", "pagodad-node", (*POD, "volumes", 0, "emptyDir"), None, "does not write the daemon's configuration"),
    ("DaemonSet", "pagodad-node", (*INIT, "env", 0, "valueFrom", "fieldRef", "fieldPath"), "status.hostIP", "does not know the pod's address"),
    ("DaemonSet", "pagodad-node", (*INIT, "image"), "busybox", "another image"),
    ("DaemonSet", "pagodad-node", (*POD, "volumes", 2, "secret", "defaultMode"), 0o444, "cannot read the Secret"),
    ("DaemonSet", "pagodad-node", (*POD, "securityContext", "fsGroup"), 1, "cannot read the Secret"),
    ("DaemonSet", "pagodad-node", (*POD, "volumes", 2, "secret", "secretName"), "other", "does not make the Secret"),
    ("DaemonSet", "pagodad-node", (*CONTAINER, "ports", 2, "containerPort"), 7072, "do not have peers.address"),
    # Valkey.
    ("StatefulSet", "valkey", ("spec", "selector", "matchLabels"), {"app": "other"}, "selector"),
    ("StatefulSet", "valkey", ("spec", "replicas"), 5, "not six nodes"),
    ("StatefulSet", "valkey", ("spec", "serviceName"), "other", "no names"),
    ("StatefulSet", "valkey", (*CONTAINER, "image"), "redis:7", "different images"),
    ("StatefulSet", "valkey", (*CONTAINER, "env", 2, "value"), "valkey-0.valkey:6379", "knows other nodes"),
    ("StatefulSet", "valkey", (*CONTAINER, "env", 3, "value"), "8gb", "the values may take"),
    ("StatefulSet", "valkey", (*CONTAINER, "env", 1, "valueFrom", "secretKeyRef", "key"), "store.secret", "another password"),
    ("StatefulSet", "valkey", (*CONTAINER, "securityContext", "readOnlyRootFilesystem"), False, "rights that it does not need"),
    ("StatefulSet", "valkey", (*CONTAINER, "command", 1), "/scripts/run.sh", "there is no run.sh"),
    ("Service", "valkey", ("spec", "publishNotReadyAddresses"), None, "before they are ready"),
    ("PodDisruptionBudget", "valkey", ("spec", "selector", "matchLabels"), {"app": "other"}, "selector"),
    ("Job", "valkey-create", (*POD, "restartPolicy"), "Never", "gives up"),
    # Policies.
    ("NetworkPolicy", "valkey", (*POLICY, 0, "from", 0, "podSelector"), {}, "opens the port 6379"),
    ("NetworkPolicy", "valkey", (*POLICY, 1, "ports", 1, "port"), 16380, "opens the ports"),
    ("NetworkPolicy", "valkey", (*POLICY, 1, "from"), None, "opens the port 16379"),
    ("NetworkPolicy", "pagodad-node", (*POLICY, 1, "ports", 0, "port"), 7072, "opens the ports"),
    ("NetworkPolicy", "pagodad-node", (*POLICY, 1, "from", 0, "podSelector", "matchLabels"), {"app": "x"}, "opens the port 7073"),
])
def test_a_fault_of_the_manifests_is_found(kind, name, place, value, word):
    faults = found(changed(CLUSTER, kind, name, place, value))
    assert any(word in fault for fault in faults), faults


@pytest.mark.parametrize("section, key, value, word", [
    ("store", "servers", ["valkey-6.valkey:6379"], "not among the nodes"),
    ("store", "servers", [], "not among the nodes"),
    ("store", "servers", ["valkey-0.valkey:6379"], "do not connect to all nodes"),
    ("store", "password_file", "/etc/pagoda/store.password", "not in the Secret"),
    ("store", "secret_file", f"{SECRETS}/other.secret", "does not make other.secret"),
    ("peers", "advertised", "POD_IP:7073", "sent to POD_IP:7073"),
    ("peers", "sources", ["192.168.*:7073"], "does not accept"),
    ("peers", "tokens_file", "", "the token that they ask for"),
    ("peers", "address", "127.0.0.1:7073", "do not have peers.address"),
])
def test_a_fault_of_the_configuration_is_found(section, key, value, word):
    faults = found(config={**CONFIG, section: {**CONFIG[section], key: value}})
    assert any(word in fault for fault in faults), faults


def test_a_fault_of_the_readme_is_found():
    assert any("peers.token" in fault for fault in found(readme=README.replace("--from-file=peers.token", "")))


SERVER, CLI = shutil.which("redis-server"), shutil.which("redis-cli")


@pytest.mark.skipif(not (SERVER and CLI), reason="no redis-server is installed")
@pytest.mark.parametrize("was, becomes, word", [
    ("cluster meet", "ping", "at new addresses"),
    ("requirepass %s\\n", "# %s\\n", "without a password"),
    ("if first_says cluster_known_nodes:1", "if true", "of an existing cluster"),
])
def test_a_fault_of_the_scripts_is_found(monkeypatch, was, becomes, word):
    monkeypatch.setattr(checks, "SECONDS", 6)
    scripts = checks.by_name(CLUSTER, "ConfigMap", "valkey")["data"]
    assert any(was in text for text in scripts.values())
    faults = list(checks.script_violations({name: text.replace(was, becomes) for name, text in scripts.items()}, SERVER, CLI))
    assert any(word in fault for fault in faults), faults
