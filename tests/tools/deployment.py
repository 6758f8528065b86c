"""What the checks of deploy/ know of the daemon: its effective configuration, and the container
image."""

import re
import subprocess
import tempfile

import tree

DOCKERFILE = tree.ROOT / "deploy" / "Dockerfile"
# Time after the end of the calls (server.drain_timeout). The last connections close, the pools'
# memory is released, and the process ends.
DRAIN_MARGIN_SECONDS = 10
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}


def size(text):
    """Bytes of "16GiB", as pagodad writes it, or "16Gi", as Kubernetes does."""
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", str(text)).groups()
    return int(number) * UNITS[unit]


def duration(text):
    """Seconds of "1h30m", "10s" or "10min"."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]+)", str(text))
    assert parts and "".join(number + unit for number, unit in parts) == str(text), text
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def port(address):
    """7071 of "0.0.0.0:7071"."""
    return int(address.rpartition(":")[2])


def is_loopback(address):
    return address.startswith(("127.", "[::1]", "localhost"))


def effective_config(pagodad, text):
    """A configuration as the daemon itself reads it, with every key. Fails if the daemon refuses
    it."""
    import yaml  # pylint: disable=import-outside-toplevel
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        printed = subprocess.run([pagodad, "--config", file.name, "--print-config"], capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    return yaml.safe_load(printed.stdout)


def instructions(dockerfile):
    """The last stage of a Dockerfile as [(instruction, arguments)]; continued lines are one."""
    joined = re.sub(r"\\\n\s*", "", "".join(line for line in dockerfile.splitlines(keepends=True) if not line.lstrip().startswith("#")))
    found = [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]
    last_stage = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[last_stage:]


def image(dockerfile):
    """The facts of the image on which other files rely: user, group, ports, and the image's name
    with the project's version."""
    last_stage = dict(instructions(dockerfile))
    user, _, group = last_stage["USER"].partition(":")
    version = re.search(r"project\(pagoda VERSION (\S+)", (tree.ROOT / "CMakeLists.txt").read_text())[1]
    return {"user": int(user), "group": int(group), "ports": {int(one) for one in last_stage["EXPOSE"].split()}, "name": f"pagoda:{version}"}
