"""Debian's Prometheus, started for a test with the configuration of deploy/prometheus."""

import json
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.parse

import pytest
import yaml
from free_ports import free_port
from pagoda_daemon import HTTP

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
SCRAPE_INTERVAL = "1s"
START_SECONDS = 60


def require(tool):
    """The path of one of the programs of Debian's package. Without it the test is skipped, and says
    so."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed: it is in Debian's package prometheus")
    return path


class Prometheus:
    """Scrapes the daemon like prometheus.yml says, but each second. The configuration and the data
    lie in `folder`."""

    def __init__(self, folder, target):
        self.folder = folder
        self.config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        self.config["global"] = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
        self.config["rule_files"] = [str(FOLDER / name) for name in self.config["rule_files"]]
        (job,) = self.config["scrape_configs"]
        (group,) = job["static_configs"]
        group["targets"] = [target]
        self.log = folder / "prometheus.log"

    def __enter__(self):
        path = self.folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(self.config))
        self.address = f"127.0.0.1:{free_port()}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", require("prometheus"), f"--config.file={path}", f"--web.listen-address={self.address}",
                 f"--storage.tsdb.path={self.folder / 'data'}", "--log.level=warn"], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    def ready(self):
        try:
            with HTTP.open(f"http://{self.address}/-/ready", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with HTTP.open(url, timeout=20) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expression):
        """The expression's present value: [(labels, number)]. A NaN, which is the rate of zero by
        zero, is no data."""
        rows = [(row["metric"], float(row["value"][1])) for row in self.ask("query", query=expression)["result"]]
        return [(labels, value) for labels, value in rows if value == value]

    def rules(self, kind):
        """The rules of this kind that it has loaded, "recording" or "alerting"."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"] if rule["type"] == kind]
