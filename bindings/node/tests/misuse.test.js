'use strict';

// Use after the end, exceptions in callbacks, odd buffers, threads, garbage.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { once } = require('node:events');
const net = require('node:net');
const path = require('node:path');
const test = require('node:test');
const { promisify } = require('node:util');
const { Worker } = require('node:worker_threads');
const dormouse = require('..');
const native = require('../lib/native');
const { THROTTLED, kFlags } = require('../lib/state');
const { issue, listen, readAll } = require('./support');

const own = issue();
const to = { host: '127.0.0.1', servername: 'localhost', ca: own.ca };

async function connected(t, options = {}) {
  const server = dormouse.createServer({ ...own, ...options });
  const port = await listen(t, server);
  const client = dormouse.connect({ ...to, port });
  const [[socket]] = await Promise.all([once(server, 'secureConnection'), once(client, 'secureConnect')]);
  socket.on('error', () => {});
  client.on('error', () => {});
  return { server, socket, client };
}

test('use after destroy', async (t) => {
  const { socket, client } = await connected(t);
  const agreed = [client.servername, client.alpnProtocol, client.authorized];
  client.destroy();
  assert.equal(client.getProtocol(), null);
  assert.equal(client.getCipher(), null);
  assert.equal(client.getPeerCertificate(), null);
  assert.equal(client.getPeerX509Certificate(), undefined);
  assert.equal(client.isSessionReused(), null);
  assert.equal(client.getEphemeralKeyInfo(), null);
  assert.deepEqual([client.servername, client.alpnProtocol, client.authorized], agreed);
  assert.throws(() => client.exportKeyingMaterial(1, 'x'), { code: 'ERR_TLS_INVALID_STATE' });
  assert.throws(() => client.export(), { code: 'ERR_TLS_INVALID_STATE' });
  assert.throws(() => client.setSession(Buffer.alloc(1)), { code: 'ERR_TLS_INVALID_STATE' });
  const [error] = await new Promise((resolve) => client.write('x', (...args) => resolve(args)));
  assert.equal(error.code, 'ERR_STREAM_DESTROYED');
  client.destroy();
  client.end();
  socket.destroy();
});

test('numbers of connections that ended', () => {
  const context = dormouse.createSecureContext(own).server({});
  const number = native.accept(context);
  native.release(number);
  native.release(number);
  const next = native.accept(context);
  assert.notEqual(next, number, 'the place is used again, under another number');
  for (const call of [() => native.receive(number, Buffer.alloc(1), 1), () => native.takeOutput(number), () => native.protocol(number),
    () => native.exportConnection(number, 0), () => native.receive(2 ** 31, Buffer.alloc(1), 1)]) {
    assert.throws(call, { code: 'ERR_SOCKET_CLOSED' });
  }
  assert.throws(() => native.receive(next, 'text', 1));
  assert.throws(() => native.receive('text', Buffer.alloc(1), 1));
  assert.throws(() => native.receive(next));
  assert.throws(() => native.receive(next, Buffer.alloc(1), 2), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => native.receive(next, Buffer.alloc(1), -1), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => native.accept({}));
  assert.throws(() => native.accept(Object.create(native.ServerContext.prototype)));
  assert.throws(() => native.seal(next, Buffer.alloc(1), Buffer.alloc(100)), { code: 'ERR_TLS_INVALID_STATE' });
  assert.throws(() => native.refuse(next, 40), { code: 'ERR_TLS_INVALID_STATE' });
  assert.throws(() => native.refuse(next, 255), { code: 'ERR_INVALID_ARG_VALUE' });
  native.release(next);
});

test('writes before the handshake is done, and a connection that never comes', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.pipe(socket)));
  const client = dormouse.connect({ ...to, port });
  for (const part of ['one ', 'two ', 'three']) client.write(part);
  client.end();
  assert.equal((await readAll(client)).toString(), 'one two three');

  const closed = net.createServer().listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const gone = closed.address().port;
  closed.close();
  const never = dormouse.connect({ ...to, port: gone });
  const written = new Promise((resolve) => never.write('x', resolve));
  const [error] = await once(never, 'error');
  assert.equal(error.code, 'ECONNREFUSED');
  assert.ok(await written instanceof Error);
});

test('what can be written', async (t) => {
  const { socket, client } = await connected(t);
  const shared = new Uint8Array(new SharedArrayBuffer(3)).fill(0x73);
  const detached = new Uint8Array([1, 2, 3]);
  structuredClone(detached, { transfer: [detached.buffer] });
  assert.throws(() => client.write(detached), TypeError);
  client.write(new Uint8Array(0));
  client.write('');
  client.write(shared);
  client.write(Uint8Array.of(0x75));
  client.write('7631', 'hex');
  client.write('ü', 'latin1');
  for (const wrong of [undefined, 1, {}, [1]]) assert.throws(() => client.write(wrong), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(() => client.write(null), { code: 'ERR_STREAM_NULL_VALUES' });
  client.cork();
  for (let i = 0; i < 100; i++) client.write('.');
  client.uncork();
  client.end();
  assert.equal((await readAll(socket)).toString('latin1'), `sssuv1ü${'.'.repeat(100)}`);
});

test('destroy inside of every callback', async (t) => {
  const server = dormouse.createServer({
    ...own,
    ALPNCallback() {
      server.current.destroy();
      return 'x';
    },
  });
  server.on('connection', (socket) => {
    server.current = socket;
  });
  const failed = once(server, 'tlsClientError');
  const port = await listen(t, server);
  const client = dormouse.connect({ ...to, port, ALPNProtocols: ['x'] });
  await Promise.all([once(client, 'error'), failed]);

  for (const event of ['secureConnect', 'session', 'data', 'keylog', 'secure', 'connect', 'end']) {
    const other = dormouse.createServer(own, (socket) => {
      socket.on('error', () => {});
      socket.end('data');
    });
    const one = dormouse.connect({ ...to, port: await listen(t, other) });
    one.on('error', () => {});
    one.on(event, () => one.destroy());
    one.resume();
    await once(one, 'close');
  }
});

test('exceptions in callbacks reach the program', async () => {
  const script = `
    const dormouse = require(${JSON.stringify(path.join(__dirname, '..'))});
    const own = dormouse.selfSigned('localhost');
    const server = dormouse.createServer(own, (socket) => { socket.on('error', () => {}); socket.write('x'); });
    const seen = [];
    process.on('uncaughtException', (error) => {
      seen.push(error.message);
      if (seen.length === 2) {
        const again = dormouse.connect({ port: server.address().port, rejectUnauthorized: false }, () => {
          console.log(seen.join());
          process.exit();
        });
      }
    });
    server.listen(0, () => {
      const client = dormouse.connect({ port: server.address().port, rejectUnauthorized: false }, () => { throw new Error('one'); });
      client.on('data', () => { throw new Error('two'); });
    });`;
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', script], { timeout: 20_000 });
  assert.equal(stdout.trim(), 'one,two');
});

test('an exception of a listener makes no hole in the stream', async () => {
  const script = `
    const { once } = require('node:events');
    const { Duplex } = require('node:stream');
    const dormouse = require(${JSON.stringify(path.join(__dirname, '..'))});
    const native = require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'native'))});
    const { clientByHand, readAll, sealed } = require(${JSON.stringify(path.join(__dirname, 'support'))});
    const own = dormouse.selfSigned('localhost');
    const to = { servername: 'localhost', ca: own.cert };
    const seen = [];
    process.on('uncaughtException', (error) => seen.push(error.message));
    const fail = (message) => () => { throw new Error(message); };
    const listening = async (server) => {
      await once(server.listen(0, '127.0.0.1'), 'listening');
      return server.address().port;
    };
    (async () => {
      // The data and the end come with the end of the handshake.
      let text;
      const server = dormouse.createServer(own, (socket) => { text = readAll(socket); });
      server.on('secureConnection', fail('of the server'));
      const port = await listening(server);
      const { socket, number, last } = await clientByHand(port, own.cert);
      socket.write(Buffer.concat([last, sealed(number, 'GET'), sealed(number, ' /'), native.close(number)]));
      await once(socket, 'close');
      seen.push(await text);

      // A server that nobody has accepted.
      const greeting = dormouse.createServer(own, (accepted) => accepted.on('error', () => {}).write('x'));
      const client = dormouse.connect({ ...to, port: await listening(greeting), checkServerIdentity: fail('of the check') });
      client.on('data', fail('of data'));
      await once(client, 'close');

      // One chunk in two pieces.
      const ends = [1, 0].map((other) => new Duplex({
        read() {},
        write(chunk, encoding, done) {
          setImmediate(() => {
            done();
            ends[other].push(chunk);
          });
        },
      }));
      const over = new dormouse.TLSSocket(ends[0], { isServer: true, ...own });
      let count = 0;
      over.on('data', (data) => { count += data.length; });
      over.once('data', fail('of the data'));
      const writer = dormouse.connect({ ...to, socket: ends[1] });
      await new Promise((resolve) => writer.write(Buffer.alloc(1 << 20), resolve));
      setImmediate(() => {
        console.log([...seen, count].join());
        process.exit();
      });
    })();`;
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', script], { timeout: 20_000 });
  assert.equal(stdout.trim(), `of the server,GET /,of the check,of the data,${1 << 20}`);
});

test('a peer that forges records', async (t) => {
  const { socket, client } = await connected(t);
  client._handle.writeUtf8String({ oncomplete() {}, handle: client._handle }, 'not a record at all');
  const [error] = await once(socket, 'error');
  assert.match(error.code, /^ERR_SSL_/);
  assert.equal(socket.destroyed, true);
});

test('the first end of a connection stays', () => {
  const server = native.accept(dormouse.createSecureContext(own).server({}));
  const client = native.connect(dormouse.createSecureContext({ ca: own.ca }).client({}), 'localhost');
  native.receive(client, Buffer.alloc(0), 0);
  for (const [from, to] of [[client, server], [server, client], [client, server]]) {
    const output = native.takeOutput(from);
    native.receive(to, output, output.length);
  }
  native.takeOutput(server);
  assert.equal(native.isAtRest(server), true);
  const forged = () => Buffer.concat([Buffer.of(23, 3, 3, 0, 32), Buffer.alloc(32)]);
  native.receive(server, forged(), 37);
  native.takeOutput(server);
  const { kind, reason } = native.end(server);
  for (let i = 0; i < 2; i++) native.receive(server, forged(), 37);
  native.receiveEof(server, true);
  assert.deepEqual([native.end(server).kind, native.end(server).reason], [kind, reason]);
  for (const number of [server, client]) native.release(number);
});

test('a peer that reads no answers is not read, although the stream asks', async (t) => {
  const { socket } = await connected(t);
  const handle = socket._handle;
  const asked = () => new Promise((resolve) => setTimeout(resolve, 20));
  socket[kFlags] |= THROTTLED;
  handle.readStop();
  handle.reading = false;
  socket.push('x');
  socket.read();
  await asked();
  assert.equal(handle.reading, false);
  socket[kFlags] &= ~THROTTLED;
  socket._read(0);
  assert.equal(handle.reading, true);
});

test('a listener of a server that rejects loses its connection only', async (t) => {
  const events = require('node:events');
  events.captureRejections = true;
  const server = dormouse.createServer(own, async () => {
    throw new Error('rejected');
  });
  events.captureRejections = false;
  server.on('error', () => assert.fail('the server has not failed'));
  const port = await listen(t, server);
  const client = dormouse.connect({ ...to, port });
  client.on('error', () => {});
  const [socket] = await once(server, 'secureConnection');
  const [error] = await once(socket, 'error');
  assert.equal(error.message, 'rejected');
  client.destroy();
});

test('a client that sends on while SNICallback takes its time', async (t) => {
  const callbacks = [];
  // Without a limit on what the client sends, the timeout ends the handshake.
  const options = { ...own, handshakeTimeout: 5000, SNICallback: (name, callback) => callbacks.push(callback) };
  const server = dormouse.createServer(options);
  const port = await listen(t, server);
  const number = native.connect(dormouse.createSecureContext({ ca: own.ca }).client({}), 'localhost');
  native.receive(number, Buffer.alloc(0), 0);
  const client = net.connect(port, '127.0.0.1');
  client.on('error', () => {});
  client.write(native.takeOutput(number));
  native.release(number);
  const failed = once(server, 'tlsClientError');
  for (let i = 0; i < 10; i++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    client.write(Buffer.alloc(10_000));
  }
  const [error] = await failed;
  assert.equal(error.code, 'ERR_SSL_EXCESSIVE_MESSAGE_SIZE');
  assert.equal(callbacks.length, 1, 'it was asked once');
  callbacks[0](null);
});

test('others do not get past the engine by the handle', async (t) => {
  const { socket } = await connected(t);
  assert.equal(socket._handle.isStreamBase, false);
});

test('HTTP/2 over a connection of ours stays encrypted', async (t) => {
  const http2 = require('node:http2');
  const server = http2.createServer((request, response) => response.end('over HTTP/2'));
  const secure = dormouse.createServer({ ...own, ALPNProtocols: ['h2'] }, (socket) => server.emit('connection', socket));
  const port = await listen(t, secure);
  const session = http2.connect('https://localhost', { createConnection: () => dormouse.connect({ ...to, port, ALPNProtocols: ['h2'] }) });
  const request = session.request({ ':path': '/' });
  assert.equal((await readAll(request)).toString(), 'over HTTP/2');
  session.close();
});

test('worker threads have connections of their own', async () => {
  const script = `
    const { parentPort } = require('node:worker_threads');
    const dormouse = require(${JSON.stringify(path.join(__dirname, '..'))});
    const own = dormouse.selfSigned('localhost');
    const server = dormouse.createServer(own, (socket) => socket.pipe(socket)).listen(0, '127.0.0.1', () => {
      const client = dormouse.connect({ port: server.address().port, host: '127.0.0.1', rejectUnauthorized: false });
      client.on('data', (data) => parentPort.postMessage(data.toString()));
      client.write('from a thread');
    });`;
  const workers = [1, 2, 3].map(() => new Worker(script, { eval: true }));
  const said = await Promise.all(workers.map((worker) => once(worker, 'message')));
  assert.deepEqual(said, workers.map(() => ['from a thread']));
  // Their connections are open: the threads drop them.
  await Promise.all(workers.map((worker) => worker.terminate()));
  const other = native.accept(dormouse.createSecureContext(own).server({}));
  const [found] = await once(new Worker(`
    const { parentPort } = require('node:worker_threads');
    const native = require(${JSON.stringify(path.join(__dirname, '..', 'lib', 'native'))});
    try { native.protocol(${other}); parentPort.postMessage('found'); } catch (error) { parentPort.postMessage(error.code); }`, { eval: true }), 'message');
  assert.equal(found, 'ERR_SOCKET_CLOSED');
  native.release(other);
});
