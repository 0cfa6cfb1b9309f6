'use strict';

// A histogram of V8's heap: bytes and objects by their kind, from a snapshot.

/** Counts the objects of a snapshot as `v8.writeHeapSnapshot` writes it. */
function histogram(snapshot) {
  const { node_fields: fields, node_types: [types] } = snapshot.snapshot.meta;
  const [type, name, size] = ['type', 'name', 'self_size'].map((field) => fields.indexOf(field));
  const found = new Map();
  for (let at = 0; at < snapshot.nodes.length; at += fields.length) {
    const kind = types[snapshot.nodes[at + type]];
    // Strings and numbers have their value as name.
    const label = kind === 'object' || kind === 'closure' || kind === 'native' ? snapshot.strings[snapshot.nodes[at + name]] : '';
    const key = `${kind} ${label}`.trim();
    const sum = found.get(key) ?? { count: 0, bytes: 0 };
    sum.count++;
    sum.bytes += snapshot.nodes[at + size];
    found.set(key, sum);
  }
  return found;
}

/** What there is more of, for each of `connections`: lines for the kinds of which nearly each connection has some. */
function grown(before, after, connections) {
  const rows = [];
  for (const [key, { count, bytes }] of after) {
    const earlier = before.get(key) ?? { count: 0, bytes: 0 };
    rows.push({ key, count: (count - earlier.count) / connections, bytes: (bytes - earlier.bytes) / connections });
  }
  return rows
    .filter(({ bytes }) => bytes >= 8)
    .sort((one, other) => other.bytes - one.bytes)
    .map(({ key, count, bytes }) => `    ${bytes.toFixed(0).padStart(6)} bytes  ${count.toFixed(1).padStart(5)}  ${key}`);
}

module.exports = { grown, histogram };
