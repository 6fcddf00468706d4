// One WebSocket for the tab. Watches survive a lost connection: each remembers the version it has.

const watches = new Map();
let socket = null;
let delay = 500;
let listeners = new Set();

/**
 * Watch a topic. `changed(changes, {full, version})` is called with everything first, then with differences;
 * `failed(error)` when there is no such thing (any more). Returns a function that stops watching.
 */
export function watch(topic, id, changed, failed = () => {}) {
  const key = `${topic} ${id}`;
  const entry = watches.get(key) || { topic, id, version: 0, epoch: "", callbacks: new Set() };
  const callback = { changed, failed };
  // A second one who watches the same needs everything once more.
  if (entry.callbacks.size) Object.assign(entry, { version: 0, epoch: "" });
  entry.callbacks.add(callback);
  watches.set(key, entry);
  connect();
  tell();
  return () => {
    entry.callbacks.delete(callback);
    if (!entry.callbacks.size) watches.delete(key);
    tell();
  };
}

/** `listener(isConnected)` whenever the connection comes or goes. */
export const onConnection = (listener) => listeners.add(listener);

function tell() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const wanted = [...watches.values()].map(({ topic, id, version, epoch }) => ({ topic, id, version, epoch }));
  socket.send(JSON.stringify({ watch: wanted }));
}

function connect() {
  if (socket) return;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/live`);
  socket.onopen = () => {
    delay = 500;
    for (const listener of listeners) listener(true);
    tell();
  };
  socket.onmessage = ({ data }) => take(JSON.parse(data));
  socket.onclose = () => {
    socket = null;
    for (const listener of listeners) listener(false);
    setTimeout(connect, delay);
    delay = Math.min(delay * 2, 10_000);
  };
}

function take(message) {
  const entry = watches.get(`${message.topic} ${message.id}`);
  if (!entry) return;
  if (message.error) {
    for (const { failed } of entry.callbacks) failed(message.error);
    return;
  }
  Object.assign(entry, { version: message.version, epoch: message.epoch });
  for (const { changed } of entry.callbacks) changed(message.changes, message);
}
