// The store and other daemons. The section is hidden if there are neither.
"use strict";

let lastExchange = null;
const sum = counts => counts.reduce((all, one) => all + Number(one.count), 0);
const kindsText = counts => counts.map(one => `${one.name.replaceAll("_", " ")} ${count(one.count)}`).join(", ") || "none";

function publisherText(publisher) {
  return `${count(publisher.published_total)} of ${count(publisher.listed_total)} listed prefixes, ` +
    `${count(publisher.waiting)} waiting, ${count(publisher.in_flight)} in flight` +
    (sum(publisher.dropped_total) ? `; given up: ${kindsText(publisher.dropped_total)}` : "") +
    (publisher.store_away ? "; waits, because the store is away" : "");
}
function connectionText(one) {
  return (one.up ? `${plural(one.connections, "connection")} to ${plural(one.nodes, "server")}` : "no connection") +
    `; reads: ${kindsText(one.gets_total)}` + (sum(one.faults_total) ? `; invalid values: ${kindsText(one.faults_total)}` : "") +
    (one.last_error ? `; last error: ${one.last_error}` : "");
}

function showExchange(status) {
  const { exchange, store } = status, server = status.peer_server, time = timeOf(status.time);
  const rows = [];
  const row = (name, state, good, text) => rows.push([[name, "left"], [state, `left ${good ? "" : "lagging"}`], [text, "what", text]]);
  if (store !== undefined) {
    row(store.servers.length ? `store ${store.servers.join(", ")}` : "store", store.up ? "up" : "away", store.up, connectionText(store));
  }
  if (exchange !== undefined) {
    const passed = lastExchange ? time - lastExchange.time : 0;
    const per = field => passed > 0 ? `${bytes(Math.max(0, (exchange[field] - lastExchange[field]) / passed))}/s` : "–";
    row("fetches", per("fetched_bytes_total"), true, exchange.unavailable ? `not exchanged: ${exchange.unavailable}` :
      `${kindsText(exchange.fetches_total)}; ${plural(exchange.fetched_tokens_total, "token")}, ${bytes(exchange.fetched_bytes_total)}` +
      (Number(exchange.invalid_blocks_total) ? `; ${plural(exchange.invalid_blocks_total, "invalid value")}` : ""));
    if (exchange.publisher !== undefined) {
      row("writes", per("published_bytes_total"), !exchange.publisher.store_away,
        `${plural(exchange.published_blocks_total, "block")}, ${bytes(exchange.published_bytes_total)}; ${publisherText(exchange.publisher)}`);
    }
    lastExchange = { ...exchange, time };
  } else {
    lastExchange = null;
  }
  if (server !== undefined) {
    row("read by other daemons", plural(server.connections, "connection"), true,
      `${count(server.hits_total)} found, ${count(server.misses_total)} not found, ${count(server.refused_gets_total)} refused, ` +
      `${bytes(server.value_bytes_total)}; ${plural(server.index_blocks, "block")} can be read`);
  }
  for (const source of status.peer_sources) {
    const one = source.connection;
    row(source.address ? `daemon ${source.address}` : "another daemon", one.up ? "up" : "away", one.up,
      `${connectionText(one)}; ${bytes(one.read_bytes_total)}, ${bytes(source.bytes_per_second)}/s`);
  }
  $("exchange-section").hidden = rows.length === 0;
  fill("exchange", rows, "");
}
