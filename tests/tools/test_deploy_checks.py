"""The checks of deploy/ find what is planted for them, and nothing in the files as they are."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import deployment
import kubernetes_manifests
import systemd_unit
import tree

DOCUMENTS = kubernetes_manifests.load(tree.ROOT / "deploy" / "kubernetes")
IMAGE = deployment.image(deployment.DOCKERFILE.read_text())
# The values that pagodad prints of the ConfigMap's configuration, as far as the checks read them.
CONFIG = {
    "cache": {"primary": "16GiB", "secondary": "8GiB", "model": {"name": "Qwen/Qwen3-8B"}, "model_dir": ""},
    "engine": {"model_dir": "", "http_address": "127.0.0.1:7076"},
    "server": {"unix_socket": "/run/pagoda/pagoda.sock", "http_address": "0.0.0.0:7071", "probe_address": "0.0.0.0:7072", "drain_timeout": "20s"},
    "events": {"max_bytes": 268435456},
}
UNIT = systemd_unit.UNIT.read_text()
USERS = systemd_unit.USERS.read_text()
UNIT_CONFIG = {"server": {"drain_timeout": "10s", "unix_socket": "/run/pagoda/pagoda.sock", "grpc_address": "", "http_address": ""},
               "engine": {"grpc_address": "", "http_address": ""}}


def changed(documents, kind, place, value):
    """The documents with one value in another place or of another kind; None takes it away."""
    documents = copy.deepcopy(documents)
    (node,) = (document for _, document in documents if document["kind"] == kind)
    *path, last = place
    for key in path:
        node = node[key]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return documents


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)


def test_the_files_as_they_are_have_no_violations():
    assert kubernetes_manifests.violations(DOCUMENTS, CONFIG, IMAGE) == []
    assert systemd_unit.violations(UNIT, USERS, UNIT_CONFIG) == []


@pytest.mark.parametrize("kind, place, value, word", [
    # Kubernetes' own types.
    ("Deployment", (*POD, "terminationGracePeriod"), 60, "terminationGracePeriod"),
    ("Deployment", ("spec", "replicas"), "1", "replicas"),
    ("Deployment", ("spec", "selector"), None, "selector"),
    ("Deployment", (*CONTAINER, "livenessProbe", "httpGet", "paht"), "/livez", "paht"),
    ("Service", ("spec", "ports", 0, "targetport"), "http", "targetport"),
    ("Service", ("apiVersion",), "v2", "not among the kinds"),
    # Selectors.
    ("Deployment", ("spec", "template", "metadata", "labels"), {"app": "other"}, "selector"),
    ("Service", ("spec", "selector"), {"app.kubernetes.io/name": "pagoda"}, "the Service's selector"),
    ("PodDisruptionBudget", ("spec", "maxUnavailable"), 2, "more than one cache"),
    # The configuration and its place.
    ("ConfigMap", ("metadata", "name"), "other", "not mounted"),
    ("Deployment", (*CONTAINER, "args"), ["--config", "/etc/pagoda/other.yaml"], "has no other.yaml"),
    ("Deployment", (*CONTAINER, "volumeMounts", 1, "mountPath"), "/run/other", "the socket's folder"),
    # Ports.
    ("Deployment", (*CONTAINER, "ports", 0, "containerPort"), 7070, "the container's ports"),
    ("Deployment", (*CONTAINER, "livenessProbe", "httpGet", "port"), "grpc", "livenessProbe"),
    ("Deployment", (*CONTAINER, "livenessProbe", "httpGet", "port"), "http", "livenessProbe"),
    ("Service", ("spec", "ports", 0, "port"), 7070, "the Service's port"),
    ("Service", ("metadata", "annotations", "prometheus.io/port"), "7070", "Prometheus"),
    # Incoming connections.
    ("NetworkPolicy", ("spec", "podSelector"), {}, "NetworkPolicy's selector"),
    ("NetworkPolicy", ("spec", "policyTypes"), ["Egress"], "incoming connections"),
    ("NetworkPolicy", ("spec", "ingress", 0, "ports"), None, "opens the ports all"),
    ("NetworkPolicy", ("spec", "ingress", 0, "ports", 0, "port"), 7070, "opens the ports"),
    ("NetworkPolicy", ("spec", "ingress", 0, "from"), None, "does not name"),
    ("NetworkPolicy", ("spec", "ingress", 0, "from", 0, "podSelector"), {}, "does not name"),
    # Drain and liveness.
    ("Deployment", (*CONTAINER, "livenessProbe", "httpGet", "path"), "/readyz", "a drain would be killed"),
    ("Deployment", (*CONTAINER, "startupProbe"), None, "startupProbe"),
    ("Deployment", (*CONTAINER, "lifecycle"), {"preStop": {"exec": {"command": ["sleep", "30"]}}}, "preStop"),
    ("Deployment", (*POD, "terminationGracePeriodSeconds"), 20, "terminationGracePeriodSeconds"),
    # Memory.
    ("Deployment", (*POD, "volumes", 2, "emptyDir", "medium"), None, "not a volume of memory"),
    ("Deployment", (*POD, "volumes", 2, "emptyDir", "sizeLimit"), "20Gi", "the tiers take"),
    ("Deployment", (*CONTAINER, "resources", "limits", "memory"), "25Gi", "does not hold /dev/shm"),
    ("Deployment", (*CONTAINER, "resources", "requests", "memory"), "1Gi", "not requested in full"),
    # Security.
    ("Deployment", (*POD, "securityContext", "runAsUser"), 1000, "not the image's"),
    ("Deployment", (*POD, "securityContext", "runAsNonRoot"), False, "not the image's"),
    ("Deployment", (*CONTAINER, "securityContext", "readOnlyRootFilesystem"), False, "write to its own files"),
    ("Deployment", (*CONTAINER, "securityContext", "capabilities", "drop"), [], "capabilities"),
    ("Deployment", (*CONTAINER, "image"), "pagoda:latest", "this is the source of"),
])
def test_a_fault_of_a_manifest_is_found(kind, place, value, word):
    found = kubernetes_manifests.violations(changed(DOCUMENTS, kind, place, value), CONFIG, IMAGE)
    assert any(word in violation for violation in found), found


@pytest.mark.parametrize("section, key, value, word", [
    ("server", "http_address", "127.0.0.1:7071", "cannot be reached"),
    ("server", "http_address", "0.0.0.0:8080", "the container's ports"),
    ("server", "probe_address", "127.0.0.1:7072", "cannot be reached"),
    ("server", "probe_address", "0.0.0.0:8080", "does not ask at probe_address"),
    ("server", "drain_timeout", "1m", "terminationGracePeriodSeconds"),
    ("server", "unix_socket", "/tmp/pagoda.sock", "the socket's folder /tmp"),
    ("cache", "primary", "17GiB", "the tiers take"),
    ("cache", "model", {"name": ""}, "of which model"),
    ("events", "max_bytes", 2**31, "the event log"),
    ("engine", "http_address", "127.0.0.1:7077", "the image exposes"),
])
def test_a_configuration_that_the_manifests_do_not_follow_is_found(section, key, value, word):
    config = copy.deepcopy(CONFIG)
    config[section][key] = value
    found = kubernetes_manifests.violations(DOCUMENTS, config, IMAGE)
    assert any(word in violation for violation in found), found


@pytest.mark.parametrize("line, other, word", [
    ("Type=notify", "Type=simple", "Type"),
    ("WatchdogSec=60", "", "watchdog"),
    ("WatchdogSec=60", "WatchdogSec=5", "watchdog"),
    ("TimeoutStopSec=60", "TimeoutStopSec=10", "TimeoutStopSec"),
    ("RuntimeDirectory=pagoda", "RuntimeDirectory=other", "RuntimeDirectory"),
    ("User=pagoda", "User=nobody", "does not make the user"),
    ("KillMode=mixed", "", "KillMode"),
    ("Restart=on-failure", "Restart=no", "Restart"),
    ("OOMScoreAdjust=-800", "OOMScoreAdjust=800", "memory is short"),
    ("ExecStart=/usr/local/bin/pagodad", "ExecStart=/usr/bin/pagodad", "ExecStart"),
    ("LimitMEMLOCK=infinity", "", "LimitMEMLOCK"),
    ("PrivateTmp=yes", "MemoryDenyWriteExecute=yes", "bundled engine"),
])
def test_a_fault_of_the_unit_is_found(line, other, word):
    assert UNIT.count(f"\n{line}") == 1
    found = systemd_unit.violations(UNIT.replace(f"\n{line}", f"\n{other}"), USERS, UNIT_CONFIG)
    assert len(found) == 1 and word in found[0]


def test_a_drain_that_the_unit_does_not_wait_for_is_found():
    found = systemd_unit.violations(UNIT, USERS, UNIT_CONFIG | {"server": UNIT_CONFIG["server"] | {"drain_timeout": "1m"}})
    assert len(found) == 1 and "TimeoutStopSec" in found[0]


@pytest.mark.parametrize("section", ["server", "engine"])
@pytest.mark.parametrize("key", ["grpc_address", "http_address"])
def test_a_port_on_which_every_local_user_is_an_operator_is_found(section, key):
    opened = UNIT_CONFIG | {section: UNIT_CONFIG[section] | {key: "127.0.0.1:7070"}}
    found = systemd_unit.violations(UNIT, USERS, opened)
    assert len(found) == 1 and f"{section}.{key}" in found[0]
    assert systemd_unit.violations(UNIT, USERS, opened | {"operators": {"tokens_file": "operators.tokens"}}) == []


def test_sizes_and_durations_are_those_of_their_writers():
    assert deployment.size("16GiB") == deployment.size("16Gi") == 2**34
    assert deployment.size(268435456) == 2**28
    assert deployment.duration("1m30s") == 90 and deployment.duration("1.5s") == 1.5 and deployment.duration("10min") == 600
    with pytest.raises(AssertionError):
        deployment.duration("10 parsecs")


def test_the_last_stage_of_a_dockerfile_is_what_runs():
    text = "FROM a AS b\nUSER 1:1\n# FROM c\nFROM d\nRUN x \\\n    && y\nUSER 2:3\n"
    assert deployment.instructions(text) == [("FROM", "d"), ("RUN", "x && y"), ("USER", "2:3")]


def test_the_image_runs_as_nobody_in_particular_and_can_be_asked_for_its_health():
    last_stage = dict(deployment.instructions(deployment.DOCKERFILE.read_text()))
    assert IMAGE["user"] >= 1000 and IMAGE["group"] >= 1000
    assert '["pagodactl"' in last_stage["HEALTHCHECK"] and last_stage["STOPSIGNAL"] == "SIGTERM"
