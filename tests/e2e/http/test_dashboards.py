"""A real Prometheus scrapes a working daemon. Every query of the dashboard and every rule has data,
so this test finds a query for a metric that does not exist."""

import json
import pathlib
import re
import time

import pytest
from cache_traffic import SECTIONS, TIERS_WITH_DISK, Traffic, other_machines
from prometheus_server import Prometheus, require

ROOT = pathlib.Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy" / "grafana" / "pagoda.json"
TINY_MODEL = ROOT / "tests" / "golden" / "qwen3_tiny"
ROWS = ["Capacity", "Hit rate", "Evictions, and how long blocks last", "Transfers", "Disk", "Store and peers",
        "Sessions and tenants", "Events and subscribers", "RPC latency", "Process"]
DATA_SECONDS = 60
# Values for Grafana's variables.
VARIABLES = {"$__rate_interval": "5s", "$__range": "30s", "$instance": ".*"}
# A metric's name and its matchers, without the range.
SELECTOR = re.compile(r"\b((?:pagoda|process)_\w+|instance\w*:[\w:]+|up\b)(\{[^}]*\})?")


def expressions(dashboard):
    """(panel's title, expression) of every query."""
    panels = [inner for panel in dashboard["panels"] for inner in [panel, *panel.get("panels", [])]]
    found = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            found.append((f"variable {variable['name']}", f"count by ({metric[2]}) ({metric[1]}{{{metric[2]}!=\"\"}})"))
    return found


def filled_in(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def without_data(prometheus, queries):
    return [(title, query) for title, query in queries if not prometheus.values(filled_in(query))]


def selectors(expression):
    return {name + (matchers or "") for name, matchers in SELECTOR.findall(expression)}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A Prometheus that has scraped the traffic long enough for every query to have data. The
    traffic goes on."""
    require("prometheus")
    from pagoda_daemon import Daemon
    folder = tmp_path_factory.mktemp("dashboards")
    sections = SECTIONS | other_machines("daemons.tokens") | {
        "server": {"http_address": "127.0.0.1:0"}, "engine": {"model_dir": str(TINY_MODEL)},
        "cache": {"tiers": TIERS_WITH_DISK, "tokens_per_block": 8}}
    with Daemon(folder, **sections) as daemon:
        folder = tmp_path_factory.mktemp("prometheus")
        with Prometheus(folder, daemon.http_address) as server, Traffic(daemon):
            yield server


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(DASHBOARD.read_text())


def wait_for_data(prometheus, queries):
    deadline = time.monotonic() + DATA_SECONDS
    while missing := without_data(prometheus, queries):
        assert time.monotonic() < deadline, "no data:\n" + "\n".join(f"{title}: {query}" for title, query in missing)
        time.sleep(0.5)
        queries = missing


def test_the_daemon_is_scraped_whole(prometheus):
    wait_for_data(prometheus, [("up", 'up{job="pagodad"} == 1')])
    assert prometheus.values("scrape_samples_scraped")[0][1] > 300


def test_every_query_of_the_dashboard_returns_data(prometheus, dashboard):
    queries = expressions(dashboard)
    assert len(queries) > 60
    assert [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"] == ROWS
    wait_for_data(prometheus, queries)


def test_the_dashboard_is_laid_out_without_overlaps(dashboard):
    taken = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_a_query_for_what_is_not_there_is_found(prometheus, dashboard):
    wait_for_data(prometheus, expressions(dashboard))
    name = "pagoda_queued_copies"
    wrong = [(title, query.replace(name, "pagoda_copies_queued")) for title, query in expressions(dashboard)]
    assert without_data(prometheus, wrong) == [(title, query) for title, query in wrong if "pagoda_copies_queued" in query] != []
    wrong = [(title, query.replace('tier="secondary"', 'tier="tertiary"')) for title, query in expressions(dashboard)]
    assert without_data(prometheus, wrong) == [(title, query) for title, query in wrong if "tertiary" in query] != []


def test_every_recording_rule_has_data(prometheus):
    rules = prometheus.rules("recording")
    assert len(rules) >= 9
    wait_for_data(prometheus, [(rule["name"], rule["name"]) for rule in rules])
    assert all(rule["health"] == "ok" for rule in prometheus.rules("recording"))


def test_every_alert_looks_at_what_is_there(prometheus):
    """An alert that does not fire has no data; what it compares has."""
    alerts = prometheus.rules("alerting")
    assert len(alerts) >= 14
    asked = [(alert["name"], selector) for alert in alerts for selector in selectors(alert["query"])]
    assert {name for name, _ in asked} == {alert["name"] for alert in alerts}
    wait_for_data(prometheus, [(name, selector) for name, selector in asked])
    assert all(rule["health"] == "ok" for rule in prometheus.rules("alerting"))
