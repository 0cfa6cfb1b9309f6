'use strict';

// Connections that continue in another process.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const native = require('../lib/native');
const { clientByHand, first, issue, listen, readAll, sealed, write } = require('./support');

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
    assert.deepEqual([socket.servername, socket.alpnProtocol], ['localhost', 'x'], 'the getters still answer');
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

/** Waits until a paused socket has received `length` bytes. */
async function received(socket, length) {
  while (socket.readableLength < length) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Exports a connection and continues it here, as one of its server or as a client. */
function move(socket, server) {
  const { state, socket: plain } = socket.export();
  return server ? server.restore(state, plain) : dormouse.restore(state, plain);
}

test('what came with the last message of the handshake moves along', { timeout: 10_000 }, async (t) => {
  const server = dormouse.createServer(own);
  const port = await listen(t, server);
  for (const text of ['early', 'e'.repeat(50_000)]) {
    const moved = new Promise((resolve) => server.once('secureConnection', (socket) => resolve(move(socket, server))));
    const { socket, number, last } = await clientByHand(port, own.ca);
    socket.write(Buffer.concat([last, sealed(number, text.slice(0, 10_000)), sealed(number, text.slice(10_000)), native.close(number)]));
    native.release(number);
    assert.equal((await readAll(await moved)).toString(), text);
  }
});

test('listeners of the old process get nothing that moves', { timeout: 10_000 }, async (t) => {
  const { server, socket, client } = await connected(t, tls.connect);
  const old = [];
  socket.on('data', (chunk) => old.push(String(chunk)));
  socket.pause();
  client.write('unread');
  await received(socket, 6);
  const again = move(socket, server);
  client.end();
  assert.equal((await readAll(again)).toString(), 'unread');
  assert.deepEqual(old, []);
});

test('an export inside of a listener takes along all that follows', { timeout: 10_000 }, async (t) => {
  const { server, socket, client } = await connected(t, tls.connect);
  socket.pause();
  for (const [text, length] of [['one', 3], ['two', 6], ['three', 11]]) {
    client.write(text);
    await received(socket, length);
  }
  const moved = new Promise((resolve) => socket.on('data', (chunk) => resolve([String(chunk), move(socket, server)])));
  socket.resume();
  const [text, again] = await moved;
  client.end('four');
  assert.equal(text, 'one');
  assert.equal((await readAll(again)).toString(), 'twothreefour');
});

test('an export inside of onread takes along the rest and the end', { timeout: 10_000 }, async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end('0123456789')));
  const [text, again] = await new Promise((resolve) => {
    const client = dormouse.connect({
      ...to,
      port,
      onread: { buffer: Buffer.alloc(4), callback: (count, buffer) => resolve([buffer.toString('latin1', 0, count), move(client)]) },
    });
  });
  assert.equal(text, '0123');
  assert.equal((await readAll(again)).toString(), '456789');
});

test('received text must be read before an export', { timeout: 10_000 }, async (t) => {
  const { server, socket, client } = await connected(t, tls.connect);
  const refused = { code: 'ERR_TLS_INVALID_STATE', message: /setEncoding/ };
  socket.setEncoding('utf8');
  socket.pause();
  client.write('text');
  await received(socket, 4);
  assert.throws(() => socket.export(), refused);
  assert.equal(socket.read(), 'text');
  const before = socket.bytesRead;
  const [one, two] = [Buffer.from('ü').subarray(0, 1), Buffer.from('ü').subarray(1)];
  client.write(one);
  while (socket.bytesRead === before) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.throws(() => socket.export(), refused, 'half a character');
  client.write(two);
  await received(socket, 1);
  assert.equal(socket.read(), 'ü');
  const again = move(socket, server);
  client.end('later');
  assert.equal((await readAll(again)).toString(), 'later');
});

test('authorized and allowTruncation move along', { timeout: 10_000 }, async (t) => {
  const mine = issue({ cn: 'me' });
  const server = dormouse.createServer({ ...own, ca: own.ca, requestCert: true, rejectUnauthorized: false });
  const port = await listen(t, server);
  for (const [identity, authorized] of [[mine, true], [issue({ by: 'other' }), false]]) {
    const client = dormouse.connect({ ...to, port, cert: identity.cert, key: identity.key, allowTruncation: true });
    const [[socket]] = await Promise.all([once(server, 'secureConnection'), once(client, 'secureConnect')]);
    const problem = socket.authorizationError;
    const ofServer = socket.export();
    const again = server.restore(Buffer.from(ofServer.state), ofServer.socket);
    assert.deepEqual([again.authorized, again.authorizationError], [authorized, problem]);
    const restored = move(client);
    assert.equal(restored.authorized, true);
    again.destroy();
    const [event] = await first(restored.resume(), 'end', 'error');
    assert.equal(event, 'end');
    restored.destroy();

    // Before version 2 there were no flags.
    const older = Buffer.concat([ofServer.state.subarray(0, 4), Buffer.of(1), ofServer.state.subarray(6)]);
    const { number, flags } = native.restore(older.subarray(4));
    assert.equal(flags, 0);
    assert.equal(native.protocol(number), 'TLSv1.3');
    native.release(number);
  }
});

test('a connection that ended or was lost on the way', { timeout: 20_000 }, async (t) => {
  const server = dormouse.createServer({ ...own, allowHalfOpen: true });
  const port = await listen(t, server);
  const losses = [
    ['ERR_SSL_UNEXPECTED_EOF_WHILE_READING', (client) => client.destroy(), 'end'],
    ['ECONNRESET', (client) => client.resetAndDestroy(), 'close'],
  ];
  for (const [code, lose, seen] of losses) {
    const client = dormouse.connect({ ...to, port });
    const [[socket]] = await Promise.all([once(server, 'secureConnection'), once(client, 'secureConnect')]);
    client.on('error', () => {});
    // Until the client has read its tickets: with unread bytes a kernel resets the connection.
    await new Promise((resolve) => setTimeout(resolve, 50));
    const { state, socket: plain } = socket.export();
    plain.on('error', () => {});
    plain.resume();
    lose(client);
    await first(plain, seen);
    const again = server.restore(state, plain);
    const [error] = await once(again, 'error');
    assert.equal(error.code, code);
    if (!again.closed) await once(again, 'close');
    assert.equal(server._connections, 0);
  }
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
  const { server, socket, client } = await connected(t);
  const { state, socket: plain } = socket.export();
  const wrong = { code: 'ERR_INVALID_ARG_VALUE' };
  const damaged = [Buffer.alloc(0), state.subarray(0, 3), state.subarray(0, state.length - 1), Buffer.concat([state, Buffer.alloc(1)])];
  for (let at = 0; at < state.length; at += 7) {
    // Most bytes are keys; the others are checked.
    const changed = Buffer.from(state);
    changed[at] ^= 0xff;
    const carrier = net.connect(server.address().port, to.host);
    await once(carrier, 'connect');
    try {
      dormouse.restore(changed, carrier).on('error', () => {}).destroy();
    } catch (error) {
      assert.equal(error.code, 'ERR_INVALID_ARG_VALUE', `${at}: ${error.stack}`);
      carrier.destroy();
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
