// Sessions, tenants, subscribers, prefixes, transfers and events.
"use strict";

const KEPT_EVENTS = 100, SHOWN_PREFIXES = 10;
const MUCH_LAG = 10000;  // Events.

const KINDS = { watch: "", smg: ", by SMG", zmq: ", over ZMQ" };  // Of subscribers.
const whose = row => row.tenant || "the default tenant";
function spaceText(row) {
  const parts = [whose(row)];
  if (row.namespace.lora_id !== undefined) parts.push(`adapter ${row.namespace.lora_id}`);
  if (row.namespace.salt) parts.push(`salt “${row.namespace.salt}”`);
  if (row.namespace.keyed) parts.push("keyed");
  return parts.join(", ");
}

function showLists(status, { sessions, tenants, subscribers, prefixes }) {
  set("sessions-count", count(status.sessions));
  set("subscribers-count", count(status.subscribers));
  fill("sessions", (sessions ? sessions.sessions : []).map(row => [
    [row.client || "unnamed", "text", `session ${row.session}`], [row.tenant || "–", "text tenant"], count(row.sequences), [count(row.raw_blocks), "wide"],
    row.lease_seconds === null ? "none" : row.lease_left_seconds === null ? "connected" : duration(row.lease_left_seconds),
    [duration(status.time - row.opened), "wide"]]), sessions ? "No client is connected." : HIDDEN);
  fill("tenants", (tenants ? tenants.tenants : []).flatMap(row => row.use.map((use, i) => [
    [i === 0 ? whose(row) : "", "text"], [status.windows.length > 1 ? `${use.tier}, ${use.window}` : use.tier, "left"], count(use.used_blocks),
    use.quota_blocks === null ? "none" : count(use.quota_blocks), [count(use.cached_blocks), "wide"], [i === 0 ? count(row.sessions) : "", "wide"]])), tenants ? "No tenants are known." : HIDDEN);
  fill("subscribers", (subscribers ? subscribers.subscribers : []).map(row => [
    [(row.kind === "zmq" ? "all subscribers" : row.role === "operator" ? "operator" : row.tenant) + KINDS[row.kind] + (row.snapshot ? ", in a snapshot" : row.filtered ? ", filtered" : ""), "text"], count(row.sent_revision),
    [row.lag_events === 0 ? "none" : plural(row.lag_events, "event"), row.lag_events > MUCH_LAG ? "lagging" : ""], duration(row.open_seconds)]),
    subscribers ? "No subscriber follows the events." : HIDDEN);
  fill("prefixes", (prefixes ? prefixes.prefixes : []).slice(0, SHOWN_PREFIXES).map(row => [
    [count(row.saved_tokens), "saved"], count(row.hits), count(row.tokens),
    [row.first_key || row.first_tokens.join(" ") + (row.tokens > row.first_tokens.length ? " …" : ""), "text mono"],
    [row.tier + (row.pinned ? ", pinned" : ""), "left wide"], [spaceText(row), "text"], [row.hash, "left mono wide"]]),
    prefixes ? "Nothing was reused yet. A prefix appears here when a second prompt begins with the same full blocks." : HIDDEN);
}

let lastTransfers = null;
function showTransfers(transfers, time) {
  const rows = [];
  for (const way of transfers.directions) {
    if (way.copies === 0) continue;
    const name = `${way.from}-${way.to}`;
    const earlier = lastTransfers && lastTransfers[name];
    const passed = earlier ? time - earlier.time : 0;
    const per = field => passed > 0 ? Math.max(0, (way[field] - earlier[field]) / passed) : null;
    const label = way.from === way.to ? `inside the ${way.from} tier` :
      tierNames.indexOf(way.to) > tierNames.indexOf(way.from) ? `down, to ${way.to}` : `up, to ${way.to}`;
    const moved = per("bytes");
    rows.push([[label, "left"], rate(per("copies")), moved === null ? "–" : `${bytes(moved)}/s`, [count(way.copies), "wide"], [bytes(way.bytes), "wide"]]);
  }
  lastTransfers = Object.fromEntries(transfers.directions.map(way => [`${way.from}-${way.to}`, { ...way, time }]));
  fill("transfers", rows, tierNames.length > 1 ? "Nothing was copied yet." :
    `There is no tier below ${tierNames[0]}, and nothing was copied.`);
  set("copies-running", count(transfers.running));
  set("copies-queued", count(transfers.queued));
  set("copies-failed", count(transfers.failed));
}

let lastRevision = 0;
let shownEvents = [];  // Newest first.
let paused = false;
let restarted = "";  // The note about a restart of the daemon while the page was open.

const some = (ids, n) => `block${n === 1 ? "" : "s"} ${ids.join(", ")}${n > ids.length ? ", …" : ""}`;
const tiersText = tiers => tiers.join(", ") || "none";
function what(event) {
  switch (event.type) {
    case "created":
      return event.capacity_blocks ? `pools: ${Object.entries(event.capacity_blocks).map(([tier, n]) => `${tier} ${count(n)}`).join(", ")}` :
        some(event.block_ids, event.blocks);
    case "stored": {
      const space = event.namespace;
      return some(event.block_ids, event.blocks) + (event.parent_block === undefined ? " at the root" : ` after ${event.parent_block}`) +
        (space.lora_id === undefined ? "" : `, adapter ${space.lora_id}`) + (space.salt ? `, salt “${space.salt}”` : "") +
        (space.tenant ? `, tenant ${space.tenant}` : "") + (event.lower_tiers ? `, copies below in ${event.lower_tiers.join(", ")}` : "");
    }
    case "updated":
      return some(event.block_ids, 1) + (event.tier ? `, tier ${event.tier.from} → ${event.tier.to}` : "") +
        (event.lower_tiers ? `, copies below ${tiersText(event.lower_tiers.from)} → ${tiersText(event.lower_tiers.to)}` : "") +
        (event.priority ? `, priority ${event.priority.from} → ${event.priority.to}` : "");
    default:
      return `${event.reason}: ${event.scope === "window" ? "everything" : event.scope === "pools" ? "the pools" : some(event.block_ids, event.blocks)}`;
  }
}

function showEvents(answer) {
  if (paused) return;
  if (answer) {
    if (answer.epoch !== epoch) return;
    shownEvents = [...answer.events.reverse(), ...shownEvents].slice(0, KEPT_EVENTS);
    const skipped = lastRevision > 0 && answer.skipped > 0 ? `${count(answer.skipped)} came too fast to be shown.` : "";
    set("events-note", [restarted, skipped].join(" ").trim());
    lastRevision = answer.last_revision;
  } else {
    shownEvents = [];
    lastRevision = 0;
  }
  fill("events", shownEvents.map(event => [
    count(event.revision), [clock(event.time), "left"], [event.type, `left ${event.type}`],
    [event.blocks === undefined ? "–" : count(event.blocks), "wide"], [event.tokens === undefined ? "–" : count(event.tokens), "wide"],
    [what(event), "what", what(event)]]), answer ? "Nothing has happened yet." : HIDDEN);
}
