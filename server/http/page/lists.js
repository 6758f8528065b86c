// Sessions, tenants, subscribers, prefixes, transfers and events.
"use strict";

const KEPT_EVENTS = 100, SHOWN_PREFIXES = 10;
const MUCH_LAG = 10000;  // Events.

const KINDS = { SUBSCRIBER_KIND_SMG: ", by SMG", SUBSCRIBER_KIND_ZMQ: ", over ZMQ" };  // Of subscribers, after their names.
const whose = row => row.tenant || "the default tenant";
function spaceText(row) {
  const parts = [whose(row)], space = row.namespace;
  if (space.lora_id !== undefined) parts.push(`adapter ${space.lora_id}`);
  if (space.cache_salt) parts.push(`salt “${space.cache_salt}”`);
  if (space.keyed) parts.push("keyed");
  return parts.join(", ");
}
function subscriberText(row) {
  const name = row.kind === "SUBSCRIBER_KIND_ZMQ" ? "all subscribers" : row.role === "CALLER_ROLE_OPERATOR" ? "operator" : row.tenant;
  return name + (KINDS[row.kind] || "") + (row.snapshot ? ", in a snapshot" : row.filtered ? ", filtered" : "");
}

function showLists(status, { sessions, tenants, subscribers, prefixes }) {
  const time = timeOf(status.time);
  set("sessions-count", count(status.sessions));
  set("subscribers-count", count(status.subscribers));
  fill("sessions", (sessions ? sessions.sessions : []).map(row => [
    [row.client_name || "unnamed", "text", `session ${row.session_id}`], [row.tenant || "–", "text tenant"], count(row.sequences), [count(row.raw_blocks), "wide"],
    row.lease === undefined ? "none" : row.lease_left === undefined ? "connected" : duration(secondsOf(row.lease_left)),
    [duration(time - timeOf(row.open_time)), "wide"]]), sessions ? "No client is connected." : HIDDEN);
  fill("tenants", (tenants ? tenants.tenants : []).flatMap(row => row.use.map((use, i) => [
    [i === 0 ? row.name || "the default tenant" : "", "text"],
    [status.windows.length > 1 ? `${use.tier_name}, ${windowName(use.window_size)}` : use.tier_name, "left"], count(use.used_blocks),
    use.quota_blocks === undefined ? "none" : count(use.quota_blocks), [count(use.cached_blocks), "wide"], [i === 0 ? count(row.sessions) : "", "wide"]])), tenants ? "No tenants are known." : HIDDEN);
  fill("subscribers", (subscribers ? subscribers.subscribers : []).map(row => {
    const lag = Number(row.lag_events);
    return [[subscriberText(row), "text"], count(row.sent_revision),
      [lag === 0 ? "none" : plural(lag, "event"), lag > MUCH_LAG ? "lagging" : ""], duration(time - timeOf(row.open_time))];
  }), subscribers ? "No subscriber follows the events." : HIDDEN);
  fill("prefixes", (prefixes ? prefixes.prefixes : []).slice(0, SHOWN_PREFIXES).map(row => [
    [count(row.saved_tokens), "saved"], count(row.hits), count(row.tokens),
    [row.first_key ? hexOfBytes(row.first_key) : row.first_tokens.join(" ") + (row.tokens > row.first_tokens.length ? " …" : ""), "text mono"],
    [row.tier_name + (row.pinned ? ", pinned" : ""), "left wide"], [spaceText(row), "text"], [hex(row.hash), "left mono wide"]]),
    prefixes ? "Nothing was reused yet. A prefix appears here when a second prompt begins with the same full blocks." : HIDDEN);
}

let lastTransfers = null;  // { time, ways: { "primary-dram": the direction, ... } }.
function showTransfers(transfers, time) {
  const rows = [], ways = {};
  for (const way of transfers.directions) {
    const from = way.source_name, to = way.target_name;
    ways[`${from}-${to}`] = way;
    // A direction is listed from its first copy on.
    const earlier = lastTransfers && (lastTransfers.ways[`${from}-${to}`] || { copies_total: 0, bytes_total: 0 });
    const passed = lastTransfers ? time - lastTransfers.time : 0;
    const per = field => passed > 0 ? Math.max(0, (way[field] - earlier[field]) / passed) : null;
    const label = from === to ? `inside the ${from} tier` :
      tierNames.indexOf(to) > tierNames.indexOf(from) ? `down, to ${to}` : `up, to ${to}`;
    const moved = per("bytes_total");
    rows.push([[label, "left"], rate(per("copies_total")), moved === null ? "–" : `${bytes(moved)}/s`, [count(way.copies_total), "wide"], [bytes(way.bytes_total), "wide"]]);
  }
  lastTransfers = { time, ways };
  fill("transfers", rows, tierNames.length > 1 ? "Nothing was copied yet." :
    `There is no tier below ${tierNames[0]}, and nothing was copied.`);
  set("copies-running", count(transfers.running));
  set("copies-queued", count(transfers.queued));
  set("copies-failed", count(transfers.failed_total));
}

let lastRevision = "0";
let shownEvents = [];  // Newest first.
let paused = false;
let restarted = "";  // The note about a restart of the daemon while the page was open.

const some = event => `block${event.blocks === "1" ? "" : "s"} ${event.block_ids.join(", ")}${event.blocks > event.block_ids.length ? ", …" : ""}`;
const tiersText = tiers => tiers.map(tierNameOf).join(", ") || "none";
function what(event) {
  switch (event.type) {
    case "EVENT_TYPE_CREATED":
      return event.capacity.length ? `pools: ${event.capacity.map(one => `${tierNameOf(one.tier)} ${count(one.blocks)}`).join(", ")}` : some(event);
    case "EVENT_TYPE_STORED": {
      const { stored } = event, space = stored.namespace;
      return some(event) + (stored.parent_block_id === undefined ? " at the root" : ` after ${stored.parent_block_id}`) +
        (space.lora_id === undefined ? "" : `, adapter ${space.lora_id}`) + (space.cache_salt ? `, salt “${space.cache_salt}”` : "") +
        (space.tenant ? `, tenant ${space.tenant}` : "") + (stored.lower_tiers.length ? `, copies below in ${tiersText(stored.lower_tiers)}` : "");
    }
    case "EVENT_TYPE_UPDATED":
      return some(event) + (event.tier ? `, tier ${tierNameOf(event.tier.old_value)} → ${tierNameOf(event.tier.new_value)}` : "") +
        (event.lower_tiers ? `, copies below ${tiersText(event.lower_tiers.old_value)} → ${tiersText(event.lower_tiers.new_value)}` : "") +
        (event.priority ? `, priority ${event.priority.old_value} → ${event.priority.new_value}` : "");
    default:
      return `${wordOf(event.reason, "REMOVAL_REASON_")}: ` + (event.scope === "REMOVAL_SCOPE_WINDOW" ? "everything" :
        event.scope === "REMOVAL_SCOPE_POOLS" ? "the pools" : some(event));
  }
}

function showEvents(answer) {
  if (paused) return;
  if (answer) {
    if (answer.epoch !== epoch) return;
    shownEvents = [...answer.events.reverse(), ...shownEvents].slice(0, KEPT_EVENTS);
    const skipped = lastRevision !== "0" && answer.skipped !== "0" ? `${count(answer.skipped)} came too fast to be shown.` : "";
    set("events-note", [restarted, skipped].join(" ").trim());
    lastRevision = answer.last_revision;
  } else {
    shownEvents = [];
    lastRevision = "0";
  }
  fill("events", shownEvents.map(event => {
    const type = wordOf(event.type, "EVENT_TYPE_"), text = what(event);
    return [count(event.revision), [clock(timeOf(event.time)), "left"], [type, `left ${type}`],
      [event.blocks === "0" ? "–" : count(event.blocks), "wide"], [event.stored ? count(event.stored.tokens) : "–", "wide"], [text, "what", text]];
  }), answer ? "Nothing has happened yet." : HIDDEN);
}
