"""The check of deploy/kubernetes/node and engines/ finds each planted violation, and nothing in the
real files."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kubernetes_node_manifests
from kubernetes_manifests import load
from test_deploy_checks import CONTAINER, POD, changed

NODE = load(kubernetes_node_manifests.FOLDER / "node")
ENGINES = load(kubernetes_node_manifests.FOLDER / "engines")
FACTS = kubernetes_node_manifests.known()
# The values that pagodad prints of the ConfigMap's configuration, as far as the checks read them.
CONFIG = {
    "memory": {"host": "64GiB", "max_caches": 4, "reservation": "whole"},
    "server": {"unix_socket": "/run/pagoda/pagoda.sock", "map_socket": "auto", "grpc_address": "", "http_address": "0.0.0.0:7071",
               "probe_address": "0.0.0.0:7072", "drain_timeout": "20s"},
    "events": {"max_bytes": 268435456},
    "engine": {"http_address": "127.0.0.1:7076"},
}
INIT = (*POD, "initContainers", 0)
ARGS = (*CONTAINER, "args", 0)
FLAG = kubernetes_node_manifests.FLAG


def found(node=NODE, engines=ENGINES, config=CONFIG, **facts):
    return kubernetes_node_manifests.violations(node, engines, config, FACTS | facts)


def test_the_files_as_they_are_have_no_violations():
    assert found() == []


@pytest.mark.parametrize("kind, place, value, word", [
    # Kubernetes' own types.
    ("DaemonSet", ("spec", "replicas"), 1, "replicas"),
    ("DaemonSet", (*POD, "hostPid"), True, "hostPid"),
    # Selectors.
    ("DaemonSet", ("spec", "template", "metadata", "labels"), {"app": "other"}, "selector"),
    ("NetworkPolicy", ("spec", "podSelector"), {}, "NetworkPolicy's selector"),
    ("ConfigMap", ("metadata", "name"), "other", "not mounted"),
    # One daemon per node.
    ("DaemonSet", ("spec", "updateStrategy", "rollingUpdate", "maxSurge"), 1, "second daemon"),
    ("DaemonSet", (*POD, "hostPID"), None, "the processes of engines"),
    ("DaemonSet", (*POD, "hostNetwork"), True, "the ports are the node's"),
    # The folder.
    ("DaemonSet", (*POD, "volumes", 1), {"name": "run", "emptyDir": {}}, "is not the node's"),
    ("DaemonSet", (*POD, "volumes", 1, "hostPath", "path"), "/var/run/pagoda", "is not the node's"),
    ("DaemonSet", (*INIT, "command", 3), "1000", "does not make"),
    ("DaemonSet", (*INIT, "command", 7), "0777", "does not make"),
    ("DaemonSet", (*INIT, "securityContext", "capabilities", "add"), ["SYS_ADMIN"], "capabilities"),
    ("DaemonSet", (*INIT, "volumeMounts", 0, "mountPath"), "/run", "other volumes"),
    ("DaemonSet", (*INIT, "image"), "busybox", "the init container's image"),
    # The same checks as for the daemon with engines in its pod.
    ("DaemonSet", (*CONTAINER, "ports", 0, "containerPort"), 7070, "the container's ports"),
    ("DaemonSet", (*CONTAINER, "livenessProbe", "httpGet", "path"), "/readyz", "a drain would be killed"),
    ("DaemonSet", (*POD, "terminationGracePeriodSeconds"), 20, "terminationGracePeriodSeconds"),
    ("DaemonSet", (*POD, "securityContext", "runAsUser"), 0, "not the image's"),
    ("DaemonSet", (*CONTAINER, "securityContext", "capabilities", "drop"), [], "capabilities"),
    ("DaemonSet", (*POD, "volumes", 2, "emptyDir", "sizeLimit"), "63Gi", "the tiers take"),
    ("DaemonSet", (*CONTAINER, "resources", "limits", "memory"), "66Gi", "does not hold /dev/shm"),
    ("Service", ("spec", "ports", 0, "port"), 7070, "the Service's port"),
    ("NetworkPolicy", ("spec", "ingress", 0, "ports", 0, "port"), 7070, "opens the ports"),
])
def test_a_fault_of_the_daemons_manifests_is_found(kind, place, value, word):
    faults = found(changed(NODE, kind, place, value))
    assert any(word in fault for fault in faults), faults


@pytest.mark.parametrize("place, value, word", [
    (("spec", "template", "metadata", "labels"), {"app": "other"}, "selector"),
    ((*CONTAINER, "env", 0, "value"), "127.0.0.1:7070", "PAGODA_ENDPOINT is 127.0.0.1:7070"),
    ((*CONTAINER, "env", 0, "name"), "PAGODA_ADDRESS", "PAGODA_ENDPOINT is None"),
    ((*CONTAINER, "volumeMounts", 0, "mountPath"), "/pagoda", "at the same path"),
    ((*CONTAINER, "volumeMounts", 0, "readOnly"), None, "may write"),
    ((*POD, "volumes", 0, "hostPath", "type"), "DirectoryOrCreate", "before the daemon"),
    ((*POD, "volumes", 0), {"name": "pagoda", "emptyDir": {}}, "does not have the node's"),
    ((*POD, "securityContext", "supplementalGroups"), None, "group"),
    ((*POD, "securityContext", "supplementalGroups"), [1000], "group"),
    ((*POD, "nodeSelector"), {"gpu": "true"}, "nodeSelector"),
    ((*POD, "tolerations"), None, "tolerations"),
    ((*CONTAINER, "resources", "requests", "memory"), "1Gi", "not requested in full"),
    ((*POD, "volumes", 1, "emptyDir", "medium"), None, "/dev/shm"),
    ((*CONTAINER, "image"), "vllm-pagoda:latest", "the engine's image"),
    (ARGS, FLAG + "{}", "--kv-transfer-config"),
    (ARGS, FLAG + '{"kv_connector_extra_config": {"hots": "100%"}}', "hots"),
    (ARGS, FLAG + '{"kv_connector_extra_config": {"endpoint": "unix:/other"}}', "said twice"),
])
def test_a_fault_of_an_engines_manifest_is_found(place, value, word):
    faults = found(engines=changed(ENGINES, "Deployment", place, value))
    assert any(word in fault for fault in faults), faults


@pytest.mark.parametrize("section, key, value, word", [
    ("server", "unix_socket", "/tmp/pagoda.sock", "the sockets' folder /tmp"),
    ("server", "unix_socket", "/run/pagoda/other.sock", "PAGODA_ENDPOINT"),
    ("server", "grpc_address", "0.0.0.0:7070", "gRPC is open"),
    ("server", "map_socket", "/tmp/map.sock", "the map socket"),
    ("server", "probe_address", "127.0.0.1:7072", "cannot be reached"),
    ("memory", "host", 0, "no memory for those of engines"),
    ("memory", "host", "66GiB", "the tiers take"),
    ("memory", "max_caches", 5, "the event log"),
    ("memory", "reservation", "sparse", "counts as the engine's"),
])
def test_a_configuration_that_the_manifests_do_not_follow_is_found(section, key, value, word):
    config = copy.deepcopy(CONFIG)
    config[section][key] = value
    faults = found(config=config)
    assert any(word in fault for fault in faults), faults


@pytest.mark.parametrize("facts, word", [
    ({"vllm": "0.33.0"}, "another vLLM"),
    ({"dockerfile": FACTS["dockerfile"].replace("-0.1.0-py3", "-0.0.9-py3")}, "another wheel"),
    ({"dockerfile": FACTS["dockerfile"].replace("vllm-pagoda:0.1.0", "vllm:0.1.0")}, "vllm.Dockerfile makes vllm:0.1.0"),
])
def test_an_image_of_other_versions_is_found(facts, word):
    faults = found(**facts)
    assert any(word in fault for fault in faults), faults
