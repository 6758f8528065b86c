// Formats numbers for people, and fills the page's elements.
"use strict";

const HIDDEN = "For operators.";
const STATES = ["free", "cached", "active", "pinned", "in_flight"];
const STATE_NAMES = { free: "free", cached: "cached", active: "active", pinned: "pinned", in_flight: "in flight" };

const $ = id => document.getElementById(id);

// Values of protobuf's JSON. A 64-bit integer is a text: arithmetic begins with Number().
const timeOf = text => Date.parse(text.replace(/(\.\d{3})\d+/, "$1")) / 1000;  // "2026-11-30T10:00:00.123456Z", in seconds.
const secondsOf = text => parseFloat(text);  // "1.500s".
const hex = text => BigInt(text).toString(16).padStart(16, "0");
const hexOfBytes = base64 => [...atob(base64)].map(c => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
const windowName = size => size === 0 ? "full" : String(size);
// The value of an enumeration in words: ("EVENT_TYPE_STORED", "EVENT_TYPE_") is "stored".
const wordOf = (value, prefix) => value.slice(prefix.length).toLowerCase().replaceAll("_", " ");

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const count = n => whole.format(n);
const rate = n => n === null ? "–" : n > 0 && n < 100 ? tenth.format(n) : whole.format(n);
const share = n => n === null ? "–" : `${tenth.format(100 * n)} %`;
function bytes(n) {
  n = Number(n);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; ++unit) n /= 1024;
  return `${unit === 0 ? whole.format(n) : tenth.format(n)} ${units[unit]}`;
}
function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  return (first < 0 ? parts.slice(3) : parts.slice(first, first + 2)).map(([n, unit]) => `${n} ${unit}`).join(" ");
}
const clock = seconds => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const plural = (n, word) => `${count(n)} ${word}${Number(n) === 1 ? "" : "s"}`;

// Control characters and marks of the text direction as their codes, so that a name shows what it
// has and cannot turn around.
const HIDDEN_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = text => String(text).replace(HIDDEN_CHARACTERS, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = visible(text);
  return element;
}
function set(id, text) {
  const element = $(id), shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}
const filled = new Map();
// Fills a table. A row is a list of cells; a cell is a text or [text, class, title].
function fill(id, rows, whenEmpty) {
  const shown = JSON.stringify([rows, whenEmpty]);
  if (filled.get(id) === shown) return;  // Keeps the text that the user has selected.
  filled.set(id, shown);
  const body = $(id).tBodies[0];
  body.replaceChildren(...rows.map(cells => {
    const row = make("tr");
    for (const cell of cells) {
      const [text, className, title] = Array.isArray(cell) ? cell : [cell];
      const td = make("td", className, text);
      if (title || /\btext\b/.test(className)) td.title = visible(title || text);
      row.append(td);
    }
    return row;
  }));
  $(id).parentElement.hidden = rows.length === 0;
  const empty = $(`${id}-empty`);
  empty.hidden = rows.length !== 0;
  if (empty.textContent !== whenEmpty) empty.textContent = whenEmpty;
}
