'use strict';

// How connections end: the events of both sides, beside those of node:tls.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const net = require('node:net');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const { first, issue, listen, readAll } = require('./support');

const own = issue();
const TRUNCATED = 'ERR_SSL_UNEXPECTED_EOF_WHILE_READING';

/** Notes the events of a socket. */
function watched(socket, name, events) {
  const list = events[name] = [];
  socket.on('end', () => list.push('end'));
  socket.on('error', (error) => list.push(`error ${error.code ?? error.message}`));
  socket.on('close', (hadError) => list.push(`close ${hadError}`));
  socket.resume();
  return socket;
}

/**
 * Establishes a connection through a proxy, lets `act` end it, and returns the events of both sides. `isOver`: the client
 * lies over another socket. `cuts`: the proxy passes on nothing more to the client, and answers its end by an end.
 */
async function eventsOf(t, module, act, { isOver = false, cuts = false } = {}) {
  const events = {};
  const server = module.createServer(own);
  const accepted = once(server, 'secureConnection');
  server.prependListener('secureConnection', (socket) => watched(socket, 'server', events));
  const to = await listen(t, server);
  let isCut = false;
  const relay = net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect(to, '127.0.0.1');
    for (const [from, into] of [[near, far], [far, near]]) {
      from.on('error', () => {});
      from.on('data', (chunk) => {
        if (from === near || !isCut) into.write(chunk);
      });
      from.on('close', () => into.destroy());
    }
    near.on('end', () => {
      if (cuts) near.end();
      else far.end();
    });
    far.on('end', () => {
      if (!isCut) near.end();
    });
  });
  const port = await listen(t, relay);
  const relayed = once(relay, 'connection');
  const where = isOver ? { socket: net.connect(port, '127.0.0.1') } : { port, host: '127.0.0.1' };
  const client = watched(module.connect({ ...where, servername: 'localhost', ca: own.ca }), 'client', events);
  const [[peer], [near]] = await Promise.all([accepted, relayed, once(client, 'secureConnect')]);
  const closed = Promise.all([first(client, 'close'), first(peer, 'close')]);
  isCut = cuts;
  act({ client, server: peer, near });
  await closed;
  return events;
}

const LIKE_NODE = {
  'the client destroys its socket': ({ client }) => client.destroy(),
  'the server destroys its socket': ({ server }) => server.destroy(),
  'the client destroys its socket after a write': ({ client }) => {
    client.write('last words');
    client.destroy();
  },
  'the client ends': ({ client }) => client.end('last words'),
  'the server ends': ({ server }) => server.end('last words'),
};
for (const [name, act] of Object.entries(LIKE_NODE)) {
  for (const isOver of [false, true]) {
    test(`${name}${isOver ? ', over another socket' : ''}: the events are those of node:tls`, async (t) => {
      assert.deepEqual(await eventsOf(t, dormouse, act, { isOver }), await eventsOf(t, tls, act, { isOver }));
    });
  }
}

test("after end(), a peer's end without close_notify is a proper one", async (t) => {
  const act = ({ client }) => client.end();
  for (const isOver of [false, true]) {
    const { client } = await eventsOf(t, dormouse, act, { isOver, cuts: true });
    assert.deepEqual(client, ['end', 'close false']);
    assert.deepEqual(client, (await eventsOf(t, tls, act, { isOver, cuts: true })).client);
  }
});

test('after end(), an end in the middle of a record is a truncation', async (t) => {
  const act = ({ client, near }) => {
    client.end();
    near.write(Buffer.from([23, 3, 3, 0, 100, 1, 2, 3]));
  };
  const { client } = await eventsOf(t, dormouse, act, { cuts: true });
  assert.deepEqual(client, [`error ${TRUNCATED}`, 'close true']);
});

test('a socket that is destroyed with an error, or with unsent bytes, sends no close_notify', async (t) => {
  const withError = await eventsOf(t, dormouse, ({ server }) => server.destroy(new Error('half an answer')));
  assert.deepEqual(withError, {
    server: ['error half an answer', 'close true'],
    client: [`error ${TRUNCATED}`, 'close true'],
  });
  const unsent = await eventsOf(t, dormouse, ({ server }) => {
    server.write(Buffer.alloc(1 << 26));
    server.destroy();
  });
  assert.deepEqual(unsent.client, [`error ${TRUNCATED}`, 'close true']);
});

test("'close' says whether there was an error", async (t) => {
  const reset = ({ near }) => near.resetAndDestroy();
  for (const isOver of [false, true]) {
    for (const module of [dormouse, tls]) {
      const { client } = await eventsOf(t, module, reset, { isOver });
      assert.deepEqual(client, ['error ECONNRESET', 'close true']);
    }
    const { client } = await eventsOf(t, dormouse, ({ near }) => near.end(), { isOver });
    assert.deepEqual(client, [`error ${TRUNCATED}`, 'close true']);
  }
  // Before the handshake is done.
  for (const module of [dormouse, tls]) {
    const events = {};
    const server = module.createServer(own);
    const failed = once(server, 'tlsClientError');
    server.once('tlsClientError', (_, socket) => watched(socket, 'server', events));
    const plain = net.connect(await listen(t, server), '127.0.0.1');
    plain.on('error', () => {});
    plain.write('GET / HTTP/1.1\r\n\r\n');
    const [error, socket] = await failed;
    assert.equal(error.code, 'ERR_SSL_HTTP_REQUEST');
    await once(socket, 'close');
    assert.deepEqual(events.server, ['close true']);
  }
});

test('a server that destroys its socket after an answer does not truncate it', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => {
    socket.once('data', () => socket.write('answer', () => socket.destroy()));
  }));
  const client = dormouse.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca });
  client.write('question');
  assert.equal((await readAll(client)).toString(), 'answer');
});
