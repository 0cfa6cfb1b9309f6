'use strict';

// Connections that continue in another process.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');
const readline = require('node:readline');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const { issue, listen, readAll, write } = require('./support');

const own = issue();
const to = { host: '127.0.0.1', servername: 'localhost', ca: own.ca };

async function connected(t, connect = dormouse.connect) {
  const server = dormouse.createServer({ ...own, ALPNProtocols: ['x'] });
  const port = await listen(t, server);
  const client = connect({ ...to, port, ALPNProtocols: ['x'] });
  const [[socket]] = await Promise.all([once(server, 'secureConnection'), once(client, 'secureConnect')]);
  return { server, socket, client };
}

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  test(`both sides, ${version}`, async (t) => {
    const { server, socket, client } = await connected(t, (options) => dormouse.connect({ ...options, maxVersion: version }));
    await new Promise((resolve) => setTimeout(resolve, 20));
    const ofServer = socket.export();
    const ofClient = client.export();
    assert.ok(ofServer.state.length < 200, `${ofServer.state.length} bytes`);
    assert.equal(socket.destroyed, true);
    const copy = Buffer.from(ofClient.state);
    const restored = dormouse.restore(ofClient.state, ofClient.socket);
    assert.ok(ofClient.state.every((byte) => byte === 0), 'the bytes are wiped');
    const announced = once(server, 'secureConnection');
    const again = server.restore(ofServer.state, ofServer.socket);
    assert.equal((await announced)[0], again);
    assert.ok(again instanceof dormouse.TLSSocket);
    again.pipe(again);
    restored.end('after the move');
    assert.equal((await readAll(restored)).toString(), 'after the move');
    assert.equal(again.alpnProtocol, 'x');
    assert.equal(restored.getProtocol(), null, 'closed');
    assert.throws(() => dormouse.restore(copy.subarray(0, 50), ofClient.socket), { code: 'ERR_INVALID_ARG_VALUE' });
  });
}

test('what arrived and was not read moves along', async (t) => {
  const { server, socket, client } = await connected(t, tls.connect);
  socket.pause();
  client.write('unread');
  while (socket.readableLength < 6) await new Promise((resolve) => setTimeout(resolve, 5));
  const { state, socket: plain } = socket.export();
  client.end(' and later');
  const again = server.restore(state, plain);
  assert.equal((await readAll(again)).toString(), 'unread and later');
  again.end();
});

test('connections that cannot move say why', async (t) => {
  const { socket, client } = await connected(t);
  const refused = (why) => ({ code: 'ERR_TLS_INVALID_STATE', message: why });
  client.write(Buffer.alloc(50 << 20));
  assert.throws(() => client.export(), refused(/not everything is sent/));
  socket.end();
  assert.throws(() => socket.export(), refused(/has ended/));
  const early = dormouse.connect({ ...to, port: socket.localPort });
  early.on('error', () => {});
  early.on('connect', () => setImmediate(() => early.destroy()));
  assert.throws(() => early.export(), refused(/handshake|closed/));
  await once(early, 'close');
  for (const one of [socket, client]) one.destroy();
});

test('states that are damaged or of another version', async (t) => {
  const { socket, client } = await connected(t);
  const { state, socket: plain } = socket.export();
  const wrong = { code: 'ERR_INVALID_ARG_VALUE' };
  const damaged = [Buffer.alloc(0), state.subarray(0, 3), state.subarray(0, state.length - 1), Buffer.concat([state, Buffer.alloc(1)])];
  for (let at = 0; at < state.length; at += 7) {
    // Most bytes are keys; the others are checked.
    const changed = Buffer.from(state);
    changed[at] ^= 0xff;
    try {
      dormouse.restore(changed, Object.assign(new (require('node:net').Socket)()));
    } catch (error) {
      assert.ok(['ERR_INVALID_ARG_VALUE', undefined].includes(error.code), `${at}: ${error.stack}`);
    }
  }
  for (const bytes of damaged) assert.throws(() => dormouse.restore(bytes, plain), wrong);
  const newer = Buffer.from(state);
  newer[4] = 9;
  assert.throws(() => dormouse.restore(newer, plain), { ...wrong, message: /version 9/ });
  plain.destroy();
  client.destroy();
});

test('a server restarts under load and loses no connection', { timeout: 60_000 }, async (t) => {
  const files = [write('restart-cert.pem', own.cert), write('restart-key.pem', own.key)];
  const first = spawn(process.execPath, [path.join(__dirname, '..', 'examples', 'restart.js'), ...files], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = readline.createInterface({ input: first.stdout })[Symbol.asyncIterator]();
  const serving = async () => (await lines.next()).value.split(' ').slice(1).map(Number);
  let [port, pid] = await serving();
  t.after(() => process.kill(pid));
  const clients = await Promise.all(Array.from({ length: 40 }, async () => {
    const client = tls.connect({ ...to, port });
    await once(client, 'secureConnect');
    return client;
  }));
  const pids = new Set();
  let isDone = false;
  const load = clients.map(async (client, i) => {
    let count = 0;
    for (; !isDone || count < 20; count++) {
      client.write(`${i} ${count}\n`);
      const [answer] = await once(client, 'data');
      const [, by, echoed] = /^(\d+): (.*)\n$/.exec(answer.toString());
      assert.equal(echoed, `${i} ${count}`);
      pids.add(by);
    }
    return count;
  });
  for (let restarts = 1; restarts <= 3; restarts++) {
    await new Promise((resolve) => setTimeout(resolve, 300));
    process.kill(pid, 'SIGHUP');
    const after = await serving();
    assert.equal(after[0], port);
    pid = after[1];
  }
  isDone = true;
  const counts = await Promise.all(load);
  assert.ok(counts.every((count) => count >= 20));
  assert.equal(pids.size, 4, 'four processes have served them');
  assert.ok(clients.every((client) => !client.destroyed));
  for (const client of clients) client.destroy();
});
