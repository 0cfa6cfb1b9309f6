'use strict';

// What users of node:tls have reported of their programs: sockets that were used before TLS, or that are gone already, and
// calls in an unusual order. Each must go as with node:tls, or better.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const net = require('node:net');
const { Duplex } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const test = require('node:test');
const tls = require('node:tls');
const v8 = require('node:v8');
const vm = require('node:vm');
const dormouse = require('..');
const native = require('../lib/native');
const { kNumber } = require('../lib/state');
const { first, issue, listen, readAll } = require('./support');

const own = issue();
const to = { host: '127.0.0.1', servername: 'localhost', ca: own.ca };

/** Starts a server of plaintext that begins TLS after the first bytes, and answers with what it gets. */
function upgrading(t, prepare, begin) {
  return listen(t, net.createServer((plain) => {
    prepare(plain);
    plain.once('data', () => plain.write('go', () => {
      const secure = new dormouse.TLSSocket(plain, { isServer: true, ...own });
      secure.on('error', () => {});
      begin?.(secure, plain);
      secure.pipe(secure);
    }));
  }));
}

for (const encoding of ['utf8', 'latin1', 'hex']) {
  test(`STARTTLS on a socket with setEncoding('${encoding}')`, { timeout: 20_000 }, async (t) => {
    const seen = [];
    const port = await upgrading(t, (plain) => {
      plain.setEncoding(encoding);
      plain.on('data', (text) => seen.push(text));
    });
    const plain = net.connect(port, '127.0.0.1');
    plain.setEncoding(encoding);
    const heard = [];
    plain.on('data', (text) => heard.push(text));
    plain.write('STARTTLS');
    await once(plain, 'data');
    const client = dormouse.connect({ socket: plain, ...to });
    const all = readAll(client);
    client.end(Buffer.alloc(3_000_000, 'ä'));
    assert.equal((await all).length, 3_000_000);
    // The listeners of the plaintext get nothing of the ciphertext.
    assert.deepEqual([seen, heard], [[Buffer.from('STARTTLS').toString(encoding)], [Buffer.from('go').toString(encoding)]]);
    if (!plain.closed) await once(plain, 'close');
  });
}

test('what the program does with the plain socket below does not disturb TLS', { timeout: 20_000 }, async (t) => {
  const port = await upgrading(t, (plain) => plain.on('readable', () => {
    while (plain.read() !== null);
  }));
  const plain = net.connect(port, '127.0.0.1');
  plain.write('STARTTLS');
  await once(plain, 'data');
  const client = dormouse.connect({ socket: plain, ...to });
  let timeouts = 0;
  plain.setTimeout(10_000, () => timeouts++);
  client.write('one');
  assert.equal((await once(client, 'data')).toString(), 'one');
  plain.pause();
  client.write('two');
  assert.equal((await once(client, 'data')).toString(), 'two');
  assert.ok(plain.bytesRead > 0 && timeouts === 0);
  client.end();
  await once(client, 'close');
  assert.ok(plain.destroyed);
});

test('a stream of texts is an error, over any other stream', async () => {
  const stream = new Duplex({ read() {}, write: (chunk, encoding, callback) => callback() });
  stream.setEncoding('utf8');
  const client = dormouse.connect({ socket: stream, ...to });
  setImmediate(() => stream.push(Buffer.from('text')));
  const [error] = await once(client, 'error');
  assert.equal(error.code, 'ERR_STREAM_WRAP');
});

test('a program that pauses TLS over a used socket gets nothing until it resumes', { timeout: 20_000 }, async (t) => {
  let other;
  const port = await upgrading(t, () => {}, (secure) => (other = secure));
  const plain = net.connect(port, '127.0.0.1');
  plain.write('STARTTLS');
  await once(plain, 'data');
  const client = dormouse.connect({ socket: plain, ...to });
  await once(client, 'secureConnect');
  client.pause();
  const sent = Buffer.alloc(20_000_000, 'x');
  client.end(sent);
  // The echo fills all buffers on the way back.
  const idle = () => new Promise((resolve) => setTimeout(resolve, 100));
  for (let before = -1; before !== client.writableLength + other.writableLength; await idle()) before = client.writableLength + other.writableLength;
  assert.ok(client.readableLength < 1_000_000, `${client.readableLength} bytes wait in the paused socket`);
  assert.equal((await readAll(client)).length, sent.length);
});

test('TLS over a socket that is gone already', { timeout: 10_000 }, async (t) => {
  const peers = new Map();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    peers.set(socket.remotePort, socket);
    socket.on('error', () => {});
  });
  const port = await listen(t, server);
  const begin = {
    client: (socket) => dormouse.connect({ socket, ...to }),
    server: (socket) => new dormouse.TLSSocket(socket, { isServer: true, ...own }),
  };
  for (const [side, over] of Object.entries(begin)) {
    const destroyed = net.connect(port, '127.0.0.1');
    await once(destroyed, 'connect');
    destroyed.destroy();
    await once(destroyed, 'close');
    const ended = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    await once(ended, 'connect');
    // The server may get the destroyed one's connection later than this.
    while (!peers.has(ended.localPort)) await once(server, 'connection');
    peers.get(ended.localPort).end();
    ended.resume();
    await once(ended, 'end');
    assert.equal(ended.destroyed, false);
    for (const [what, socket] of Object.entries({ destroyed, ended })) {
      const secure = over(socket);
      const closed = first(secure, 'close');
      const [, error] = await first(secure, 'error');
      assert.equal(error.code, 'ECONNRESET', `${side}, ${what}`);
      await closed;
    }
  }
});

test('TLS over a socket that the program connects later', { timeout: 10_000 }, async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.pipe(socket)));
  const plain = new net.Socket();
  const client = dormouse.connect({ socket: plain, ...to });
  client.end('hello');
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(client.connecting, true);
  plain.connect(port, '127.0.0.1');
  assert.equal((await readAll(client)).toString(), 'hello');
  const never = new net.Socket();
  const without = dormouse.connect({ socket: never, ...to });
  never.destroy();
  await once(without, 'close');
});

test('the error of the stream below ends the handshake', async () => {
  const stream = new Duplex({ read() {}, write: (chunk, encoding, callback) => callback() });
  const client = dormouse.connect({ socket: stream, ...to });
  setImmediate(() => stream.destroy(new Error('below')));
  const [error] = await once(client, 'error');
  assert.equal(error.message, 'below');
});

for (const [what, bad] of [['refuses', '127.0.0.9'], ['does not answer', '192.0.2.1']]) {
  test(`the first address of a name ${what}`, { timeout: 20_000 }, async (t) => {
    const port = await listen(t, dormouse.createServer(own, (socket) => socket.pipe(socket)));
    const addresses = [{ address: bad, family: 4 }, { address: '127.0.0.1', family: 4 }];
    const client = dormouse.connect({
      ...to, host: 'localhost', port, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: 50, lookup: (name, options, found) => found(null, addresses),
    });
    client.once('secureConnect', () => client.end('hello'));
    assert.equal((await readAll(client)).toString(), 'hello');
  });
}

test('everything is written, and our direction ended, before the handshake', { timeout: 10_000 }, async (t) => {
  const port = await listen(t, dormouse.createServer({ ...own, allowHalfOpen: true }, async (socket) => socket.end(await readAll(socket))));
  const client = dormouse.connect({ ...to, port, allowHalfOpen: true });
  client.cork();
  client.write('a');
  client.write('b', 'latin1');
  client.write(Buffer.alloc(0));
  process.nextTick(() => {
    client.uncork();
    client.end('c');
  });
  assert.equal((await readAll(client)).toString(), 'abc');
});

test('pipeline(), for await and web streams', { timeout: 20_000 }, async (t) => {
  const server = dormouse.createServer({ ...own, allowHalfOpen: true }, (socket) => pipeline(socket, socket).catch(() => {}));
  const port = await listen(t, server);
  const client = dormouse.connect({ ...to, port, allowHalfOpen: true });
  client.end(Buffer.alloc(3_000_000));
  let count = 0;
  for await (const chunk of client) count += chunk.length;
  assert.equal(count, 3_000_000);
  const { readable, writable } = Duplex.toWeb(dormouse.connect({ ...to, port }));
  const writer = writable.getWriter();
  await writer.write(Buffer.from('web'));
  const reader = readable.getReader();
  assert.equal(Buffer.from((await reader.read()).value).toString(), 'web');
  await writer.close();
  assert.equal((await reader.read()).done, true);
});

test('leaving a loop over the socket destroys it', { timeout: 10_000 }, async (t) => {
  let closed;
  const port = await listen(t, dormouse.createServer(own, (socket) => {
    closed = first(socket, 'close');
    socket.write(Buffer.alloc(5_000_000));
  }));
  const client = dormouse.connect({ ...to, port });
  for await (const chunk of client) {
    assert.ok(chunk.length > 0);
    break;
  }
  assert.equal(client.destroyed, true);
  await closed;
});

test('a client that `new TLSSocket` makes verifies the name of the host to which its socket has connected', async (t) => {
  const other = issue({ names: ['DNS:other.test'], cn: 'other.test' });
  const verified = async (identity, host) => {
    const port = await listen(t, tls.createServer({ ...identity, handshakeTimeout: 5_000 }, (socket) => socket.on('error', () => {})));
    const plain = net.connect(port, host);
    await once(plain, 'connect');
    const secure = new dormouse.TLSSocket(plain, { ca: own.ca });
    secure._start();
    const [event, error] = await first(secure, 'secure', 'error');
    const outcome = event === 'secure' ? secure.ssl.verifyError() : error.code;
    if (event === 'secure') assert.ok(secure.ssl.fd > 0);
    secure.destroy();
    assert.equal(secure.ssl, null);
    return outcome;
  };
  assert.equal(await verified(own, 'localhost'), null);
  assert.equal(await verified(own, '127.0.0.1'), null);
  assert.equal(await verified(other, 'localhost'), 'ERR_TLS_CERT_ALTNAME_INVALID');
});

test('verifyError() says "verified" of a verified peer only', { timeout: 20_000 }, async (t) => {
  const verified = async (more) => {
    const server = net.createServer();
    const port = await listen(t, server);
    const client = dormouse.connect({ port, ...to, ...more.client });
    client.on('error', () => {});
    const [[plain]] = await Promise.all([once(server, 'connection'), once(client, 'connect')]);
    const secure = new dormouse.TLSSocket(plain, { isServer: true, ...own, ...more.server });
    const codes = () => [secure, client].map((one) => one.ssl.verifyError()?.code);
    await new Promise(process.nextTick);
    const before = codes();
    await Promise.all([once(secure, 'secure'), once(client, 'secure')]);
    const after = codes();
    client.destroy();
    return [...before, ...after];
  };
  const none = 'UNABLE_TO_GET_ISSUER_CERT';
  assert.deepEqual(await verified({}), [none, none, none, undefined]);
  const asks = { requestCert: true, ca: own.ca };
  assert.deepEqual(await verified({ server: { ...asks, rejectUnauthorized: false } }), [none, none, none, undefined]);
  assert.deepEqual(await verified({ server: asks, client: { cert: own.cert, key: own.key } }), [none, none, undefined, undefined]);
  const untrusted = { servername: 'other.test', rejectUnauthorized: false };
  assert.deepEqual(await verified({ client: untrusted }), [none, none, none, 'ERR_TLS_CERT_ALTNAME_INVALID']);
});

/** A net.Socket without a handle, whose bytes come from JavaScript, as those of tunnels do. */
class Tunnel extends net.Socket {
  constructor(options) {
    super(options);
    this._writev = null;
  }

  _read() {}

  _write(chunk, encoding, callback) {
    this.sent.push([chunk, Buffer.from(chunk)]);
    this.other.push(chunk);
    callback();
  }
}

test('TLS over a subclass of net.Socket that is a stream of JavaScript', { timeout: 10_000 }, async () => {
  const [a, b] = [new Tunnel(), new Tunnel()];
  Object.assign(a, { other: b, sent: [] });
  Object.assign(b, { other: a, sent: [] });
  const server = new dormouse.TLSSocket(a, { isServer: true, ...own });
  const client = dormouse.connect({ socket: b, ...to });
  server.pipe(server);
  client.write('one');
  assert.equal((await once(client, 'data')).toString(), 'one');
  // It is not opened in place, because it belongs to others.
  for (const [chunk, before] of [...a.sent, ...b.sent]) assert.ok(chunk.equals(before));
  const failed = once(client, 'error');
  b.setEncoding('latin1');
  b.push('text', 'latin1');
  assert.equal((await failed)[0].code, 'ERR_STREAM_WRAP');
});

test('a stream that gives no bytes is an error', { timeout: 10_000 }, async () => {
  for (const chunk of ['text', { an: 'object' }, 7]) {
    const stream = new Duplex({ objectMode: true, read() {}, write: (ignored, encoding, callback) => callback() });
    const client = dormouse.connect({ socket: stream, ...to });
    setImmediate(() => stream.push(chunk));
    const [error] = await once(client, 'error');
    assert.equal(error.code, 'ERR_STREAM_WRAP');
  }
});

for (const kind of ['a buffer', 'a function']) {
  test(`STARTTLS on a socket with onread and ${kind}`, { timeout: 20_000 }, async (t) => {
    const port = await upgrading(t, () => {});
    const heard = [];
    let isReady;
    const ready = new Promise((resolve) => (isReady = resolve));
    const plain = net.connect({
      port,
      host: '127.0.0.1',
      onread: {
        buffer: kind === 'a buffer' ? Buffer.alloc(1000) : () => Buffer.alloc(1000),
        callback(length, buffer) {
          heard.push(buffer.toString('latin1', 0, length));
          isReady();
        },
      },
    });
    plain.write('STARTTLS');
    await ready;
    const client = dormouse.connect({ socket: plain, ...to });
    const all = readAll(client);
    client.end(Buffer.alloc(100_000, 'x'));
    assert.equal((await all).length, 100_000);
    assert.deepEqual(heard, ['go']);
  });
}

test('a plain socket that connects again after TLS reads plaintext', { timeout: 20_000 }, async (t) => {
  const port = await upgrading(t, () => {});
  const other = await listen(t, net.createServer((socket) => socket.end('hello')));
  const plain = net.connect(port, '127.0.0.1');
  for (let i = 0; i < 2; i++) {
    plain.write('STARTTLS');
    await once(plain, 'data');
    const client = dormouse.connect({ socket: plain, ...to });
    const all = readAll(client);
    client.end('bye');
    assert.equal((await all).toString(), 'bye');
    if (!plain.closed) await once(plain, 'close');
    plain.connect(other, '127.0.0.1');
    const [text] = await once(plain, 'data');
    assert.equal(text.toString(), 'hello');
    await once(plain, 'close');
    plain.connect(port, '127.0.0.1');
  }
  plain.destroy();
});

test('server.close(), getConnections() and maxConnections count connections of TLS', { timeout: 10_000 }, async (t) => {
  const server = dormouse.createServer(own, (socket) => socket.pipe(socket));
  server.maxConnections = 1;
  const port = await listen(t, server);
  const client = dormouse.connect({ ...to, port });
  await once(client, 'secureConnect');
  const count = () => new Promise((resolve, reject) => server.getConnections((error, found) => (error ? reject(error) : resolve(found))));
  assert.equal(await count(), 1);
  const dropped = once(server, 'drop');
  const second = dormouse.connect({ ...to, port });
  assert.equal((await once(second, 'error'))[0].code, 'ECONNRESET');
  await dropped;
  let isClosed = false;
  const closed = new Promise((resolve) => server.close(() => resolve(isClosed = true)));
  client.write('still');
  assert.equal((await once(client, 'data')).toString(), 'still');
  assert.equal(isClosed, false);
  client.end();
  await closed;
  server.close = (callback) => callback();
});

/** Two streams, each of which gets what is written to the other. */
function pair() {
  const one = () => new Duplex({
    read() {},
    write(chunk, encoding, callback) {
      this.other.push(chunk);
      callback();
    },
  });
  const [a, b] = [one(), one()];
  [a.other, b.other] = [b, a];
  return [a, b];
}

test('a connection that its program forgets, over streams of JavaScript, is released with its streams', { timeout: 20_000 }, async () => {
  const numbers = await (async () => {
    const [a, b] = pair();
    const server = new dormouse.TLSSocket(a, { isServer: true, ...own });
    const client = dormouse.connect({ socket: b, ...to });
    client.write('x');
    await once(server, 'data');
    return [server[kNumber], client[kNumber]];
  })();
  v8.setFlagsFromString('--expose-gc');
  const collect = vm.runInNewContext('gc');
  const isThere = (number) => {
    try {
      return native.protocol(number) === 'TLSv1.3';
    } catch {
      return false;
    }
  };
  assert.ok(numbers.every(isThere));
  while (numbers.some(isThere)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    collect();
  }
});
