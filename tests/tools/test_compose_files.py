"""The check of deploy/compose finds each planted violation, and nothing in the real files."""

import copy
import pathlib
import sys

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import compose_files
from deployment import DOCKERFILE, image

COMPOSE = yaml.safe_load((compose_files.FOLDER / "compose.yaml").read_text())
README = (compose_files.FOLDER / "README.md").read_text()
# The values that pagodad prints, as far as the checks read them.
CONFIGS = {
    f"pagodad-{i}": {
        "cache": {"primary": "128MiB"},
        "server": {"unix_socket": "/run/pagoda/pagoda.sock", "http_address": "0.0.0.0:7071", "drain_timeout": "10s"},
        "store": {"servers": ["valkey-1:6379", "valkey-2:6379"]},
        "peers": {"address": "0.0.0.0:7073", "advertised": f"pagodad-{i}:7073", "sources": ["pagodad-*:7073"]},
        "engine": {"model_dir": "/models/tiny"},
    } for i in (1, 2)
}
SERVICES = ("services",)


def changed(document, place, value):
    """A copy with another value at `place`. None removes the key."""
    copied = copy.deepcopy(document)
    part = copied
    for key in place[:-1]:
        part = part[key]
    if value is None:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return copied


def found(compose=COMPOSE, configs=CONFIGS, readme=README):
    return compose_files.violations(compose, configs, image(DOCKERFILE.read_text()), readme)


def test_the_files_as_they_are_have_no_violations():
    assert found() == []


@pytest.mark.parametrize("place, value, word", [
    ((*SERVICES, "valkey-1", "memory"), "1g", "not among the keys"),
    ((*SERVICES, "pagodad-1", "depends_on"), {"redis": {}}, "does not exist"),
    ((*SERVICES, "pagodad-1", "volumes", 2), "run-3:/run/pagoda", "no volume run-3"),
    ((*SERVICES, "pagodad-1", "volumes", 1), "../../tests/golden/none:/models/tiny:ro", "there is no ../../tests/golden/none"),
    ((*SERVICES, "pagodad-1", "volumes", 0), "./pagodad-2.yaml:/etc/pagoda/pagodad.yaml:ro", "its own configuration"),
    ((*SERVICES, "pagodad-1", "volumes"), ["./pagodad-1.yaml:/etc/pagoda/pagodad.yaml:ro", "run-1:/run/pagoda"], "there is no model"),
    ((*SERVICES, "pagodad-1", "volumes"), ["./pagodad-1.yaml:/etc/pagoda/pagodad.yaml:ro", "../../tests/golden/qwen3_tiny:/models/tiny:ro"],
     "is read-only"),
    ((*SERVICES, "pagodad-2", "image"), "pagoda:latest", "not what deploy/Dockerfile makes"),
    ((*SERVICES, "pagodad-2", "shm_size"), "128m", "does not hold"),
    ((*SERVICES, "pagodad-2", "stop_grace_period"), "10s", "a drain may take"),
    ((*SERVICES, "pagodad-2", "ports"), ["7171:7071"], "publishes"),
    ((*SERVICES, "pagodad-2"), None, "shares nothing"),
    ((*SERVICES, "valkey-2", "networks", "pagoda", "ipv4_address"), "172.30.7.11", "5 nodes"),
    ((*SERVICES, "valkey-2", "networks", "pagoda", "ipv4_address"), "172.30.8.12", "is not in 172.30.7.0/24"),
    ((*SERVICES, "valkey-2", "networks", "pagoda", "ipv4_address"), "172.30.7.22", "a cluster of other nodes"),
    ((*SERVICES, "valkey-2", "image"), "redis:7", "another image"),
    ((*SERVICES, "valkey-2", "command"), "valkey-server", "lacks --cluster-enabled yes"),
    ((*SERVICES, "valkey-create", "depends_on", "valkey-3"), None, "does not wait"),
    ((*SERVICES, "valkey-create", "command", 2), "echo $HOME", "replaces what follows"),
])
def test_a_fault_of_the_containers_is_found(place, value, word):
    faults = found(changed(COMPOSE, place, value))
    assert any(word in fault for fault in faults), faults


@pytest.mark.parametrize("place, value, word", [
    (("pagodad-1", "store", "servers"), ["valkey-7:6379"], "there is no valkey-7:6379"),
    (("pagodad-1", "store", "servers"), [], "no store"),
    (("pagodad-1", "peers", "advertised"), "pagodad-2:7073", "tells other daemons"),
    (("pagodad-1", "peers", "address"), "127.0.0.1:7073", "tells other daemons"),
    (("pagodad-1", "peers", "address"), "0.0.0.0:7072", "for something else"),
    (("pagodad-1", "peers", "sources"), [], "does not accept pagodad-2:7073"),
    (("pagodad-1", "peers", "sources"), None, "lack something"),
])
def test_a_fault_of_a_configuration_is_found(place, value, word):
    faults = found(configs=changed(CONFIGS, place, value))
    assert any(word in fault for fault in faults), faults


def test_a_fault_of_the_readme_is_found():
    assert any("pagodad-9" in fault for fault in found(readme=README.replace("pagodad-2", "pagodad-9")))
    assert any("no daemon answers" in fault for fault in found(readme=README.replace("pagodad-1:7073", "pagodad-1:7072")))
