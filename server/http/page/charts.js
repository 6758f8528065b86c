// Samples of the totals, the rates between them, and the charts.
"use strict";

const KEPT_SECONDS = 600;
const RATE_SECONDS = 10;  // The period of a rate.
const HIT_SECONDS = 60;
const LEAST_BIN_SECONDS = 3;  // Per point of a chart. The daemon's samples are two seconds apart.
const SPANS = [[60, "a minute ago"], [120, "2 minutes ago"], [300, "5 minutes ago"], [KEPT_SECONDS, "10 minutes ago"]];

let samples = [];  // By time: { time, prefix_lookup_tokens_total, ... }, with the names of the totals in /api/v1/history.

const SAMPLED = ["prefix_lookup_tokens_total", "prefix_hit_tokens_total", "lower_hit_tokens_total", "allocated_blocks_total",
                 "evicted_blocks_total", "revision"];

function sampleOf(status) {
  const sum = name => status.windows.reduce((all, window) => all + Number(window[name]), 0);
  const largest = status.windows[status.windows.length - 1];
  return {
    time: timeOf(status.time),
    prefix_lookup_tokens_total: Number(largest.prefix_lookup_tokens_total),
    prefix_hit_tokens_total: Number(largest.prefix_hit_tokens_total),
    lower_hit_tokens_total: Number(largest.lower_hit_tokens_total),
    allocated_blocks_total: sum("allocated_blocks_total"),
    evicted_blocks_total: sum("evicted_blocks_total") + sum("displaced_blocks_total"),
    revision: Number(status.revision),
  };
}
function addSample(sample) {
  if (samples.length && sample.time <= samples[samples.length - 1].time) return;
  samples.push(sample);
  while (samples[0].time < sample.time - KEPT_SECONDS - RATE_SECONDS) samples.shift();
}
const last = () => samples[samples.length - 1];
// The newest sample that is at least `seconds` old; the oldest one if there is none.
function before(seconds) {
  const time = last().time - seconds;
  for (let i = samples.length - 2; i >= 0; --i) {
    if (samples[i].time <= time) return samples[i];
  }
  return samples[0];
}
function rateOf(name) {
  const from = before(RATE_SECONDS);
  const passed = last().time - from.time;
  return passed > 0 ? (last()[name] - from[name]) / passed : null;
}

// The shortest span that covers all samples; the longest one if none does.
const span = () => SPANS.find(([seconds]) => last().time - samples[0].time <= seconds) || SPANS[SPANS.length - 1];
// For each bin of the span: value(first sample, last sample); null without samples.
function bins(value) {
  const [seconds] = span(), bin = Math.max(LEAST_BIN_SECONDS, seconds / 60);
  const end = last().time, points = [];
  let i = 0;
  for (let start = end - seconds; start < end - bin / 2; start += bin) {
    while (i < samples.length - 1 && samples[i + 1].time <= start) ++i;
    let j = i;
    while (j < samples.length - 1 && samples[j + 1].time <= start + bin) ++j;
    points.push(j > i && samples[i].time >= start - bin ? value(samples[i], samples[j]) : null);
  }
  return points;
}
const rates = name => bins((a, b) => (b[name] - a[name]) / (b.time - a.time));
function draw(id, points, top, lines) {
  const width = points.length - 1, height = 100;  // In points, and in hundredths of the top.
  const y = value => (height - 2 - (height - 4) * Math.min(1, value / top)).toFixed(1);
  let line = "", area = "", run = [];
  const finish = () => {
    if (run.length) {
      const way = run.map(([i, v]) => `${i} ${y(v)}`).join("L");
      line += `M${way}${run.length === 1 ? `h.6` : ""}`;
      area += `M${run[0][0]} ${height}L${way}L${run[run.length - 1][0]} ${height}Z`;
    }
    run = [];
  };
  points.forEach((value, i) => value === null ? finish() : run.push([i, value]));
  finish();
  const svg = $(id);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  while (svg.childElementCount < 3) svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
  const [grid, fillPath, path] = svg.children;
  grid.setAttribute("class", "grid");
  grid.setAttribute("d", lines.map(v => `M0 ${y(v)}H${width}`).join(""));
  fillPath.setAttribute("class", "area");
  fillPath.setAttribute("d", area);
  path.setAttribute("d", line);
}
function spark(id, name) {
  const points = rates(name);
  draw(id, points, Math.max(1e-9, ...points.filter(v => v !== null)), []);
}
function hitRate(a, b) {
  const lookups = b.prefix_lookup_tokens_total - a.prefix_lookup_tokens_total;
  return lookups > 0 ? (b.prefix_hit_tokens_total - a.prefix_hit_tokens_total) / lookups : null;
}

function showRates() {
  const zero = { prefix_lookup_tokens_total: 0, prefix_hit_tokens_total: 0 };
  set("hit-now", share(hitRate(before(HIT_SECONDS), last())));
  set("hit-total", share(hitRate(zero, last())));
  const lower = last().lower_hit_tokens_total;
  $("hit-lower-box").hidden = !lower;
  set("hit-lower", share(lower / Math.max(1, last().prefix_hit_tokens_total)));
  set("chart-from", span()[1]);
  draw("hit-chart", bins(hitRate), 1, [0, .25, .5, .75, 1]);
  set("rate-hits", rate(rateOf("prefix_hit_tokens_total")));
  set("rate-lookups", rate(rateOf("prefix_lookup_tokens_total")));
  set("rate-allocated", rate(rateOf("allocated_blocks_total")));
  set("rate-evicted", rate(rateOf("evicted_blocks_total")));
  set("rate-events", rate(rateOf("revision")));
  set("total-allocated", count(last().allocated_blocks_total));
  set("total-evicted", count(last().evicted_blocks_total));
  set("revision", count(last().revision));
  for (const [id, name] of [["hits", "prefix_hit_tokens_total"], ["allocated", "allocated_blocks_total"],
                            ["evicted", "evicted_blocks_total"], ["events", "revision"]]) spark(`spark-${id}`, name);
}
