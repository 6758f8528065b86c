"""Compares deploy/pagodad.service with systemd's own tools, the daemon's configuration and the user
that it names.

    /usr/bin/python3 tests/tools/systemd_unit.py BIN_DIR [UNIT]

`systemd-analyze` needs no running systemd. Without it this part is skipped, and the output says so.
"""

import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tree
from deployment import DRAIN_MARGIN_SECONDS, duration, effective_config

UNIT = tree.ROOT / "deploy" / "pagodad.service"
USERS = tree.ROOT / "deploy" / "pagoda.sysusers"
CONFIG = tree.ROOT / "deploy" / "pagodad.systemd.yaml"
PROGRAM = "/usr/local/bin/pagodad"
# The exposure that `systemd-analyze security` prints is 0 to 10, and "OK" begins below 5. This is
# in tenths.
MAX_EXPOSURE_TENTHS = 20
# A reset of millions of blocks holds the core's lock for seconds. The daemon answers at half of the
# watchdog's time.
MIN_WATCHDOG_SECONDS = 30


def parse(text):
    """{section: {key: [values]}} of a unit file without continued lines."""
    sections = collections.defaultdict(lambda: collections.defaultdict(list))
    section = None
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.strip() and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections[section][key].append(value)
    return sections


def seconds(value):
    """systemd's seconds: "60" or "10min"."""
    return float(value) if value.isdigit() else duration(value)


def violations(text, users, config):
    service = parse(text)["Service"]

    def one(key):
        return service[key][-1] if service[key] else ""

    # KillMode: SIGTERM would else reach the engine too, which the daemon drains first.
    wanted = {"Type": "notify", "NotifyAccess": "main", "KillMode": "mixed", "Restart": "on-failure", "NoNewPrivileges": "yes",
              "ProtectSystem": "strict", "LimitMEMLOCK": "infinity", "CapabilityBoundingSet": ""}
    found = [f"{key} is '{one(key)}', not '{value}'" for key, value in wanted.items()
             if service[key] != [value]]
    if one("ExecStart").split()[:1] != [PROGRAM]:
        found.append(f"ExecStart does not run {PROGRAM}")
    if f"XDG_RUNTIME_DIR=%t/{one('RuntimeDirectory')}" not in service["Environment"]:
        found.append("the socket's folder is not RuntimeDirectory")
    if not any(line.split()[:2] == ["u", one("User")] for line in users.splitlines()) or one("Group") != one("User"):
        found.append(f"pagoda.sysusers does not make the user '{one('User')}', or the group has another name")
    needed = duration(config["server"]["drain_timeout"]) + DRAIN_MARGIN_SECONDS
    if seconds(one("TimeoutStopSec") or "0") < needed:
        found.append(f"TimeoutStopSec is below what a drain may take, {needed:.0f} s")
    operators = config.get("operators") or {}
    if not any((operators.get("tokens_file"), operators.get("subjects"), config.get("tenants"))):
        found += [f"{section}.{key} is {config[section][key]}, and no caller is configured: every user of the machine is an operator"
                  for section in ("server", "engine") for key in ("grpc_address", "http_address") if config[section][key]]
    if seconds(one("WatchdogSec") or "0") < MIN_WATCHDOG_SECONDS:
        found.append(f"there is no watchdog, or it does not wait {MIN_WATCHDOG_SECONDS} s")
    if not -1000 < int(one("OOMScoreAdjust") or "0") < 0:
        found.append("if memory is short, the kernel can kill the daemon before engines")
    if one("MemoryDenyWriteExecute") == "yes":
        found.append("MemoryDenyWriteExecute ends the bundled engine")
    return found


def analyze(text, pagodad):
    """What systemd's own tools say against the unit; its program is where it was built."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / UNIT.name
        unit.write_text(text.replace(PROGRAM, str(pagodad)))
        for arguments in (["verify", unit], ["security", "--offline=true", f"--threshold={MAX_EXPOSURE_TENTHS}", unit]):
            ended = subprocess.run(["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, check=False)
            if ended.returncode or (arguments[0] == "verify" and ended.stderr):
                complaint = (ended.stderr.strip() or ended.stdout.strip().splitlines()[-1])
                found.append(f"systemd-analyze {arguments[0]}: {complaint}")
    return found


def main():
    pagodad = pathlib.Path(sys.argv[1]).resolve() / "pagodad"
    unit = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else UNIT
    text = unit.read_text()
    found = violations(text, USERS.read_text(), effective_config(pagodad, CONFIG.read_text()))
    if shutil.which("systemd-analyze"):
        found += analyze(text, pagodad)
    else:
        print("SKIPPED: systemd-analyze is not installed; the rest of the check ran")
    return tree.report("systemd unit", [unit], found)


if __name__ == "__main__":
    sys.exit(main())
