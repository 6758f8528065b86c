// The block map: a square for one block of a tier, or for several.
"use strict";

let poolsShape = null;
let pools = [];  // The drawn pools: { canvas, cells, perCell, cursor, ... }.
let tierNames = [];  // Nearest first.
let tierInfos = [];  // Of the shown cache: { tier, name, medium }.
const tierInfo = tier => tierInfos.find(one => one.tier === tier);  // By a value of the enumeration Tier.
const tierNameOf = tier => tierInfo(tier).name;
const isOnDisk = tier => tierInfo(tier.tier).medium === "MEDIUM_DISK";
const tierTitle = name => `${name[0].toUpperCase()}${name.slice(1)} tier`;
const tierText = tier => {
  const place = tierNames.indexOf(tier.name);
  if (isOnDisk(tier)) return `copies of blocks in memory, and blocks offloaded from the ${tierNames[place - 1]} tier`;
  return place > 0 ? `blocks offloaded from the ${tierNames[place - 1]} tier` : "where engines compute";
};
const DISK_MODES = { readwrite: "", readonly: "Nothing more is written to this disk, because writes failed. ", off: "This disk is off: it is neither read nor written. " };
function diskText(disk, window, tier) {
  if (disk === undefined || disk.tier !== tier.tier) return "";
  const file = disk.windows.find(one => one.window_size === window.window_size);
  return file ? DISK_MODES[file.mode] : "";
}
const windowText = size => size === 0 ? "full attention" : `sliding window of ${count(size)} tokens`;

// The hit rates of other capacities. A window without a curve does not speak if another one has one.
function showAdvice({ windows }) {
  const curve = windows.find(one => one.unavailable === "") || windows[windows.length - 1];
  const now = (curve.points.find(point => point.capacity_factor === 1) || {}).hit_rate;
  fill("advice", curve.points.map(point => [
    [`${point.capacity_factor}x`, "left"], [count(point.capacity_blocks), "wide"], share(point.hit_rate),
    point.error > 0 ? `± ${tenth.format(100 * point.error)}` : "measured", count((point.hit_rate - now) * curve.lookup_tokens_per_hour)]),
    curve.unavailable);
  const end = curve.gain_ends_factor === 0 ? `So far the daemon has seen blocks for ${tenth.format(curve.known_factor)}x.` :
    `The gain ends at ${tenth.format(curve.gain_ends_factor)}x.`;
  set("advice-text", "The hit rate of prompt blocks at other capacities of all tiers together, from a sample of the blocks." +
    (curve.unavailable === "" ? ` ${plural(curve.observed_requests, "request")} in ${duration(secondsOf(curve.observed_time))}. ${end}` : ""));
}

// Empty if every cached block has the default priority.
const prioritiesText = all => all.every(one => one.priority === 35) ? "" :
  "Cached by priority, the lowest is evicted first: " + all.map(one => `${one.priority}: ${count(one.blocks)}`).join(", ") + ".";

const duplicatesText = n => n === 0 ? "" : `${count(n)} of the cached blocks are copies of blocks in nearer tiers, and are evicted first. `;

// For pools in host memory only.
const PAGES = {
  MEMORY_PAGES_PLAIN: "plain pages", MEMORY_PAGES_TRANSPARENT: "transparent huge pages",
  MEMORY_PAGES_2MIB: "huge pages of 2 MiB", MEMORY_PAGES_1GIB: "huge pages of 1 GiB",
};
const pagesText = pages => pages in PAGES ? ` in ${PAGES[pages]}` : "";
const memoryText = tier => isOnDisk(tier) ? "disk" : tier.memory_kind === "MEMORY_KIND_CUDA" ? `cuda:${tier.device}` : "host";

function makePool(window, tier) {
  const box = make("div", "pool"), name = `${tierTitle(tier.name)}, ${windowText(window.window_size)}`;
  const head = make("div", "head");
  head.append(make("h3", "", name),
    make("span", "quiet num", `${plural(tier.capacity_blocks, "block")} of ${bytes(tier.block_bytes)}, ` +
      `${bytes(tier.capacity_blocks * tier.block_bytes)} in all, on ${memoryText(tier)}${pagesText(tier.memory_pages)}: ${tierText(tier)}`));
  const counts = make("div", "counts num"), bar = make("div", "share");
  const numbers = {};
  for (const state of STATES) {
    const item = make("span");
    numbers[state] = make("b", "num", "–");
    numbers[state].id = `${windowName(window.window_size)}-${tier.name}-${state}`;
    item.append(make("i", `key ${state}`), STATE_NAMES[state], numbers[state]);
    counts.append(item);
  }
  const parts = {};
  for (const state of ["active", "pinned", "in_flight", "cached"]) bar.append(parts[state] = make("i", state));
  const canvas = make("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  const note = make("p", "cell");
  note.setAttribute("aria-live", "polite");
  const priorities = make("p", "help num");
  box.append(head, bar, counts, priorities, canvas, note);
  const pool = { box, numbers, parts, priorities, canvas, note, cells: [], perCell: 1, cursor: null, name };
  canvas.addEventListener("pointermove", event => point(pool, cellAt(pool, event)));
  canvas.addEventListener("pointerleave", () => point(pool, null));
  canvas.addEventListener("blur", () => point(pool, null));
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -pool.columns, ArrowDown: pool.columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    point(pool, pool.cursor === null ? 0 : Math.min(pool.cells.length - 1, Math.max(0, pool.cursor + step)));
  });
  return pool;
}

function showPools(status, blocks) {
  tierInfos = status.cache.tiers;
  tierNames = tierInfos.map(tier => tier.name);
  const shape = JSON.stringify(status.windows.map(w => [w.window_size, w.tiers.map(t => [t.name, t.capacity_blocks])]));
  if (shape !== poolsShape) {
    poolsShape = shape;
    pools = [];
    for (const window of status.windows) for (const tier of window.tiers) pools.push(makePool(window, tier));
    $("pools").replaceChildren(...pools.map(pool => pool.box));
  }
  let i = 0;
  status.windows.forEach((window, w) => window.tiers.forEach((tier, t) => {
    const pool = pools[i++];
    for (const state of STATES) {
      const n = tier[`${state}_blocks`];
      pool.numbers[state].textContent = count(n);
      if (pool.parts[state]) pool.parts[state].style.width = `${100 * n / tier.capacity_blocks}%`;
    }
    pool.priorities.textContent = diskText(status.disk, window, tier) + duplicatesText(tier.duplicate_blocks) + prioritiesText(tier.cached_by_priority);
    const map = blocks.windows[w].tiers[t];
    pool.cells = map.free_blocks.map((_, cell) => STATES.map(state => map[`${state}_blocks`][cell]));
    pool.perCell = Number(map.blocks_per_cell);
    pool.canvas.setAttribute("aria-label", `${pool.name}: ` + STATES.map(s => `${count(tier[`${s}_blocks`])} ${STATE_NAMES[s]}`).join(", "));
    paint(pool);
    describe(pool);
  }));
}

function paint(pool) {
  const { canvas, cells } = pool;
  const style = getComputedStyle(document.documentElement);
  const colour = Object.fromEntries([...STATES, "free-line", "text"].map(s => [s, style.getPropertyValue(`--${s}`).trim()]));
  const wide = canvas.clientWidth;
  if (wide === 0) return;
  const size = cells.length <= 128 ? 16 : cells.length <= 512 ? 13 : 10, gap = 1;
  pool.columns = Math.max(1, Math.floor((wide + gap) / (size + gap)));
  pool.pitch = size + gap;
  const rows = Math.ceil(cells.length / pool.columns);
  const high = rows * pool.pitch, scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(high * scale)) {
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    canvas.style.height = `${high}px`;
  }
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, wide, high);
  g.lineWidth = 1;
  cells.forEach((cell, i) => {
    const x = (i % pool.columns) * pool.pitch, y = Math.floor(i / pool.columns) * pool.pitch;
    const total = cell.reduce((a, b) => a + b, 0);
    if (cell[0] > 0) {
      g.strokeStyle = colour["free-line"];
      g.strokeRect(x + .5, y + .5, size - 1, size - 1);
    }
    // From the bottom up: cached slots, then the held ones. Every state that occurs is visible.
    let bottom = y + size;
    for (const s of [1, 4, 3, 2]) {
      if (cell[s] === 0) continue;
      const part = s === 2 && cell[0] === 0 ? bottom - y : Math.max(1, size * cell[s] / total);
      g.fillStyle = colour[STATES[s]];
      g.fillRect(x, Math.max(y, bottom - part), size, Math.min(part, bottom - y));
      bottom -= part;
    }
    if (cell[0] === 0 && bottom > y + .01) {
      // Rounding leaves a line at the top: the last state takes it.
      g.fillRect(x, y, size, bottom - y);
    }
    if (i === pool.cursor) {
      g.strokeStyle = colour.text;
      g.lineWidth = 2;
      g.strokeRect(x, y, size, size);
      g.lineWidth = 1;
    }
  });
}
function cellAt(pool, event) {
  const box = pool.canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / pool.pitch), row = Math.floor((event.clientY - box.top) / pool.pitch);
  const i = row * pool.columns + column;
  return column >= 0 && column < pool.columns && i >= 0 && i < pool.cells.length ? i : null;
}
function point(pool, cursor) {
  if (pool.cursor === cursor) return;
  pool.cursor = cursor;
  paint(pool);
  describe(pool);
}
function describe(pool) {
  const each = pool.perCell === 1 ? "One square is one block." : `One square is ${count(pool.perCell)} blocks; its colours fill it by their share.`;
  const cell = pool.cursor === null ? null : pool.cells[pool.cursor];
  const say = text => { if (pool.note.textContent !== text) pool.note.textContent = text; };
  if (!cell) return say(each);
  const total = cell.reduce((a, b) => a + b, 0), first = pool.cursor * pool.perCell;
  const what = STATES.filter((s, i) => cell[i] > 0).map(s => pool.perCell === 1 ? STATE_NAMES[s] : `${count(cell[STATES.indexOf(s)])} ${STATE_NAMES[s]}`);
  say((total === 1 ? `Slot ${count(first)}: ` : `Slots ${count(first)} to ${count(first + total - 1)}: `) + what.join(", "));
}
