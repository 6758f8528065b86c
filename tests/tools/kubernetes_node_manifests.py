"""Compares deploy/kubernetes/node and engines/ with Kubernetes' own types, the daemon's
configuration, the image, and each other.

    /usr/bin/python3 tests/tools/kubernetes_node_manifests.py BIN_DIR

tests/e2e/process/test_pods.py tests the behaviour of a node's pods with processes in namespaces.
"""

import json
import pathlib
import re
import sys

import tree
from deployment import DOCKERFILE, effective_config, image, size
from kubernetes_manifests import (Manifests, Workload, config_map_violations, life_violations, limit_violations, load, policy_violations,
                                  port_violations, schema_violations, security_violations, unselected)

FOLDER = tree.ROOT / "deploy" / "kubernetes"
ENGINE_DOCKERFILE = FOLDER / "engines" / "vllm.Dockerfile"
CONNECTORS = tree.ROOT / "clients" / "python" / "CONNECTORS.md"
FLAG = "--kv-transfer-config="
MODE = "0750"


def known():
    """The facts in other files: the image, the connector's flag and options as documented, vLLM's
    version in the tests, and the engine's image."""
    connectors = CONNECTORS.read_text()
    (flag,) = re.findall(r"--kv-transfer-config '(.*?)'", (tree.ROOT / "README.md").read_text(), re.S)
    (table,) = re.findall(r"\| key of `kv_connector_extra_config` .*?(?=\n\n)", connectors, re.S)
    (vllm,) = re.findall(r"^vllm=(\S+)$", (tree.ROOT / "tests" / "engines" / "environment.sh").read_text(), re.M)
    return {"image": image(DOCKERFILE.read_text()), "flag": json.loads(flag), "vllm": vllm, "dockerfile": ENGINE_DOCKERFILE.read_text(),
            "options": {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}}


def folder_of(config):
    return config["server"]["unix_socket"].rpartition("/")[0]


def config_violations(manifests, config):
    yield from config_map_violations(manifests)
    if "cache" in config or size(config["memory"]["host"]) == 0:
        yield "the daemon has a cache of its own, or no memory for those of engines"
    if config["memory"]["reservation"] != "whole":
        yield "memory that is taken when it is touched counts as the engine's that touches it"
    if config["server"]["grpc_address"]:
        yield f"engines come through the folder, and gRPC is open at {config['server']['grpc_address']}"
    if config["server"]["map_socket"] != "auto":
        yield "the map socket does not lie beside the other one"


def daemon_violations(manifests, config, the_image):
    spec, folder = manifests.document["spec"], folder_of(config)
    yield from unselected(manifests, manifests.selectors())
    if spec["updateStrategy"].get("rollingUpdate") != {"maxSurge": 0, "maxUnavailable": 1}:
        yield "an update starts a second daemon beside the first, or takes several caches at a time"
    if manifests.pod.get("hostPID") is not True or "shareProcessNamespace" in manifests.pod:
        yield "the daemon does not see the processes of engines"
    if manifests.pod.get("hostNetwork"):
        yield "the ports are the node's"
    # The daemon gives its clients its own path of the map socket.
    if manifests.volume_at(folder).get("hostPath") != {"path": folder, "type": "DirectoryOrCreate"}:
        yield f"the sockets' folder {folder} is not the node's"
    yield from init_violations(manifests, folder, the_image)
    yield from limit_violations(manifests, size(config["memory"]["host"]), config["memory"]["max_caches"] * config["events"]["max_bytes"])


def init_violations(manifests, folder, the_image):
    (init,) = manifests.pod["initContainers"]
    if init["command"] != ["install", "-d", "-o", str(the_image["user"]), "-g", str(the_image["group"]), "-m", MODE, folder]:
        yield f"the init container does not make {folder} the daemon's: {init['command']}"
    if [(mount["name"], mount["mountPath"]) for mount in init["volumeMounts"]] != [(manifests.mounts[folder]["name"], folder)]:
        yield "the init container has other volumes than the folder"
    if init["image"] != the_image["name"]:
        yield f"the init container's image is {init['image']}"
    if init["securityContext"].get("capabilities") != {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]}:
        yield "the init container has capabilities that it does not need, or lacks one"


def engine_violations(engine, manifests, config, facts):
    """What an engine needs to find the daemon, and what it must not get."""
    folder = folder_of(config)
    yield from unselected(engine, {"the engine's selector": engine.document["spec"]["selector"]["matchLabels"]})
    environment = {one["name"]: one.get("value") for one in engine.container["env"]}
    if environment.get("PAGODA_ENDPOINT") != f"unix:{config['server']['unix_socket']}":
        yield f"PAGODA_ENDPOINT is {environment.get('PAGODA_ENDPOINT')}, and the daemon is at {config['server']['unix_socket']}"
    if engine.volume_at(folder).get("hostPath") != {"path": folder, "type": "Directory"}:
        yield f"the engine does not have the node's {folder} at the same path, or makes it before the daemon does"
    if not engine.mounts.get(folder, {}).get("readOnly"):
        yield "the engine may write to the sockets' folder"
    if facts["image"]["group"] not in engine.pod.get("securityContext", {}).get("supplementalGroups", []):
        yield f"the engine is not in the sockets' group {facts['image']['group']}"
    for key in ("nodeSelector", "tolerations"):
        if engine.pod.get(key) != manifests.pod.get(key):
            yield f"the engine's {key} leads to other nodes than the daemon's"
    resources, shm = engine.container["resources"], engine.volume_at("/dev/shm").get("emptyDir", {})
    if resources["requests"].get("memory") != resources["limits"].get("memory"):
        yield "the engine's memory is not requested in full"
    if shm.get("medium") != "Memory" or size(shm.get("sizeLimit", 0)) >= size(resources["limits"]["memory"]):
        yield "the engine's /dev/shm is not memory, or as large as its limit"
    yield from flag_violations(engine, facts)
    yield from image_violations(engine, facts)


def flag_violations(engine, facts):
    (text,) = (one.removeprefix(FLAG) for one in engine.container["args"] if one.startswith(FLAG))
    flag = json.loads(text)
    options = flag.pop("kv_connector_extra_config", {})
    if flag != facts["flag"]:
        yield f"the README's --kv-transfer-config is {facts['flag']}, the engine's is {flag}"
    if options.keys() - facts["options"]:
        yield f"the connector has no {options.keys() - facts['options']}"
    if "endpoint" in options:
        yield "the endpoint is said twice: PAGODA_ENDPOINT says it"


def image_violations(engine, facts):
    version = facts["image"]["name"].rpartition(":")[2]
    built = re.search(r" -t (\S+) ", facts["dockerfile"])
    if built is None or built[1] != engine.container["image"] or not built[1].endswith(f":{version}"):
        yield f"vllm.Dockerfile makes {built and built[1]}, the engine's image is {engine.container['image']}, Pagoda is {version}"
    if f"FROM vllm/vllm-openai:v{facts['vllm']}\n" not in facts["dockerfile"]:
        yield f"vllm.Dockerfile has another vLLM than the tests, {facts['vllm']}"
    if set(re.findall(r"pagoda-[\w.]+-py3-none-any\.whl", facts["dockerfile"])) != {f"pagoda-{version}-py3-none-any.whl"}:
        yield f"vllm.Dockerfile installs another wheel than that of {version}"


def violations(node, engines, config, facts):
    """All violations. `node`, `engines`: documents. A missing part shows as a schema violation or
    as the missing key."""
    found = [violation for file, document in [*node, *engines] for violation in schema_violations(file, document)]
    try:
        manifests = Manifests(node, "DaemonSet")
        ((_, engine),) = engines
        for check in (config_violations(manifests, config), daemon_violations(manifests, config, facts["image"]),
                      port_violations(manifests, config, facts["image"]), policy_violations(manifests, config),
                      life_violations(manifests, config), security_violations(manifests, facts["image"]),
                      engine_violations(Workload(engine, "vllm"), manifests, config, facts)):
            found.extend(check)
    except (KeyError, TypeError, ValueError) as error:
        found.append(f"the manifests lack something that is checked: {error!r}")
    return found


def main():
    node, engines = load(FOLDER / "node"), load(FOLDER / "engines")
    (config_map,) = (document for _, document in node if document["kind"] == "ConfigMap")
    config = effective_config(pathlib.Path(sys.argv[1]) / "pagodad", config_map["data"]["pagodad.yaml"])
    return tree.report("node manifests", [*node, *engines], violations(node, engines, config, known()))


if __name__ == "__main__":
    sys.exit(main())
