"""Compares the files of deploy/compose with each other, the daemon's configuration and the image.

    /usr/bin/python3 tests/tools/compose_files.py BIN_DIR

There is no Docker Compose here. The command of `valkey-create` runs with servers of this machine.
"""

import contextlib
import fnmatch
import ipaddress
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import tree
import yaml
from deployment import DOCKERFILE, DRAIN_MARGIN_SECONDS, duration, effective_config, image, is_loopback, port, size

FOLDER = tree.ROOT / "deploy" / "compose"
CREATE = "valkey-create"
VALKEY_PORT = 6379
CLUSTER_NODES = 6
# Compose's own keys of a service, as far as these files use them.
SERVICE_KEYS = {"image", "build", "command", "healthcheck", "restart", "shm_size", "read_only", "cap_drop", "security_opt", "stop_grace_period",
                "depends_on", "networks", "ports", "volumes"}
CREATE_SECONDS = 60


def nodes_of(compose):
    return {name: service for name, service in compose["services"].items() if name.startswith("valkey-") and name != CREATE}


def daemons_of(compose):
    return {name: service for name, service in compose["services"].items() if name.startswith("pagodad-")}


def address_of(node):
    return node["networks"]["pagoda"]["ipv4_address"]


def create_script(compose):
    return compose["services"][CREATE]["command"][-1]


def mounts_of(service):
    """{path in the container: the path or the volume that is mounted there}"""
    return {target: source for source, target, *_ in (mount.split(":") for mount in service["volumes"])}


def shape_violations(compose):
    for name, service in compose["services"].items():
        if unknown := service.keys() - SERVICE_KEYS:
            yield f"{name}: {sorted(unknown)} are not among the keys that are checked"
        for other in service.get("depends_on", {}):
            if other not in compose["services"]:
                yield f"{name} depends on {other}, which does not exist"
        for source in mounts_of(service).values() if "volumes" in service else ():
            if not source.startswith(".") and source not in compose["volumes"]:
                yield f"{name}: there is no volume {source}"
            if source.startswith(".") and not (FOLDER / source).exists():
                yield f"{name}: there is no {source}"


def valkey_violations(compose):
    nodes, create = nodes_of(compose), compose["services"][CREATE]
    (subnet,) = compose["networks"]["pagoda"]["ipam"]["config"]
    addresses = [address_of(node) for node in nodes.values()]
    if len(set(addresses)) != CLUSTER_NODES:
        yield f"{len(set(addresses))} nodes with an address of their own, not {CLUSTER_NODES}"
    for address in addresses:
        if ipaddress.ip_address(address) not in ipaddress.ip_network(subnet["subnet"]):
            yield f"{address} is not in {subnet['subnet']}"
    if sorted(set(re.findall(r"([\d.]+):6379", create_script(compose)))) != sorted(addresses):
        yield f"{CREATE} makes a cluster of other nodes"
    if "$" in create_script(compose):
        yield f"{CREATE}: Compose replaces what follows a $"
    if create["depends_on"] != {name: {"condition": "service_healthy"} for name in nodes}:
        yield f"{CREATE} does not wait for all nodes"
    for name, node in nodes.items():
        if node["image"] != create["image"]:
            yield f"{name} has another image than {CREATE}"
        for option in ("--cluster-enabled yes", "--maxmemory-policy allkeys-lru", '--save ""'):
            if option not in node["command"]:
                yield f"{name} lacks {option}"


def daemon_violations(compose, configs, the_image):
    sources_of = {}
    for name, service in daemons_of(compose).items():
        config, mounts = configs[name], mounts_of(service)
        if mounts.get("/etc/pagoda/pagodad.yaml") != f"./{name}.yaml":
            yield f"{name} does not have its own configuration"
        if service["image"] != the_image["name"] or (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).resolve() != DOCKERFILE:
            yield f"{name}: {service['image']} is not what deploy/Dockerfile makes"
        if not mounts.get(config["engine"]["model_dir"], "").startswith("../../tests/golden/"):
            yield f"{name}: there is no model at {config['engine']['model_dir']}"
        if config["server"]["unix_socket"].rpartition("/")[0] not in mounts:
            yield f"{name}: the socket's folder is read-only"
        shm = size(service["shm_size"].replace("m", "MiB"))
        if not size(config["cache"]["primary"]) + 2**24 <= shm:
            yield f"{name}: shm_size {shm} does not hold cache.primary"
        if duration(service["stop_grace_period"]) < duration(config["server"]["drain_timeout"]) + DRAIN_MARGIN_SECONDS:
            yield f"{name}: stop_grace_period is below what a drain may take"
        (published,) = service["ports"]
        if not is_loopback(published) or port(published) != port(config["server"]["http_address"]):
            yield f"{name} publishes {published}"
        peers = config["peers"]
        if peers["advertised"] != f"{name}:{port(peers['address'])}" or is_loopback(peers["address"]):
            yield f"{name} tells other daemons the address {peers['advertised']}"
        if port(peers["address"]) in the_image["ports"]:
            yield f"{name}: peers take the port {port(peers['address'])}, which the image uses for something else"
        sources_of[name] = peers["sources"]
        for server in config["store"]["servers"]:
            if server not in {f"{node}:{VALKEY_PORT}" for node in nodes_of(compose)}:
                yield f"{name}: there is no {server}"
        if not config["store"]["servers"]:
            yield f"{name} has no store"
    advertised = [configs[name]["peers"]["advertised"] for name in sources_of]
    for name, sources in sources_of.items():
        for one in advertised:
            if not any(fnmatch.fnmatch(one, source) for source in sources):
                yield f"{name} does not accept {one} as a source"
    if len(sources_of) < 2:
        yield "a single daemon shares nothing"


def readme_violations(compose, configs, readme):
    for service in re.findall(r"\b((?:valkey|pagodad)-\d)\b", readme):
        if service not in compose["services"]:
            yield f"README.md names {service}, which does not exist"
    for source in re.findall(r"--source (\S+)", readme):
        if source not in {config["peers"]["advertised"] for config in configs.values()}:
            yield f"README.md fetches from {source}, where no daemon answers"


def violations(compose, configs, the_image, readme):
    found = []
    try:
        for check in (shape_violations(compose), valkey_violations(compose), daemon_violations(compose, configs, the_image),
                      readme_violations(compose, configs, readme)):
            found.extend(check)
    except (KeyError, TypeError, ValueError) as error:
        found.append(f"the files lack something that is checked: {error!r}")
    return found


def free_ports(count):
    """Ports below those of clients, whose cluster ports (10,000 more) are valid too."""
    found = []
    for one in range(21000 + os.getpid() % 5000, 32000):
        with contextlib.suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", one))
            second.bind(("127.0.0.1", one + 10000))
            found.append(one)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def create_violations(compose, server, cli):
    """Runs valkey-create's command twice, with servers that have the nodes' options and other
    addresses."""
    nodes = nodes_of(compose)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        script = create_script(compose)
        ports = free_ports(len(nodes))
        for (name, node), one in zip(nodes.items(), ports):
            script = script.replace(f"{address_of(node)}:{VALKEY_PORT}", f"127.0.0.1:{one}")
            script = script.replace(f"-h {address_of(node)} ", f"-h 127.0.0.1 -p {one} ")
            (pathlib.Path(place) / name).mkdir()
            arguments = ["" if word == '""' else word for word in node["command"].split()[1:]]
            process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", server, *arguments, "--port", str(one), "--bind", "127.0.0.1"],
                                       cwd=pathlib.Path(place) / name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        (pathlib.Path(place) / "valkey-cli").symlink_to(cli)
        deadline = time.monotonic() + CREATE_SECONDS
        for one in ports:
            while subprocess.run([cli, "-p", str(one), "ping"], capture_output=True, check=False).stdout != b"PONG\n":
                assert time.monotonic() < deadline, f"the server on port {one} does not answer"
                time.sleep(0.05)
        for time_of in ("first", "second"):
            ran = subprocess.run(["sh", "-ec", script], env={**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}, capture_output=True, text=True,
                                 timeout=CREATE_SECONDS, check=False)
            if ran.returncode != 0 or (time_of == "second" and ran.stdout):
                yield f"{CREATE}, the {time_of} time: status {ran.returncode}, {ran.stdout} {ran.stderr}"
        info = subprocess.run([cli, "-p", str(ports[-1]), "cluster", "info"], capture_output=True, text=True, check=True).stdout
        if "cluster_size:3" not in info or f"cluster_known_nodes:{CLUSTER_NODES}" not in info:
            yield f"{CREATE} did not make a cluster of three primaries: {info}"


def main():
    pagodad = pathlib.Path(sys.argv[1]) / "pagodad"
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    configs = {name: effective_config(pagodad, (FOLDER / f"{name}.yaml").read_text()) for name in daemons_of(compose)}
    found = violations(compose, configs, image(DOCKERFILE.read_text()), (FOLDER / "README.md").read_text())
    server, cli = (shutil.which(f"valkey-{one}") or shutil.which(f"redis-{one}") for one in ("server", "cli"))
    if server and cli:
        found.extend(create_violations(compose, server, cli))
    else:
        print("no valkey-server or redis-server is installed: the command of valkey-create was not run")
    return tree.report("compose files", compose["services"], found)


if __name__ == "__main__":
    sys.exit(main())
