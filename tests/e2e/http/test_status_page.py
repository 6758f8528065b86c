"""The status page in a real browser, on a real daemon under load. It agrees with the daemon, in
both themes, on a desk and on a phone.

PAGODA_SCREENSHOTS=FOLDER keeps the pictures: light-1280.png, dark-1280.png, light-390.png,
dark-390.png, and the upper part of the first as screenshot.png, which is the source of
server/http/page/screenshot.png."""

import contextlib
import os
import pathlib
import signal
import time

import pytest
from browser import open_browser
from cache_traffic import TIERS_WITH_DISK, other_machines
from chat_load import Engine
from pagoda_client import Client, authorized
from pagoda_daemon import Daemon
from pagoda.v1 import admin_pb2, events_pb2, events_pb2_grpc, prefixes_pb2, status_pb2, types_pb2

PRIMARY, SECONDARY = 1024, 12288
CACHE = {"name": "demo", "primary": PRIMARY, "secondary": SECONDARY, "tokens_per_block": 16}
HTTP = {"http_address": "127.0.0.1:0"}
STATES = ("free", "cached", "active", "pinned", "in_flight")
TIERS = {types_pb2.TIER_PRIMARY: "primary", types_pb2.TIER_SECOND: "secondary"}
OPERATOR, ALICE = "token-of-the-operator-0123456789", "token-of-alice-0123456789"
LOAD_SECONDS = 12  # Chats run so long before the first check, so every chart has some points.
SCREENSHOT_HEIGHT = 1320
FOR_OPERATORS = ("sessions", "tenants", "prefixes", "subscribers", "events")

# The colour in the middle of each square of the primary tier, as the name of its state.
DRAWN = """
const seen = document.querySelector(".pool canvas"), style = getComputedStyle(document.documentElement);
const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgb = colour => { probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1); return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).join(); };
const names = Object.fromEntries(["cached", "active", "pinned", "in_flight"].map(s => [rgb(style.getPropertyValue("--" + s).trim()), s]));
const size = arguments[0], pitch = size + 1, columns = Math.floor((seen.clientWidth + 1) / pitch);
const copy = Object.assign(document.createElement("canvas"), { width: seen.width, height: seen.height });
const g = copy.getContext("2d", { willReadFrequently: true });
g.drawImage(seen, 0, 0);
return Array.from({ length: arguments[1] }, (_, i) => {
  const p = g.getImageData((i % columns) * pitch + size / 2, Math.floor(i / columns) * pitch + size / 2, 1, 1).data;
  return p[3] === 0 ? "free" : names[[...p].slice(0, 3).join()] || "other";
});
"""


def number(text):
    return int(text.replace(",", ""))


@pytest.fixture
def keep(tmp_path):
    """Where screenshots go."""
    folder = pathlib.Path(os.environ.get("PAGODA_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def browser():
    with open_browser() as opened:
        yield opened


@contextlib.contextmanager
def chats(daemon, *names):
    engines = [Engine(daemon, name, seed=1, pause_seconds=0.01) for name in names]
    for engine in engines:
        engine.start()
    try:
        yield engines
    finally:
        for engine in engines:
            engine.stop()


def pool_numbers(browser):
    """{tier: {state: blocks}} as the page says."""
    return {tier: {state: number(browser.text(f"full-{tier}-{state}")) for state in STATES} for tier in TIERS.values()}


def map_tiers(daemon):
    return daemon.told("blocks", status_pb2.BlockMap()).windows[0].tiers


def cells_of(tier):
    """The cells of a tier's map; a cell is the numbers of its blocks in the STATES."""
    return list(zip(*(getattr(tier, f"{state}_blocks") for state in STATES)))


def pool_truth(daemon):
    return {TIERS[tier.tier]: {state: getattr(tier, f"{state}_blocks") for state in STATES} for tier in daemon.status().windows[0].tiers}


def check_looks(browser, width):
    """Nothing sticks out to the right, and every text can be read."""
    assert browser.run("return document.documentElement.scrollWidth") <= width
    faint = [(round(ratio, 2), text) for ratio, text in browser.contrasts() if ratio < 4.5]
    assert not faint, faint
    assert len(browser.contrasts()) > 80


def check_it_kept_to_itself(browser, daemon):
    browser.read_logs()
    origin = f"http://{daemon.http_address}/"
    assert [url for url in browser.requested if not url.startswith((origin, "data:"))] == []
    assert sum(url.startswith(f"{origin}api/v1/") for url in browser.requested) > 20, "the page polls the API"
    assert browser.complaints == []


def check_it_agrees(browser, daemon):
    """With nothing under way any more, every number is the daemon's own."""
    browser.wait(lambda: pool_numbers(browser) == pool_truth(daemon), "the states of the blocks", seconds=20)
    status = daemon.status()
    window = status.windows[0]
    browser.wait(lambda: number(browser.text("revision")) == status.revision, "the last revision")
    assert number(browser.text("total-allocated")) == window.allocated_blocks_total
    assert number(browser.text("total-evicted")) == window.evicted_blocks_total + window.displaced_blocks_total
    assert browser.text("hit-total") == f"{100 * window.prefix_hit_tokens_total / window.prefix_lookup_tokens_total:.1f} %"
    assert number(browser.text("sessions-count")) == status.sessions
    assert number(browser.text("subscribers-count")) == status.subscribers == 1
    assert sorted(browser.texts("#sessions tbody td:first-child")) == sorted(row.client_name for row in daemon.told("sessions", admin_pb2.ListSessionsResponse()).sessions)

    # Each square of the map shows the block that the API names. The squares add up to the counts.
    def counted():
        return {tier.name: {state: sum(getattr(tier, f"{state}_blocks")) for state in STATES} for tier in map_tiers(daemon)}

    daemon.wait_until(lambda d: counted() == pool_truth(d), seconds=20)  # A scan can be half a second old.
    assert [tier.blocks_per_cell for tier in map_tiers(daemon)] == [1, 12]
    cells = cells_of(map_tiers(daemon)[0])
    browser.wait(lambda: browser.run(DRAWN, 10, PRIMARY) == [STATES[cell.index(1)] for cell in cells], "the map", seconds=20)
    assert all(sum(cell[state] for cell in cells) > 10 for state in (1, 2, 3)), "cached, active and pinned blocks are on the map"

    def used():
        return sum(sum(blocks.values()) - blocks["free"] for blocks in pool_truth(daemon).values())

    # The page polls the tenants less often than the pools.
    browser.wait(lambda: sum(map(number, browser.texts("#tenants tbody td:nth-child(3)"))) == used(), "the tenants' blocks", seconds=20)
    prefixes = daemon.told("prefixes", status_pb2.TopPrefixes()).prefixes
    browser.wait(lambda: list(map(number, browser.texts("#prefixes td.saved"))) == [row.saved_tokens for row in prefixes[:10]], "the prefixes")
    copies = {(way.source_name, way.target_name): way.copies_total for way in daemon.told("transfers", admin_pb2.TransferStatus()).directions}
    assert {("primary", "secondary"), ("secondary", "primary")} <= set(copies)
    assert sorted(map(number, browser.texts("#transfers tbody td:nth-child(4)"))) == sorted(copies.values())
    assert number(browser.texts("#events tbody td:first-child")[0]) == status.revision
    assert browser.text("subscribers").count("operator") == 1


def test_the_page_says_what_the_daemon_says(start_daemon, browser, keep):
    daemon = start_daemon(cache=CACHE, server=HTTP)
    with contextlib.ExitStack() as clean:
        engines = clean.enter_context(chats(daemon, "engine-0", "engine-1"))
        watch = events_pb2_grpc.EventServiceStub(daemon.connect()).Watch(events_pb2.WatchRequest())
        clean.callback(watch.cancel)
        next(watch)
        daemon.wait_until(lambda d: d.status().windows[0].onboarded_blocks_total > 100)
        operator = clean.enter_context(Client(daemon.connect(), "operator"))
        operator.pin(engines[0].prompts[0])
        raw = operator.allocate(8)
        seen_until = time.monotonic() + LOAD_SECONDS
        browser.resize(1280, 900)
        browser.open(f"http://{daemon.http_address}/")
        browser.wait(lambda: browser.text("state") == "serving", "the first answer")
        # The page shows the running load: rates, hits, events, several prefixes.
        browser.wait(lambda: time.monotonic() > seen_until and number(browser.text("rate-events").split(".")[0]) > 0 and
                     browser.text("hit-now").endswith("%") and len(browser.texts("#events tbody tr")) >= 50 and
                     len(browser.texts("#prefixes tbody tr")) >= 4 and browser.texts("#transfers tbody tr") != [], "a busy cache", seconds=60)
        assert browser.run("return document.querySelector('#hit-chart path:last-child').getAttribute('d')").startswith("M")
        for width, dark in ((1280, False), (1280, True), (390, True), (390, False)):
            browser.resize(width, 900, dark)
            browser.wait(lambda: browser.run("return innerWidth") == width, "the window's size")
            back = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert back == ("rgb(16, 19, 24)" if dark else "rgb(243, 244, 246)")
            time.sleep(1.2)  # Time for one poll, so the screenshot has numbers at this size. No check needs it.
            check_looks(browser, width)
            browser.screenshot(keep / f"{'dark' if dark else 'light'}-{width}.png")
            if (width, dark) == (1280, False):
                browser.screenshot(keep / "screenshot.png", height=SCREENSHOT_HEIGHT)
        browser.resize(1280, 900)
        # The reader's choice overrides the system's.
        for name, back in (("light", "rgb(243, 244, 246)"), ("dark", "rgb(16, 19, 24)"), ("system", "rgb(243, 244, 246)")):
            browser.click("theme")
            assert browser.text("theme") == f"Theme: {name}"
            assert browser.run("return getComputedStyle(document.body).backgroundColor") == back
        for engine in engines:
            engine.stop()
        daemon.settle()
        check_it_agrees(browser, daemon)
        # With the keyboard, the first square shows its text.
        browser.run("document.querySelector('.pool canvas').focus()")
        browser.driver.switch_to.active_element.send_keys("\ue014")  # The right arrow.
        assert browser.texts(".pool .cell")[0].startswith("Slot 0: ")
        operator.free(raw)
        check_it_kept_to_itself(browser, daemon)


def test_an_empty_cache_says_so_in_words(start_daemon, browser):
    daemon = start_daemon(server=HTTP)
    browser.resize(390, 900)
    browser.open(f"http://{daemon.http_address}/")
    browser.wait(lambda: browser.text("state") == "serving" and browser.is_seen("sessions-empty"), "the first answer")
    assert browser.text("sessions-empty") == "No client is connected."
    assert browser.text("subscribers-empty") == "No subscriber follows the events."
    assert browser.text("prefixes-empty").startswith("Nothing was reused yet.")
    assert browser.text("transfers-empty") == "There is no tier below primary, and nothing was copied."
    assert browser.text("hit-now") == browser.text("hit-total") == "–"
    assert not browser.is_seen("refused") and not browser.is_seen("token-form")
    assert browser.texts("#events tbody td:nth-child(3)") == ["created"]
    check_looks(browser, 390)


def test_tenants_are_seen_with_an_operators_token_alone(start_daemon, browser):
    daemon = start_daemon(operator_token=OPERATOR, secrets={"alice.tokens": ALICE}, server=HTTP,
                          tenants=[{"name": "alice", "tokens_file": "alice.tokens"}])
    with Client(authorized(daemon.connect(), ALICE), "engine-of-alice") as client:
        client.cache(1, [*range(17)])
        client.cache(2, [*range(18)])
        browser.resize(1280, 900)
        browser.open(f"http://{daemon.http_address}/")
        browser.wait(lambda: browser.is_seen("token-form") and browser.is_seen("refused"), "the field for the token")
        assert pool_truth(daemon)["primary"]["cached"] == number(browser.text("full-primary-cached")), "the pools are shown without a token"
        for token in (None, "token-of-a-stranger-0123456789", ALICE):
            if token is not None:
                said = browser.text("refused")
                browser.type("token", token)
                browser.wait(lambda: browser.text("refused") != said, "the refusal of the token")
            assert "alice" not in browser.run("return document.querySelector('main').innerText")
            assert [browser.is_seen(f"{name}-empty") for name in FOR_OPERATORS] == [True] * len(FOR_OPERATORS)
        browser.type("token", OPERATOR)
        browser.wait(lambda: browser.texts("#sessions tbody td:first-child") == ["engine-of-alice"], "the sessions")
        browser.wait(lambda: "alice" in browser.texts("#tenants tbody td:first-child"), "the tenants")
        assert not browser.is_seen("refused")
        assert browser.texts("#prefixes td.saved") == ["16"]
        assert OPERATOR not in browser.run("return document.documentElement.outerHTML + location.href")
        browser.click("forget")
        browser.wait(lambda: browser.texts("#sessions tbody tr") == [], "the sessions hidden again")
        assert browser.run("return sessionStorage.length") == 0
        browser.read_logs()
        assert not any(OPERATOR in url for url in browser.requested)


def test_it_says_that_the_daemon_is_gone_and_comes_back_by_itself(tmp_path, browser):
    with Daemon(tmp_path, server=HTTP) as daemon:
        daemon.config["server"]["http_address"] = daemon.http_address
        browser.resize(1280, 900)
        browser.open(f"http://{daemon.http_address}/")
        browser.wait(lambda: browser.text("state") == "serving", "the first answer")
        daemon.wait_until(lambda d: d.status().uptime.seconds >= 3)
        old = daemon.status()
        daemon.kill()
        browser.wait(lambda: browser.is_seen("gone"), "the banner")
        assert browser.text("state") == "no answer"
        assert "has not answered since" in browser.text("gone")
        assert browser.run("return document.body.className") == "stale"
        daemon.start()
        browser.wait(lambda: not browser.is_seen("gone") and browser.text("state") == "serving", "the daemon's return")
        assert browser.run("return document.body.className") == ""
        assert daemon.status().epoch != old.epoch
        browser.wait(lambda: f"{daemon.status().epoch:016x}" in browser.text("facts"), "the new epoch")
        browser.wait(lambda: "was restarted" in browser.text("events-note"), "the note about it")


def test_a_stopped_daemon_is_shown_as_gone_within_three_seconds(start_daemon, browser):
    daemon = start_daemon(server=HTTP)
    browser.open(f"http://{daemon.http_address}/")
    browser.wait(lambda: browser.text("state") == "serving", "the first answer")
    # The page notes the times itself, so that a busy machine does not delay them.
    browser.run("""
        window.goneAfter = null;
        new MutationObserver(() => {
          if (!document.getElementById("gone").hidden && window.goneAfter === null) window.goneAfter = Date.now() - answeredAt;
        }).observe(document.getElementById("gone"), { attributes: true });""")
    daemon.process.send_signal(signal.SIGSTOP)
    browser.wait(lambda: browser.is_seen("gone"), "the banner")
    assert browser.text("state") == "no answer" and "has not answered since" in browser.text("gone")
    daemon.process.send_signal(signal.SIGCONT)
    browser.wait(lambda: not browser.is_seen("gone") and browser.text("state") == "serving", "the daemon's return")
    # A second until the next request, and 1.5 s without an answer. The rest is for a busy machine.
    assert 1500 <= browser.run("return window.goneAfter") < 5500


# What the user can see of each table: how far its columns reach beyond its box.
CUT = """
return [...document.querySelectorAll(".scroll > table")].filter(table => table.rows.length > 1)
  .map(table => [table.id, table.scrollWidth - table.parentElement.clientWidth]).filter(([_, cut]) => cut > 0);
"""


@pytest.mark.parametrize("width", [1280, 400])
def test_no_column_is_cut_and_a_name_cannot_turn_around(start_daemon, browser, width):
    daemon = start_daemon(server=HTTP)
    names = ["vllm-engine-of-the-chat-deployment", "left\u202etxt.exe", "a\tb\x1b[31m"]
    assert len(names[0]) == 34
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(daemon.channel, name)) for name in names]
        for number in range(20):
            clients[0].cache(number, range(1000 * number, 1000 * number + 40))
        browser.resize(width, 900)
        browser.open(f"http://{daemon.http_address}/")
        shown = [names[0], "left\\u202etxt.exe", "a\\u0009b\\u001b[31m"]
        browser.wait(lambda: sorted(browser.texts("#sessions tbody td:first-child")) == sorted(shown), "the sessions")
        browser.run("""
            const row = document.createElement("tr");
            for (const text of ["128x", "99,999,999", "100.0 %", "± 99.9", "1,234,567,890"]) row.append(make("td", "", text));
            row.children[1].className = "wide";
            document.getElementById("advice").tBodies[0].replaceChildren(row);
            document.getElementById("advice").parentElement.hidden = false;""")
        assert browser.run(CUT) == []
        check_looks(browser, width)


def test_a_disk_is_shown_with_how_it_is_used(start_daemon, browser):
    daemon = start_daemon(server=HTTP, cache={"tiers": TIERS_WITH_DISK, "model": {"name": "org/tiny"}})
    with Client(daemon.channel) as client:
        client.cache(1, list(range(16)))
        daemon.wait_until(lambda _: daemon.status().disk.windows[0].written_blocks_total == 4)
        browser.resize(1280, 900)
        browser.open(f"http://{daemon.http_address}/")
        browser.wait(lambda: "read and written, by" in browser.text("facts"), "the disk's way of reading and writing")
        assert "Disk disk, window full" in browser.text("facts")
        assert "on disk: copies of blocks in memory, and blocks offloaded from the secondary tier" in browser.texts(".pool .head")[2]
        browser.wait(lambda: "down, to disk" in browser.text("transfers"), "the blocks that were written")
        (file,) = (daemon.folder / "disk").iterdir()
        file.unlink()
        client.invalidate([0])  # An erase syncs the file, and notices the loss.
        browser.wait(lambda: "This disk is off" in " ".join(browser.texts(".pool p")), "the disk's end")
    browser.read_logs()


def test_the_store_and_other_daemons_are_shown_if_there_are_any(start_daemon, browser):
    alone = start_daemon(server=HTTP)
    browser.resize(1280, 900)
    browser.open(f"http://{alone.http_address}/")
    browser.wait(lambda: browser.text("state") == "serving", "the first answer")
    assert not browser.is_seen("exchange-section")
    daemon = start_daemon(server=HTTP, cache={"model": {"name": "org/tiny"}}, **other_machines())
    with Client(daemon.channel) as client:
        request = prefixes_pb2.FetchPrefixRequest(session=client.session, tokens=range(64))
        request.source.address = daemon.config["peers"]["address"]
        client.stub.FetchPrefix(request, timeout=20)
        browser.open(f"http://{daemon.http_address}/")
        browser.wait(lambda: browser.is_seen("exchange-section"), "the section")
        rows = browser.texts("#exchange tbody tr")
    assert browser.texts("#exchange td:first-child") == [
        "store 127.0.0.1:1", "fetches", "writes", "read by other daemons", f"daemon {daemon.config['peers']['address']}"]
    assert "away" in rows[0] and "last error: " in rows[0]
    assert "missing 1" in rows[1] and "0 of 0 listed prefixes" in rows[2]
    assert "1 connection to 1 server" in rows[4]
    assert all(contrast >= 4.5 for contrast, _ in browser.contrasts())
    browser.read_logs()
