"""A headless Chromium, driven like a person would use it. It records its requests and its
complaints."""

import base64
import contextlib
import json
import shutil
import time

import pytest

CHROMIUM = shutil.which("chromium")
CHROMEDRIVER = shutil.which("chromedriver")
# For a machine without a screen, a GPU or a network. Chromium has no sandbox for root.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--no-first-run", "--force-color-profile=srgb"]

# The contrast of a text's colour and the painted background (WCAG 2.1, 1.4.3), for every visible
# element with text of its own.
CONTRASTS = """
const parse = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * x + .7152 * y + .0722 * z;
};
const behind = element => {
  for (; element; element = element.parentElement) {
    const colour = parse(getComputedStyle(element).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
const found = [];
for (const element of document.body.querySelectorAll("*")) {
  const text = [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join("");
  if (!text || !element.offsetParent || element.className === "skip") continue;
  const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
  found.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), text]);
}
return found;
"""


class Browser:
    def __init__(self, driver):
        self.driver = driver
        self.requested = []
        self.complaints = []

    def resize(self, width, height, dark=False):
        """A window of this size, of a system with that theme."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def open(self, address):
        self.driver.get(address)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, element_id):
        return self.run("return document.getElementById(arguments[0]).textContent", element_id)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def is_seen(self, element_id):
        return self.run("const e = document.getElementById(arguments[0]); return e.offsetParent !== null", element_id)

    def click(self, element_id):
        self.driver.find_element("id", element_id).click()

    def type(self, element_id, text, enter=True):
        self.driver.find_element("id", element_id).send_keys(text + ("\n" if enter else ""))

    def wait(self, condition, what, seconds=30):
        """Waits until `condition()` holds; the page changes by itself."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s; the page says:\n{self.run('return document.body.innerText')}"
            time.sleep(0.1)

    def contrasts(self):
        return self.run(CONTRASTS)

    def screenshot(self, path, height=None):
        """The whole page, however long, or its upper part."""
        height = height or self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}})
        path.write_bytes(base64.b64decode(shot["data"]))

    def read_logs(self):
        """Adds what was asked for and what was complained of since the last call."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                params = message["params"]
                self.requested.append(params["request"]["url"] if "request" in params else params["url"])
        self.complaints += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@contextlib.contextmanager
def open_browser():
    """Skips the test where there is no Chromium, no driver for it or no selenium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs Debian's python3-selenium")
    if CHROMIUM is None or CHROMEDRIVER is None:
        pytest.skip("needs Debian's chromium and chromium-driver")
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(service=Service(CHROMEDRIVER), options=options)
    try:
        driver.set_page_load_timeout(60)
        driver.set_script_timeout(60)
        yield Browser(driver)
    finally:
        driver.quit()
