// One WebSocket per tab. Subscriptions survive a lost connection: each stores the version it has received.

import { urlOf } from "./dom.js";

const watches = new Map();
let socket = null;
let delay = 500;
let listeners = new Set();

/**
 * Subscribe to a topic. `changed(changes, {full, version})` is called with the full state first, then with differences;
 * `failed(error)` when the topic does not exist (any more). Returns a function that unsubscribes.
 */
export function watch(topic, id, changed, failed = () => {}) {
  const key = `${topic} ${id}`;
  const entry = watches.get(key) || { topic, id, version: 0, epoch: "", callbacks: new Set() };
  const callback = { changed, failed };
  // A second subscriber needs the full state again.
  if (entry.callbacks.size) Object.assign(entry, { version: 0, epoch: "" });
  entry.callbacks.add(callback);
  watches.set(key, entry);
  connect();
  sendWatches();
  return () => {
    entry.callbacks.delete(callback);
    if (!entry.callbacks.size) watches.delete(key);
    sendWatches();
  };
}

/** Call `listener(isConnected)` whenever the connection opens or closes. */
export const onConnection = (listener) => listeners.add(listener);

function sendWatches() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const subscriptions = [...watches.values()].map(({ topic, id, version, epoch }) => ({ topic, id, version, epoch }));
  socket.send(JSON.stringify({ watch: subscriptions }));
}

function connect() {
  if (socket) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${urlOf("/api/live")}`);
  socket.onopen = () => {
    delay = 500;
    for (const listener of listeners) listener(true);
    sendWatches();
  };
  socket.onmessage = ({ data }) => receive(JSON.parse(data));
  socket.onclose = () => {
    socket = null;
    for (const listener of listeners) listener(false);
    setTimeout(connect, delay);
    delay = Math.min(delay * 2, 10_000);
  };
}

function receive(message) {
  const entry = watches.get(`${message.topic} ${message.id}`);
  if (!entry) return;
  if (message.error) {
    for (const { failed } of entry.callbacks) failed(message.error);
    return;
  }
  Object.assign(entry, { version: message.version, epoch: message.epoch });
  for (const { changed } of entry.callbacks) changed(message.changes, message);
}
