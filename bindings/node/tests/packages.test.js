'use strict';

// Popular packages over our sockets, and as clients with our agent.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const nodeHttps = require('node:https');
const test = require('node:test');
const dormouse = require('..');
const https = require('../lib/https');
const { issue, listen, need, readAll } = require('./support');

const own = issue();

function get(options) {
  return new Promise((resolve, reject) => {
    const request = https.get({ host: '127.0.0.1', servername: 'localhost', ca: own.ca, ...options }, async (response) => {
      const { socket, statusCode: status } = response;
      resolve({ status, body: (await readAll(response)).toString(), socket });
    });
    request.on('error', reject);
  });
}

test('http.Server and https.Agent: keep-alive, chunks, pipelining, resumption', async (t) => {
  const server = https.createServer(own, (request, response) => {
    response.write(`${request.url} ${request.socket.encrypted} `);
    request.pipe(response);
  });
  const port = await listen(t, server);
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const one = await get({ port, agent, path: '/one' });
  const two = await get({ port, agent, path: '/two' });
  assert.equal(one.body, '/one true ');
  assert.equal(two.body, '/two true ');
  const fresh = new https.Agent();
  await get({ port, agent: fresh });
  const sockets = [];
  server.on('secureConnection', (socket) => sockets.push(socket.isSessionReused()));
  await get({ port, agent: fresh });
  assert.deepEqual(sockets, [true], 'the agent resumes');

  const posted = await new Promise((resolve, reject) => {
    const request = https.request({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca, method: 'POST', agent: false, createConnection: dormouse.connect },
                                  async (response) => resolve(await readAll(response)));
    request.on('error', reject);
    request.end('x'.repeat(1 << 20));
  });
  assert.equal(posted.length, (1 << 20) + 7);

  const client = dormouse.connect({ port, host: '127.0.0.1', ca: own.ca, servername: 'localhost' });
  client.write('GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  const both = (await readAll(client)).toString();
  assert.ok(both.includes('/a true') && both.includes('/b true'), both);
});

test('a URL as the argument, node:https as client, and clientError', async (t) => {
  const server = https.createServer(own, (request, response) => response.end('ok'));
  const port = await listen(t, server);
  const body = await new Promise((resolve, reject) => {
    https.get(`https://127.0.0.1:${port}/`, { ca: own.ca, servername: 'localhost' }, async (response) => resolve(String(await readAll(response)))).on('error', reject);
  });
  assert.equal(body, 'ok');
  const response = await new Promise((resolve) => nodeHttps.get({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca, agent: false }, resolve));
  assert.equal(String(await readAll(response)), 'ok');
  const stranger = dormouse.connect({ port, host: '127.0.0.1', servername: 'localhost', rejectUnauthorized: true });
  stranger.on('error', () => {});
  const [error] = await once(server, 'clientError');
  assert.equal(error.code, 'ERR_SSL_TLSV1_ALERT_UNKNOWN_CA');
});

test('requests without an agent of their own use no other TLS', { timeout: 10_000 }, async (t) => {
  const port = await listen(t, https.createServer(own, (request, response) => response.end('ok')));
  let calls = 0;
  const createConnection = (options) => {
    calls++;
    return dormouse.connect(options);
  };
  for (const options of [{}, { agent: false }, { createConnection }]) {
    const { body, socket } = await get({ port, ...options });
    assert.equal(body, 'ok');
    assert.ok(socket instanceof dormouse.TLSSocket, JSON.stringify(options));
  }
  assert.equal(calls, 1);
});

test('Agent.createConnection with a port and a host', { timeout: 10_000 }, async (t) => {
  const port = await listen(t, https.createServer(own));
  const agent = new https.Agent();
  for (const args of [[port, '127.0.0.1', { ca: own.ca, servername: 'localhost' }], [port, { host: '127.0.0.1', ca: own.ca, servername: 'localhost' }]]) {
    const socket = agent.createConnection(...args);
    await once(socket, 'secureConnect');
    assert.equal(socket.remoteAddress, '127.0.0.1');
    socket.destroy();
  }
});

// library: express | works | `createServer` of `dormouse/https`
test('express', async (t) => {
  const express = need(t, 'express');
  if (!express) return;
  const app = express();
  app.use(express.json());
  app.post('/hello', (request, response) => response.json({ ...request.body, secure: request.secure, protocol: request.protocol }));
  const port = await listen(t, https.createServer(own, app));
  const response = await new Promise((resolve, reject) => {
    const request = https.request({ port, path: '/hello', method: 'POST', host: '127.0.0.1', servername: 'localhost', ca: own.ca, agent: false,
      headers: { 'content-type': 'application/json' } }, resolve);
    request.on('error', reject);
    request.end('{"a":1}');
  });
  assert.deepEqual(JSON.parse(String(await readAll(response))), { a: 1, secure: true, protocol: 'https' });
});

// library: ws | works | `createServer` of `dormouse/https`; as a client, `ca` or the agent of `dormouse/https`
test('ws', async (t) => {
  const ws = need(t, 'ws');
  if (!ws) return;
  const server = https.createServer(own);
  const sockets = new ws.WebSocketServer({ server });
  sockets.on('connection', (socket) => socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })));
  const port = await listen(t, server);
  for (const options of [{ agent: new https.Agent() }, {}]) {
    const client = new ws.WebSocket(`wss://127.0.0.1:${port}/`, { ca: own.ca, servername: 'localhost', ...options });
    await once(client, 'open');
    for (const sent of [Buffer.from('small'), Buffer.alloc(3 << 20, 1)]) {
      client.send(sent);
      const [received] = await once(client, 'message');
      assert.ok(received.equals(sent));
    }
    client.close();
    await once(client, 'close');
  }
});

// library: socket.io, socket.io-client | works | `createServer` of `dormouse/https`; the client uses `node:tls`
test('socket.io', async (t) => {
  const io = need(t, 'socket.io');
  const connect = io && need(t, 'socket.io-client');
  if (!connect) return;
  const server = https.createServer(own);
  const ofServer = new io.Server(server);
  ofServer.on('connection', (socket) => socket.on('hello', (data, answer) => answer(`hello ${data}`)));
  const port = await listen(t, server);
  for (const transports of [['polling'], ['websocket'], ['polling', 'websocket']]) {
    const client = connect.io(`https://localhost:${port}`, { ca: own.ca, transports, forceNew: true });
    t.after(() => client.close());
    assert.equal(await client.emitWithAck('hello', transports.length), `hello ${transports.length}`);
    client.close();
  }
  ofServer.close();
});

// library: aedes, MQTT.js | works | `dormouse.createServer(options, broker.handle)`; the client uses `node:tls`
test('MQTT: aedes', async (t) => {
  const aedes = need(t, 'aedes');
  const mqtt = aedes && need(t, 'mqtt');
  if (!mqtt) return;
  const broker = aedes.createBroker ? aedes.createBroker() : new aedes.Aedes();
  t.after(() => broker.close());
  const server = dormouse.createServer(own, broker.handle);
  const port = await listen(t, server);
  const client = mqtt.connect({ port, host: '127.0.0.1', protocol: 'mqtts', ca: own.ca, servername: 'localhost', reconnectPeriod: 0 });
  t.after(() => client.end(true));
  await once(client, 'connect');
  await client.subscribeAsync('a/+');
  client.publish('a/b', 'hello');
  const [topic, message] = await once(client, 'message');
  assert.deepEqual([topic, message.toString()], ['a/b', 'hello']);
});
