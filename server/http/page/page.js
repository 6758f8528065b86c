// The status page. It asks /api/v1 once a second and shows the answers: messages of proto/, as
// server/STATUS.md says.
"use strict";

const POLL_MS = 1000;
const TIMEOUT_MS = 4000;
const LATE_MS = 1500;  // An answer that takes longer shows the daemon as gone until it comes.
const TOKEN_KEY = "pagoda-token", THEME_KEY = "pagoda-theme";
const tokenNow = () => sessionStorage.getItem(TOKEN_KEY) || "";

let cacheName = "";  // The cache that is shown; "" before the first answer.
let epoch = null;
let started = null;  // The daemon's start time. A different one means another process.
let access = null;  // "operator", "token" (a token shows more) or "refused".
let answeredAt = null;
let failures = 0;
let late = false;
let polls = 0;

const ACCESS = { STATUS_ACCESS_OPERATOR: "operator", STATUS_ACCESS_NEEDS_TOKEN: "token", STATUS_ACCESS_REFUSED: "refused" };
const stateOf = status => wordOf(status.state, "DAEMON_STATE_");

// --- Requests ---

async function ask(path, signal) {
  const headers = tokenNow() ? { Authorization: `Bearer ${tokenNow()}` } : {};
  const named = cacheName === "" || path === "caches" ? path :
    `${path}${path.includes("?") ? "&" : "?"}cache=${encodeURIComponent(cacheName)}`;
  const reply = await fetch(`/api/v1/${named}`, { headers, signal, cache: "no-store" });
  if (!reply.ok) throw Object.assign(new Error(`${path}: ${reply.status}`), { status: reply.status });
  return reply.json();
}
// For answers that only operators may read; null if this caller may not.
async function askAsOperator(path, signal) {
  if (access !== "operator") return null;
  try {
    return await ask(path, signal);
  } catch (error) {
    if (error.status === 401 || error.status === 403) return null;
    throw error;
  }
}

async function poll() {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), TIMEOUT_MS);
  const watch = setTimeout(() => { late = true; showPresence(); }, LATE_MS);
  try {
    const known = await ask("caches", stop.signal);
    chooseCache(known.caches.map(row => row.cache.name));
    $("waiting").hidden = known.caches.length > 0;
    const status = await ask("status", stop.signal);
    if (known.caches.length === 0) {
      lastState = stateOf(status);
      answeredAt = Date.now();
      failures = 0;
      late = false;
      return showPresence();
    }
    access = ACCESS[status.access];
    if (status.start_time !== started || status.epoch !== epoch) await meet(status, stop.signal);
    addSample(sampleOf(status));
    const slow = polls++ % 2 === 0;
    const [blocks, curves, events, sessions, tenants, subscribers, prefixes] = await Promise.all([
      ask("blocks", stop.signal), slow ? ask("hit_rate_curve", stop.signal) : undefined,
      paused ? null : askAsOperator(`events?since=${lastRevision}&limit=${KEPT_EVENTS}`, stop.signal),
      ...["sessions", "tenants", "subscribers", "prefixes"].map(name => slow ? askAsOperator(name, stop.signal) : undefined)]);
    answeredAt = Date.now();
    failures = 0;
    late = false;
    showAccess();
    showStatus(status);
    showRates();
    showPools(status, blocks);
    showTransfers(status.transfers, timeOf(status.time));
    showExchange(status);
    showEvents(events);
    if (slow) {
      showAdvice(curves);
      showLists(status, { sessions, tenants, subscribers, prefixes });
    }
  } catch (error) {
    ++failures;
  } finally {
    clearTimeout(timer);
    clearTimeout(watch);
  }
  showPresence();
}

// Keeps the chosen cache while it exists; else shows the first one.
function chooseCache(names) {
  const choice = $("cache-choice");
  $("cache-choice-box").hidden = names.length < 2;
  if ([...choice.options].map(option => option.value).join() !== names.join()) {
    choice.replaceChildren(...names.map(name => new Option(name, name)));
  }
  if (!names.includes(cacheName)) showCache(names[0] || "");
  choice.value = cacheName;
}

// The next poll is the first one of this cache.
function showCache(name) {
  cacheName = name;
  epoch = null;
}

// The first poll of a cache, also after a restart of the daemon.
async function meet(status, signal) {
  const history = await ask("history", signal);
  samples = history.times.map((time, i) => {
    const sample = { time: timeOf(time) };
    for (const name of SAMPLED) sample[name] = Number(history[name][i]);
    return sample;
  });
  if (epoch !== null && (status.epoch !== epoch || status.start_time !== started)) {
    restarted = `The daemon was restarted at ${clock(timeOf(status.start_time))}.`;
  }
  epoch = status.epoch;
  started = status.start_time;
  lastRevision = "0";
  shownEvents = [];
  lastTransfers = null;
  lastExchange = null;
  poolsShape = null;
  polls = 0;
}

// --- The daemon ---

function diskFact(disk, file) {
  const mode = { readwrite: "read and written", readonly: "read-only", off: "off" }[file.mode];
  const limit = Number(disk.write_bytes_per_second);
  const waiting = Number(file.waiting_backups) + Number(file.queued_backups);
  return `${mode}, by ${file.engine} ${file.direct ? "with" : "without"} O_DIRECT; ` +
    `${bytes(file.written_bytes_total)} written${limit ? `, at most ${bytes(limit)}/s` : ""}, ${bytes(file.read_bytes_total)} read` +
    (waiting ? `; ${plural(waiting, "block")} to be written` : "");
}

// The engine's process, in a line.
function engineFact(engine) {
  if (engine === undefined) return "none";
  const again = engine.restarts === "0" ? "" : `, started again ${plural(engine.restarts, "time")}`;
  if (!engine.up) return `not up${again}${engine.problem ? `: ${engine.problem}` : ""}`;
  return `${engine.model}: ${count(engine.running_requests)} running, ${count(engine.waiting_requests)} waiting${again}`;
}

// The kernels that the bundled engine runs on a GPU, and the kernels that the self-test has left
// out, with the reason.
function gpuFacts(test) {
  if (test === undefined) return [];
  const runs = test.problem === undefined ? test.kernels.filter(kernel => kernel.outcome === "runs" && kernel.needed) : [];
  const named = kernels => kernels.map(kernel => `${kernel.part} by ${kernel.family}`).join(", ");
  const out = test.kernels.filter(kernel => kernel.outcome !== "runs" && kernel.outcome !== "right");
  return [
    [`Kernels on ${test.device}`, runs.length ? named(runs) : "none: the engine runs on the host"],
    ...out.map(kernel => [`Left out: ${named([kernel])}`, `${kernel.outcome}${kernel.why ? `: ${kernel.why}` : ""}`]),
  ];
}

function showStatus(status) {
  document.title = `Pagoda: ${status.cache.name}`;
  set("cache-name", status.cache.name);
  set("uptime", duration(secondsOf(status.uptime)));
  set("tokens-per-block", count(status.cache.tokens_per_block));
  const facts = [
    ["Version", `pagodad ${status.version}`],
    ["Started", new Date(timeOf(status.start_time) * 1000).toLocaleString("en-GB")],
    ["Model", status.cache.model_fingerprint || "not named by the configuration"],
    ["Layers", plural(status.windows.reduce((n, w) => n + w.layers, 0), "attention layer")],
    ...status.windows.map(window => [`Window ${windowName(window.window_size)}`,
      `${plural(window.layers, "layer")}, ${bytes(window.tiers[0].block_bytes)} a block` + (window.holes ? `, ${plural(window.holes, "hole")}` : "")]),
    ["Sequences", `${count(status.sequences)} running`],
    ["Pins", `${plural(status.pins, "pin")} on ${plural(status.windows.reduce((n, w) => n + w.pinned_blocks, 0), "block")}`],
    ["Quarantined", status.quarantined_blocks === "0" ? "no blocks" :
      `${plural(status.quarantined_blocks, "block")} of ${plural(status.quarantines, "ended session")}`],
    ["Recovered after a restart", plural(status.recovered_blocks, "block")],
    ...(status.disk === undefined ? [] : status.disk.windows.map(file => [`Disk ${status.disk.tier_name}, window ${windowName(file.window_size)}`, diskFact(status.disk, file)])),
    ["Event log", `revisions ${count(status.oldest_revision)} to ${count(status.revision)}`],
    ["Epoch", hex(status.epoch)],
    ["Bundled engine", engineFact(status.engine)],
    ...gpuFacts(status.gpu_self_test),
  ];
  const list = $("facts");
  while (list.childElementCount > facts.length) list.lastElementChild.remove();
  facts.forEach(([name, value], i) => {
    if (!list.children[i]) {
      const box = make("div");
      box.append(make("dt"), make("dd", "num"));
      list.append(box);
    }
    const [dt, dd] = list.children[i].children;
    const shown = visible(value);
    if (dt.textContent !== visible(name)) dt.textContent = visible(name);
    if (dd.textContent !== shown) dd.textContent = shown;
  });
  lastState = stateOf(status);
}
let lastState = "connecting";

function showPresence() {
  const gone = late || failures >= 2 || (failures > 0 && answeredAt === null);
  document.body.classList.toggle("stale", gone);
  const pill = $("state");
  const text = gone ? "no answer" : lastState;
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = `pill ${gone ? "bad" : lastState === "serving" ? "good" : lastState === "connecting" ? "" : "warn"}`;
  $("gone").hidden = !gone;
  if (gone) {
    set("gone", answeredAt === null ? "The daemon does not answer. This page tries again every second." :
      `The daemon has not answered since ${clock(answeredAt / 1000)}. The values shown are from then. This page tries again every second.`);
  }
}

function showAccess() {
  const locked = access !== "operator";
  $("token-form").hidden = access === "refused" || (access === "operator" && !tokenNow());
  $("forget").hidden = !tokenNow();
  $("refused").hidden = !locked;
  set("refused", access === "refused" ?
    (tokenNow() ? "This token is not an operator’s, so sessions, tenants, prefixes, subscribers and events stay hidden." :
      "Sessions, tenants, prefixes, subscribers and events are hidden: other machines reach this address, and no operators are configured.") :
    tokenNow() ? "The daemon does not know this token. Sessions, tenants, prefixes, subscribers and events stay hidden." :
      "Sessions, tenants, prefixes, subscribers and events are for operators: enter an operator’s token above. It stays in this tab.");
  if (access === "refused" && tokenNow()) $("token-form").hidden = false;
}

// --- User input ---

const themes = ["system", "light", "dark"];
function showTheme() {
  const theme = localStorage.getItem(THEME_KEY) || "system";
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  set("theme", `Theme: ${theme}`);
  pools.forEach(paint);
}
$("cache-choice").addEventListener("change", event => {
  showCache(event.target.value);
  restarted = "";
});

$("theme").addEventListener("click", () => {
  const theme = localStorage.getItem(THEME_KEY) || "system";
  localStorage.setItem(THEME_KEY, themes[(themes.indexOf(theme) + 1) % themes.length]);
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
addEventListener("resize", () => pools.forEach(paint));
$("token-form").addEventListener("submit", event => {
  event.preventDefault();
  const token = $("token").value.trim();
  if (!token) return;
  sessionStorage.setItem(TOKEN_KEY, token);
  $("token").value = "";
  polls = 0;
  pollNow();
});
$("forget").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN_KEY);
  polls = 0;
  pollNow();
});
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Resume" : "Pause";
  $("pause").setAttribute("aria-pressed", String(paused));
});

// One poll at a time. A hidden tab does not poll.
let next = null, polling = false;
async function pollNow() {
  clearTimeout(next);
  if (polling) return;
  polling = true;
  const began = Date.now();
  if (!document.hidden) await poll();
  polling = false;
  next = setTimeout(pollNow, Math.max(100, POLL_MS - (Date.now() - began)));
}
document.addEventListener("visibilitychange", pollNow);

showTheme();
pollNow();
