"""Compares deploy/kubernetes/cluster with Kubernetes' own types, with node/, the daemon's
configuration, the image, and its README. Runs the scripts of its Valkey nodes.

    /usr/bin/python3 tests/tools/kubernetes_cluster_manifests.py BIN_DIR

The scripts run with Redis or Valkey of this machine, if one is installed.
"""

import contextlib
import copy
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import tree
from compose_files import free_ports
from deployment import effective_config, image, is_loopback, port, size, DOCKERFILE
from kubernetes_manifests import Manifests, Workload, differences, load, schema_violations, unselected

FOLDER = tree.ROOT / "deploy" / "kubernetes"
POD_ADDRESS = "10.1.2.3"
NODE_LABEL = {"app.kubernetes.io/name": "pagodad-node"}
SECRETS = "/etc/pagoda-secrets"
VALKEY_PORT, BUS_PORT = 6379, 16379
SECONDS = 60


def config_text(documents):
    """The daemon's configuration, as the init container writes it."""
    (config_map,) = (one for _, one in documents if one["kind"] == "ConfigMap" and "pagodad.yaml" in one["data"])
    return config_map["data"]["pagodad.yaml"].replace("POD_IP", POD_ADDRESS)


def by_name(documents, kind, name):
    (found,) = (one for _, one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def as_in_node(daemon_set):
    """The DaemonSet without what it has beside that of node/."""
    plain = copy.deepcopy(daemon_set)
    pod = plain["spec"]["template"]["spec"]
    del pod["securityContext"]["fsGroup"]
    pod["initContainers"] = [one for one in pod["initContainers"] if one["name"] != "configuration"]
    (container,) = pod["containers"]
    container["ports"] = [one for one in container["ports"] if one["name"] != "peers"]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "secrets"]
    pod["volumes"] = [{"name": "config", "configMap": {"name": "pagodad-node"}} if one["name"] == "config" else one
                      for one in pod["volumes"] if one["name"] not in ("template", "secrets")]
    return plain


def daemon_violations(manifests, node_daemon_set, config, the_image):
    for place in differences(as_in_node(manifests.document), node_daemon_set):
        yield f"the DaemonSet is not that of node/: {place}"
    (init,) = (one for one in manifests.pod["initContainers"] if one["name"] == "configuration")
    mounts = {one["mountPath"]: manifests.volumes[one["name"]] for one in init["volumeMounts"]}
    written = manifests.volume_at("/etc/pagoda")
    if mounts.get("/etc/pagoda-template", {}).get("configMap") != {"name": "pagodad-node"} or mounts.get("/etc/pagoda") != written or "emptyDir" not in written:
        yield "the init container does not write the daemon's configuration"
    if "s/POD_IP/$POD_IP/" not in init["command"][-1] or init["env"] != [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]:
        yield "the init container does not know the pod's address"
    if init["image"] != the_image["name"] or init["securityContext"] != manifests.container["securityContext"]:
        yield "the init container has another image or other rights than the daemon"
    secret = manifests.volume_at(SECRETS).get("secret", {})
    if secret.get("defaultMode") != 0o440 or manifests.pod["securityContext"].get("fsGroup") != the_image["group"]:
        yield "the daemon cannot read the Secret, or refuses it because all users can read it"
    peers = config["peers"]
    ports = {one["name"]: one["containerPort"] for one in manifests.container["ports"]}
    if ports.get("peers") != port(peers["address"]) or len(set(ports.values())) != len(ports) or is_loopback(peers["address"]):
        yield f"the container's ports {ports} do not have peers.address {peers['address']}"
    if peers["advertised"] != f"{POD_ADDRESS}:{port(peers['address'])}":
        yield f"other daemons are sent to {peers['advertised']}"
    if not any(fnmatch.fnmatch(peers["advertised"], source) for source in peers["sources"]):
        yield f"a daemon does not accept {peers['advertised']} as a source"
    if not peers["tokens_file"] or peers["source_token_file"] != peers["tokens_file"]:
        yield "the daemons do not show each other the token that they ask for"


def secret_violations(manifests, documents, config, readme):
    """Every file and key of the Secret is one that the README makes."""
    made = set(re.findall(r"--from-file=(\S+)", readme))
    name = manifests.volume_at(SECRETS)["secret"]["secretName"]
    if f"create secret generic -n pagoda {name} " not in readme:
        yield f"README.md does not make the Secret {name}"
    used = {}
    for section, key in (("store", "password_file"), ("store", "secret_file"), ("peers", "tokens_file"), ("peers", "source_token_file")):
        folder, _, used[f"{section}.{key}"] = config[section][key].rpartition("/")
        if folder != SECRETS:
            yield f"{section}.{key} is not in the Secret"
    for container in valkey_containers(documents):
        (reference,) = (one["valueFrom"]["secretKeyRef"] for one in container["env"] if one["name"] == "PASSWORD")
        used[f"{container['name']}'s password"] = reference["key"]
        if reference != {"name": name, "key": config["store"]["password_file"].rpartition("/")[2]}:
            yield f"{container['name']} has another password than the daemons"
    for what, key in used.items():
        if key not in made:
            yield f"README.md does not make {key} ({what})"


def valkey_containers(documents):
    for kind, name in (("StatefulSet", "valkey"), ("Job", "valkey-create")):
        (container,) = by_name(documents, kind, name)["spec"]["template"]["spec"]["containers"]
        yield container


def valkey_violations(documents, config):
    stateful, job = by_name(documents, "StatefulSet", "valkey"), by_name(documents, "Job", "valkey-create")
    service, budget = by_name(documents, "Service", "valkey"), by_name(documents, "PodDisruptionBudget", "valkey")
    workload = Workload(stateful, "valkey")
    yield from unselected(workload, {"the StatefulSet's selector": stateful["spec"]["selector"]["matchLabels"],
                                     "the Service's selector": service["spec"]["selector"],
                                     "the PodDisruptionBudget's selector": budget["spec"]["selector"]["matchLabels"]})
    names = [f"valkey-{i}.{service['metadata']['name']}:{VALKEY_PORT}" for i in range(stateful["spec"]["replicas"])]
    if len(names) != 6 or stateful["spec"]["serviceName"] != service["metadata"]["name"]:
        yield "there are not six nodes, or they have no names"
    if service["spec"].get("clusterIP") != "None" or service["spec"].get("publishNotReadyAddresses") is not True:
        yield "the nodes cannot find each other by name before they are ready"
    if not config["store"]["servers"] or set(config["store"]["servers"]) - set(names):
        yield f"the daemons' store {config['store']['servers']} is not among the nodes"
    elif set(names) - set(config["store"]["servers"]):
        # Without TLS the password goes to named servers alone.
        yield f"the daemons do not connect to all nodes: they name {config['store']['servers']}"
    images = set()
    for container in valkey_containers(documents):
        environment = {one["name"]: one.get("value") for one in container["env"]}
        images.add(container["image"])
        if environment["NODES"].split() != names:
            yield f"{container['name']} knows other nodes: {environment['NODES']}"
        own = container["securityContext"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("readOnlyRootFilesystem") is not True or own["capabilities"] != {"drop": ["ALL"]}:
            yield f"{container['name']} has rights that it does not need"
        script = container["command"][-1].rpartition("/")[2]
        if script not in by_name(documents, "ConfigMap", "valkey")["data"]:
            yield f"there is no {script}"
    if len(images) != 1:
        yield f"the nodes and the Job have different images: {images}"
    (limit,) = (one["value"] for one in workload.container["env"] if one["name"] == "MAXMEMORY")
    memory = size(workload.container["resources"]["limits"]["memory"])
    if size(limit.replace("gb", "GiB")) > memory * 3 / 4:
        yield f"the values may take {limit} of {memory} bytes"
    if job["spec"]["template"]["spec"]["restartPolicy"] != "OnFailure":
        yield "the Job gives up when the nodes are late"


def policy_violations(documents, config):
    """Each port is open for the pods that need it."""
    valkey = by_name(documents, "StatefulSet", "valkey")["spec"]["selector"]["matchLabels"]
    create = by_name(documents, "Job", "valkey-create")["spec"]["template"]["metadata"]["labels"]
    wanted = {"pagodad-node": {port(config["server"]["http_address"]): 1, port(config["peers"]["address"]): [NODE_LABEL]},
              "valkey": {VALKEY_PORT: [NODE_LABEL, create, valkey], BUS_PORT: [valkey]}}
    for name, ports in wanted.items():
        spec = by_name(documents, "NetworkPolicy", name)["spec"]
        if "Ingress" not in spec["policyTypes"]:
            yield f"the NetworkPolicy {name} does not limit incoming connections"
        opened = {}
        for rule in spec["ingress"]:
            for one in rule["ports"]:
                opened.setdefault(one["port"], []).extend(rule.get("from", [{}]))
        if opened.keys() != ports.keys():
            yield f"the NetworkPolicy {name} opens the ports {sorted(opened)}"
        for one, peers in ports.items():
            found = [peer.get("podSelector", {}).get("matchLabels") for peer in opened.get(one, ())]
            if None in found or (peers == 1 and len(found) != 1) or (peers != 1 and sorted(map(str, found)) != sorted(map(str, peers))):
                yield f"the NetworkPolicy {name} opens the port {one} for {found}"


def violations(cluster, node, config, the_image, readme):
    found = [violation for file, document in cluster for violation in schema_violations(file, document)]
    try:
        # Manifests takes one document of a kind.
        own = [(file, one) for file, one in [*cluster, *node] if one["metadata"]["name"] == "pagodad-node"]
        manifests = Manifests(own[::-1], "DaemonSet")
        node_daemon_set = by_name(node, "DaemonSet", "pagodad-node")
        for check in (daemon_violations(manifests, node_daemon_set, config, the_image), secret_violations(manifests, cluster, config, readme),
                      valkey_violations(cluster, config), policy_violations(cluster, config)):
            found.extend(check)
    except (KeyError, TypeError, ValueError) as error:
        found.append(f"the manifests lack something that is checked: {error!r}")
    return found


class Nodes:
    """The StatefulSet's script as six processes, and the Job's. The nodes listen at the address of
    their pod and at 127.0.0.1, where the names lead."""

    def __init__(self, scripts, place, server, cli):
        self.place, self.cli, self.processes = place, cli, []
        self.ports = free_ports(6)
        for name, text in scripts.items():
            (place / name).write_text(text.replace("sleep 1;", "sleep 0.1;").replace("sleep 1\n", "sleep 0.1\n"))
        (place / "valkey-server").write_text(f'#!/bin/sh\nexec {server} "$@" --bind 127.0.0.1 "$POD_IP"\n')
        (place / "valkey-server").chmod(0o755)
        (place / "valkey-cli").symlink_to(cli)
        self.environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "PASSWORD": "a-password\n", "MAXMEMORY": "64mb",
                            "NODES": " ".join(f"localhost:{one}" for one in self.ports)}

    def start(self, address):
        for one in self.ports:
            folders = {key: str(self.place / f"{one}-{key}") for key in ("DATA", "RUN")}
            for folder in folders.values():
                pathlib.Path(folder).mkdir(exist_ok=True)
            self.processes.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sh", self.place / "start.sh"], stdout=subprocess.DEVNULL,
                                                   stderr=subprocess.DEVNULL,
                                                   env={**self.environment, **folders, "PORT": str(one), "POD_IP": address}))

    def stop(self):
        while self.processes:
            process = self.processes.pop()
            process.kill()
            process.wait()

    def create(self):
        return subprocess.run(["sh", self.place / "create.sh"], env=self.environment, capture_output=True, text=True, timeout=SECONDS, check=False)

    def ask(self, *words, password="a-password"):
        return subprocess.run([self.cli, "-p", str(self.ports[3]), *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "REDISCLI_AUTH": password}).stdout

    def await_cluster(self, address):
        """All nodes are known at the address, and serve all slots."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            nodes = self.ask("cluster", "nodes")
            if nodes.count(f" {address}:") == 6 and "fail" not in nodes and "cluster_state:ok" in self.ask("cluster", "info"):
                return True
            time.sleep(0.1)
        return False


def script_violations(scripts, server, cli):
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        nodes = Nodes(scripts, pathlib.Path(place), server, cli)
        stack.callback(nodes.stop)
        nodes.start("127.0.0.3")
        if (created := nodes.create()).returncode != 0:
            yield f"create.sh failed: {created.stdout} {created.stderr}"
        if not nodes.await_cluster("127.0.0.3"):
            yield "create.sh did not make a cluster"
        if "NOAUTH" not in nodes.ask("get", "key", password=""):
            yield "the nodes answer without a password"
        # All pods are replaced at the same time, and have other addresses.
        nodes.stop()
        nodes.start("127.0.0.2")
        if not nodes.await_cluster("127.0.0.2"):
            yield "the nodes do not find each other at new addresses"
        if (again := nodes.create()).returncode != 0 or "Performing hash slots" in again.stdout:
            yield f"create.sh of an existing cluster: {again.stdout} {again.stderr}"


def main():
    cluster, node = load(FOLDER / "cluster"), load(FOLDER / "node")
    config = effective_config(pathlib.Path(sys.argv[1]) / "pagodad", config_text(cluster))
    found = violations(cluster, node, config, image(DOCKERFILE.read_text()), (FOLDER / "cluster" / "README.md").read_text())
    server, cli = (shutil.which(f"valkey-{one}") or shutil.which(f"redis-{one}") for one in ("server", "cli"))
    if server and cli:
        found.extend(script_violations(by_name(cluster, "ConfigMap", "valkey")["data"], server, cli))
    else:
        print("no valkey-server or redis-server is installed: the scripts were not run")
    return tree.report("cluster manifests", cluster, found)


if __name__ == "__main__":
    sys.exit(main())
