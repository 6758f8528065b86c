"""Compares the manifests of deploy/kubernetes with Kubernetes' own types, the daemon's
configuration and the image. kubernetes_node_manifests.py checks those of the folders node/ and
engines/, and kubernetes_cluster_manifests.py those of cluster/.

    /usr/bin/python3 tests/tools/kubernetes_manifests.py BIN_DIR [FOLDER]

The types are those of Debian's python3-kubernetes (API 1.22). The check finds a field that they do
not know, one of another type, and one that is missing. tests/e2e/process/test_supervision.py tests
with a daemon that the probes' paths are the daemon's.
"""

import json
import pathlib
import sys
import types

import kubernetes.client
import tree
import yaml
from deployment import (DOCKERFILE, DRAIN_MARGIN_SECONDS, duration, effective_config, image, is_loopback, port, size)

API = kubernetes.client.ApiClient()
CONTAINER = "pagodad"
KINDS = {
    ("apps/v1", "DaemonSet"): "V1DaemonSet",
    ("apps/v1", "Deployment"): "V1Deployment",
    ("apps/v1", "StatefulSet"): "V1StatefulSet",
    ("batch/v1", "Job"): "V1Job",
    ("policy/v1", "PodDisruptionBudget"): "V1PodDisruptionBudget",
    ("v1", "ConfigMap"): "V1ConfigMap",
    ("v1", "Service"): "V1Service",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy",
}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# Memory of the daemon beside the pools and the event log: the index, connections, the program.
OTHER_MEMORY_BYTES = 2**30


def load(folder):
    """[(file name, document)] of the folder's YAML files."""
    return [(path.name, document) for path in sorted(folder.glob("*.yaml"))
            for document in yaml.safe_load_all(path.read_text()) if document is not None]


def schema_violations(file, document):
    """Reads the document as Kubernetes' type and writes it again. A field that disappears is no
    field of the type."""
    kind = KINDS.get((document.get("apiVersion"), document.get("kind")))
    if kind is None:
        return [f"{file}: {document.get('apiVersion')} {document.get('kind')} is not among the kinds that are checked"]
    try:
        read = API.deserialize(types.SimpleNamespace(data=json.dumps(document)), kind)
    except ValueError as error:
        return [f"{file}: {error}"]
    return [f"{file}: {place}" for place in differences(document, API.sanitize_for_serialization(read))]


def differences(wanted, got, place=""):
    """The differences of two documents, as "spec.replicas: ...", in text, numbers, lists and
    mappings."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in wanted.keys() | got.keys():
            yield from differences(wanted.get(key), got.get(key), f"{place}.{key}" if place else key)
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for index, pair in enumerate(zip(wanted, got)):
            yield from differences(*pair, f"{place}[{index}]")
    elif wanted != got or type(wanted) is not type(got):
        yield f"{place}: {wanted!r} is not what Kubernetes has there"


class Workload:
    """The pods of a Deployment or a DaemonSet, by one of their containers."""

    def __init__(self, document, container):
        self.document = document
        self.template = document["spec"]["template"]
        self.pod = self.template["spec"]
        (self.container,) = (one for one in self.pod["containers"] if one["name"] == container)
        self.mounts = {mount["mountPath"]: mount for mount in self.container["volumeMounts"]}
        self.volumes = {volume["name"]: volume for volume in self.pod["volumes"]}

    def volume_at(self, path):
        """The volume that is mounted at `path`; {} where none is."""
        return self.volumes.get(self.mounts.get(path, {}).get("name"), {})


class Manifests(Workload):
    """The daemon's documents by kind, with the parts of its pods that the checks use. `kind` is
    that of the document that makes the pods."""

    def __init__(self, documents, kind="Deployment"):
        self.by_kind = {document["kind"]: document for _, document in documents}
        super().__init__(self.by_kind[kind], CONTAINER)
        self.config_map = self.by_kind["ConfigMap"]
        self.service = self.by_kind["Service"]
        self.policy = self.by_kind["NetworkPolicy"]

    def selectors(self):
        """Labels that have to select the pods, by whose they are."""
        return {
            f"the {self.document['kind']}'s selector": self.document["spec"]["selector"]["matchLabels"],
            "the Service's selector": self.service["spec"]["selector"],
            "the NetworkPolicy's selector": self.policy["spec"]["podSelector"].get("matchLabels", {}),
        }


def selector_violations(manifests):
    budget = manifests.by_kind["PodDisruptionBudget"]["spec"]
    selectors = manifests.selectors() | {"the PodDisruptionBudget's selector": budget["selector"]["matchLabels"]}
    for rule in manifests.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]:
        selectors["the anti-affinity's selector"] = rule["labelSelector"]["matchLabels"]
    yield from unselected(manifests, selectors)
    if budget.get("maxUnavailable") != 1:
        yield "the PodDisruptionBudget lets more than one cache go at a time"


def unselected(workload, selectors):
    labels = workload.template["metadata"]["labels"].items()
    for name, selector in selectors.items():
        if not selector or not selector.items() <= labels:
            yield f"{name} does not select the pods: {selector}"


def config_violations(manifests, config):
    yield from config_map_violations(manifests)
    socket_folder = config["server"]["unix_socket"].rpartition("/")[0]
    if "emptyDir" not in manifests.volume_at(socket_folder):
        yield f"the socket's folder {socket_folder} is not a volume, and the container's own files are read-only"


def config_map_violations(manifests):
    folder, _, file = manifests.container["args"][-1].rpartition("/")
    if manifests.container["args"][:-1] != ["--config"] or file not in manifests.config_map["data"]:
        yield f"the ConfigMap has no {file}"
    if manifests.volume_at(folder).get("configMap", {}).get("name") != manifests.config_map["metadata"]["name"]:
        yield f"the ConfigMap is not mounted at {folder}"


def model_violations(config):
    """Sooner or later an operator runs several models with these files. Each daemon has to know its
    own model."""
    cache = config["cache"]
    if not (cache["model"]["name"] or cache["model_dir"] or config["engine"]["model_dir"]):
        yield "the ConfigMap does not say of which model the KV is: cache.model.name"


def port_violations(manifests, config, the_image):
    address, probe_address = (config["server"][key] for key in ("http_address", "probe_address"))
    for one in (address, probe_address):
        if is_loopback(one):
            yield f"{one} cannot be reached from outside the pod"
    ports = {one["name"]: one["containerPort"] for one in manifests.container["ports"]}
    if set(ports.values()) != {port(address), port(probe_address)}:
        yield f"the container's ports {ports} are not http_address {address} and probe_address {probe_address}"
    openai_address = config["engine"]["http_address"]
    if the_image["ports"] != {port(address), port(probe_address), port(openai_address)}:
        yield f"the image exposes {the_image['ports']}, and the configuration has {address}, {probe_address} and {openai_address}"
    for probe in PROBES:
        if ports.get(manifests.container[probe]["httpGet"]["port"]) != port(probe_address):
            yield f"the {probe} does not ask at probe_address"
    (service_port,) = manifests.service["spec"]["ports"]
    if ports.get(service_port["targetPort"]) != port(address) or service_port["port"] != port(address):
        yield f"the Service's port {service_port} is not http_address {address}"
    if manifests.service["metadata"]["annotations"]["prometheus.io/port"] != str(port(address)):
        yield "Prometheus is sent to another port"


def policy_violations(manifests, config):
    """The policy names the pods that it lets in, and opens only HTTP to them."""
    spec = manifests.policy["spec"]
    if "Ingress" not in spec.get("policyTypes", []):
        yield "the NetworkPolicy does not limit incoming connections"
    for rule in spec.get("ingress", []):
        allowed = [one.get("port") for one in rule.get("ports", [])]
        if allowed != [port(config["server"]["http_address"])]:
            yield f"the NetworkPolicy opens the ports {allowed or 'all'}, not http_address alone"
        peers = rule.get("from", [])
        if not peers or not all(peer.get("podSelector", {}).get("matchLabels") for peer in peers):
            yield "the NetworkPolicy lets pods in that it does not name"


def life_violations(manifests, config):
    paths = {probe: manifests.container[probe]["httpGet"]["path"] for probe in PROBES}
    if paths["livenessProbe"] == paths["readinessProbe"]:
        yield "the liveness probe asks for readiness: a drain would be killed"
    pre_stop = manifests.container.get("lifecycle", {}).get("preStop")
    if pre_stop is not None:
        yield f"a preStop takes its time from the drain's: {pre_stop}"
    needed = duration(config["server"]["drain_timeout"]) + DRAIN_MARGIN_SECONDS
    if manifests.pod["terminationGracePeriodSeconds"] < needed:
        yield f"terminationGracePeriodSeconds is below what a drain may take, {needed:.0f} s"


def memory_violations(manifests, config):
    tiers = size(config["cache"]["primary"]) + size(config["cache"]["secondary"])
    yield from limit_violations(manifests, tiers, config["events"]["max_bytes"])


def limit_violations(manifests, tiers, event_logs):
    """`tiers`, `event_logs`: bytes of blocks and of event logs that the daemon may take."""
    volume = manifests.volume_at("/dev/shm").get("emptyDir", {})
    if volume.get("medium") != "Memory":
        yield "/dev/shm is not a volume of memory"
    shared = size(volume.get("sizeLimit", 0))
    if shared < tiers:
        yield f"/dev/shm has {shared} bytes, the tiers take {tiers}"
    resources = manifests.container["resources"]
    limit = size(resources["limits"]["memory"])
    if limit < shared + event_logs + OTHER_MEMORY_BYTES:
        yield f"the memory limit {limit} does not hold /dev/shm, the event log and the daemon"
    if resources["requests"]["memory"] != resources["limits"]["memory"]:
        yield "memory that is taken at the start is not requested in full"


def security_violations(manifests, the_image):
    pod = manifests.pod["securityContext"]
    if (pod.get("runAsUser"), pod.get("runAsGroup"), pod.get("runAsNonRoot")) != (the_image["user"], the_image["group"], True):
        yield f"the pod's user is not the image's, {the_image['user']}:{the_image['group']}"
    own = manifests.container["securityContext"]
    if own.get("allowPrivilegeEscalation") is not False or own.get("readOnlyRootFilesystem") is not True:
        yield "the container may gain privileges or write to its own files"
    if own.get("capabilities", {}).get("drop") != ["ALL"] or pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "the container keeps capabilities or system calls that it does not need"
    if manifests.container["image"] != the_image["name"]:
        yield f"the image is {manifests.container['image']}, and this is the source of {the_image['name']}"


def violations(documents, config, the_image):
    """All violations. A missing part of a document shows as a schema violation or as the missing
    key."""
    found = [violation for file, document in documents for violation in schema_violations(file, document)]
    try:
        manifests = Manifests(documents)
        for check in (selector_violations(manifests), config_violations(manifests, config),
                      model_violations(config), port_violations(manifests, config, the_image), policy_violations(manifests, config),
                      life_violations(manifests, config),
                      memory_violations(manifests, config), security_violations(manifests, the_image)):
            found.extend(check)
    except (KeyError, TypeError, ValueError) as error:
        found.append(f"the manifests lack something that is checked: {error!r}")
    return found


def main():
    pagodad = pathlib.Path(sys.argv[1]) / "pagodad"
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else tree.ROOT / "deploy" / "kubernetes"
    documents = load(folder)
    (config_map,) = (document for _, document in documents if document["kind"] == "ConfigMap")
    config = effective_config(pagodad, config_map["data"]["pagodad.yaml"])
    return tree.report("manifests", documents, violations(documents, config, image(DOCKERFILE.read_text())))


if __name__ == "__main__":
    sys.exit(main())
