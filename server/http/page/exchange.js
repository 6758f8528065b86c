// The store and other daemons. The section is hidden if there are neither.
"use strict";

let lastExchange = null;
const sum = counts => Object.values(counts).reduce((a, b) => a + b, 0);
const kindsText = counts => Object.entries(counts).map(([kind, n]) => `${kind.replaceAll("_", " ")} ${count(n)}`).join(", ") || "none";

function publisherText(publisher) {
  const totals = publisher.totals, dropped = sum(totals.dropped);
  return `${count(totals.published)} of ${count(totals.listed)} listed prefixes, ` +
    `${count(publisher.waiting)} waiting, ${count(publisher.in_flight)} in flight` +
    (dropped ? `; given up: ${kindsText(totals.dropped)}` : "") + (publisher.store_away ? "; waits, because the store is away" : "");
}
function connectionText(one) {
  return (one.up ? `${plural(one.connections, "connection")} to ${plural(one.nodes, "server")}` : "no connection") +
    `; reads: ${kindsText(one.totals.gets)}` + (sum(one.totals.faults) ? `; invalid values: ${kindsText(one.totals.faults)}` : "") +
    (one.last_error ? `; last error: ${one.last_error}` : "");
}

function showExchange({ exchange, store, peers, time }) {
  const rows = [];
  const row = (name, state, good, text) => rows.push([[name, "left"], [state, `left ${good ? "" : "lagging"}`], [text, "what", text]]);
  if (store !== null) {
    row(store.servers ? `store ${store.servers.join(", ")}` : "store", store.up ? "up" : "away", store.up, connectionText(store));
  }
  if (exchange !== null) {
    const totals = exchange.totals, passed = lastExchange ? time - lastExchange.time : 0;
    const per = field => passed > 0 ? `${bytes(Math.max(0, (totals[field] - lastExchange[field]) / passed))}/s` : "–";
    row("fetches", per("fetched_bytes"), true, exchange.unavailable ? `not exchanged: ${exchange.unavailable}` :
      `${kindsText(totals.fetches)}; ${plural(totals.fetched_tokens, "token")}, ${bytes(totals.fetched_bytes)}` +
      (totals.invalid_blocks ? `; ${plural(totals.invalid_blocks, "invalid value")}` : ""));
    if (exchange.publisher !== null) {
      row("writes", per("published_bytes"), !exchange.publisher.store_away,
        `${plural(totals.published_blocks, "block")}, ${bytes(totals.published_bytes)}; ${publisherText(exchange.publisher)}`);
    }
    lastExchange = { ...totals, time };
  } else {
    lastExchange = null;
  }
  if (peers !== null && peers.server !== null) {
    const totals = peers.server.totals;
    row("read by other daemons", plural(peers.server.connections, "connection"), true,
      `${count(totals.hits)} found, ${count(totals.misses)} not found, ${count(totals.refused_gets)} refused, ` +
      `${bytes(totals.value_bytes)}; ${plural(peers.server.index_blocks, "block")} can be read`);
  }
  for (const source of peers === null ? [] : peers.sources) {
    row(source.address ? `daemon ${source.address}` : "another daemon", source.up ? "up" : "away", source.up,
      `${connectionText(source)}; ${bytes(source.totals.read_bytes)}, ${bytes(source.bytes_per_second)}/s`);
  }
  $("exchange-section").hidden = rows.length === 0;
  fill("exchange", rows, "");
}
