'use strict';

// node:http2 over TLSSockets: both sides see what they see over those of node:tls.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const http2 = require('node:http2');
const net = require('node:net');
const { Duplex } = require('node:stream');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const { issue, listen } = require('./support');

const own = issue();
const visitor = issue({ cn: 'visitor' });

const PROPERTIES = [
  'encrypted', 'alpnProtocol', 'authorized', 'authorizationError', 'servername', 'secureConnecting',
  'remoteAddress', 'remoteFamily', 'localAddress',
];

/** Describes a socket as a program of http2 gets it. */
function shown(socket, session) {
  const { subject } = socket.getPeerCertificate();
  return {
    ...Object.fromEntries(PROPERTIES.map((name) => [name, socket[name]])),
    port: typeof socket.remotePort,
    peer: subject.CN,
    protocol: socket.getProtocol(),
    session: [session.encrypted, session.alpnProtocol, session.originSet.length],
  };
}

/** The two halves of a stream that has no handle. */
function duplexes() {
  const halves = [];
  for (const i of [0, 1]) {
    halves.push(new Duplex({
      read() {},
      write(chunk, encoding, callback) {
        halves[1 - i].push(chunk);
        callback();
      },
      final(callback) {
        halves[1 - i].push(null);
        callback();
      },
    }));
  }
  return halves;
}

const WAYS = {
  'by createServer()': async (t, module, settings, toServer) => {
    const port = await listen(t, module.createServer({ ...settings, ALPNProtocols: ['h2'] }, toServer));
    return { port, host: '127.0.0.1' };
  },
  'by ALPNCallback, the client over another socket': async (t, module, settings, toServer) => {
    const port = await listen(t, module.createServer({ ...settings, ALPNCallback: () => 'h2' }, toServer));
    return { socket: net.connect(port, '127.0.0.1') };
  },
  'over streams without a handle': async (t, module, settings, toServer) => {
    const [near, far] = duplexes();
    module.createServer({ ...settings, ALPNProtocols: ['h2'] }, toServer).emit('connection', far);
    return { socket: near };
  },
};

async function seenBy(t, module, way) {
  const seen = {};
  const server = http2.createServer((request, response) => {
    seen.server = shown(request.socket, request.stream.session);
    seen.scheme = request.scheme;
    response.end('answer');
  });
  const settings = { ...own, requestCert: true };
  const where = await way(t, module, settings, (socket) => server.emit('connection', socket));
  const createConnection = () => module.connect({ ...where, ...visitor, servername: 'localhost', ALPNProtocols: ['h2'] });
  const client = http2.connect('https://localhost', { createConnection });
  t.after(() => client.destroy());
  await once(client, 'connect');
  const request = client.request({ ':path': '/' });
  request.setEncoding('utf8');
  seen.body = (await request.toArray()).join('');
  seen.client = shown(client.socket, client);
  return seen;
}

for (const [name, way] of Object.entries(WAYS)) {
  test(`HTTP/2 ${name}: sockets and sessions show what they show with node:tls`, async (t) => {
    const ours = await seenBy(t, dormouse, way);
    assert.deepEqual(ours, await seenBy(t, tls, way));
    assert.deepEqual([ours.body, ours.server.alpnProtocol, ours.client.encrypted], ['answer', 'h2', true]);
  });
}

test('an HTTP/2 client reports a handshake that fails', async (t) => {
  const port = await listen(t, dormouse.createServer({ ...own, ALPNProtocols: ['h2'] }));
  const createConnection = () => dormouse.connect({ port, host: '127.0.0.1', servername: 'elsewhere', ca: own.ca, ALPNProtocols: ['h2'] });
  const client = http2.connect('https://elsewhere', { createConnection });
  const [error] = await once(client, 'error');
  assert.equal(error.code, 'ERR_TLS_CERT_ALTNAME_INVALID');
});

test('sockets that lie under other streams are as before', async () => {
  const client = http2.connect('http://localhost', { createConnection: () => duplexes()[0] });
  assert.equal(client.socket.encrypted, undefined);
  assert.equal(client.socket.remoteAddress, undefined);
  await once(client, 'connect');
  assert.deepEqual([client.encrypted, client.alpnProtocol], [false, 'h2c']);
  client.destroy();
});
