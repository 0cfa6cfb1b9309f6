'use strict';

// More packages of others: their smallest use over TLS. Some get the package's own functions, the others `node:tls` with
// this package in its place.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const test = require('node:test');
const https = require('../lib/https');
const { inPlace, issue, listen, need } = require('./support');

const own = issue();

/** What a server of the package answers to a GET. */
async function fetched(port, path = '/') {
  const [response] = await once(https.get({ port, path, host: '127.0.0.1', servername: 'localhost', ca: own.ca, agent: false }), 'response');
  return (await response.setEncoding('utf8').toArray()).join('');
}

// Servers

// library: fastify | works | `serverFactory` with `createServer` of `dormouse/https`
test('fastify', async (t) => {
  const fastify = need(t, 'fastify');
  if (!fastify) return;
  const app = fastify({ serverFactory: (handler) => https.createServer(own, handler) });
  app.get('/', (request, reply) => reply.send(request.protocol));
  t.after(() => app.close());
  await app.listen({ port: 0, host: '127.0.0.1' });
  assert.equal(await fetched(app.server.address().port), 'https');
});

// library: koa | works | `createServer` of `dormouse/https`
test('koa', async (t) => {
  const Koa = need(t, 'koa');
  if (!Koa) return;
  const app = new Koa();
  app.use((context) => {
    context.body = `${context.protocol} ${context.secure}`;
  });
  const port = await listen(t, https.createServer(own, app.callback()));
  assert.equal(await fetched(port), 'https true');
});

// library: hapi | works | `listener: https.createServer(…)` of `dormouse/https`, `tls: true`
test('hapi', async (t) => {
  const hapi = need(t, '@hapi/hapi');
  if (!hapi) return;
  const app = hapi.server({ listener: https.createServer(own), tls: true, port: 0, host: '127.0.0.1' });
  app.route({ method: 'GET', path: '/', handler: (request) => request.server.info.protocol });
  t.after(() => app.stop());
  await app.start();
  assert.equal(await fetched(app.info.port), 'https');
});

// library: http-proxy | works | `createServer` of `dormouse/https`; the agent of `dormouse/https`
test('http-proxy', async (t) => {
  const proxies = need(t, 'http-proxy');
  if (!proxies) return;
  const behind = await listen(t, https.createServer(own, (request, response) => response.end(`behind ${request.headers['x-forwarded-proto']}`)));
  const agent = new https.Agent({ ca: own.ca, servername: 'localhost' });
  const proxy = proxies.createProxyServer({ target: `https://127.0.0.1:${behind}`, agent, xfwd: true });
  t.after(() => agent.destroy());
  const port = await listen(t, https.createServer(own, (request, response) => proxy.web(request, response)));
  assert.equal(await fetched(port), 'behind https');
});

// Clients with the package's agent

/** Imports an ES module, or skips the test. */
function imported(t, name) {
  return import(name).catch((error) => {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    t.skip(`the npm package ${name} is not installed`);
  });
}

/** Calls `ask` with the URL of a server, whose answer says whether the client's socket was of this package. */
async function asked(t, ask) {
  const port = await listen(t, https.createServer(own, (request, response) => response.end('hello')));
  const agent = new https.Agent({ ca: own.ca, servername: 'localhost' });
  t.after(() => agent.destroy());
  let made = 0;
  const createConnection = agent.createConnection;
  agent.createConnection = (...args) => {
    made++;
    return createConnection.apply(agent, args);
  };
  assert.equal(await ask(`https://127.0.0.1:${port}/`, agent), 'hello');
  assert.equal(made, 1);
}

// library: axios | works | the agent of `dormouse/https` as `httpsAgent`
test('axios', async (t) => {
  const axios = need(t, 'axios');
  if (axios) await asked(t, async (url, httpsAgent) => (await axios.get(url, { httpsAgent })).data);
});

// library: got | works | the agent of `dormouse/https` as `agent.https`
test('got', async (t) => {
  const module = await imported(t, 'got');
  if (module) await asked(t, async (url, agent) => (await module.got(url, { agent: { https: agent } })).body);
});

// library: node-fetch | works | the agent of `dormouse/https` as `agent`
test('node-fetch', async (t) => {
  const module = await imported(t, 'node-fetch');
  if (module) await asked(t, async (url, agent) => (await module.default(url, { agent })).text());
});

// library: superagent | works | the agent of `dormouse/https` by `.agent()`
test('superagent', async (t) => {
  const superagent = need(t, 'superagent');
  if (superagent) await asked(t, async (url, agent) => (await superagent.get(url).agent(agent).buffer(true).parse(superagent.parse.text)).text);
});

// Programs that are not changed

// library: undici, fetch | works | `dormouse/register`
test('undici', (t) => need(t, 'undici') && inPlace('undici', `
const { Agent, request } = require('undici');
const server = require('https').createServer(own, (request, response) => response.end(String(request.socket instanceof dormouse.TLSSocket)));
const port = await listening(server);
const dispatcher = new Agent({ connect: { ca: own.ca, servername: 'localhost' } });
const { body } = await request('https://127.0.0.1:' + port, { dispatcher });
assert.equal(await body.text(), 'true');
assert.deepEqual(warnings, []);
`));

// library: ldapjs | works | `dormouse/register`, server and client
test('ldapjs', (t) => need(t, 'ldapjs') && inPlace('ldapjs', `
const ldap = require('ldapjs');
const server = ldap.createServer({ certificate: own.cert, key: own.key });
server.bind('cn=root', (request, response, next) => {
  response.end();
  return next();
});
server.listen(0, '127.0.0.1');
await once(server.server, 'listening');
const client = ldap.createClient({ url: 'ldaps://localhost:' + server.server.address().port, tlsOptions: { ca: own.ca, host: '127.0.0.1', servername: 'localhost' } });
client.on('error', (error) => assert.fail(error));
await new Promise((resolve, reject) => client.bind('cn=root', 'secret', (error) => error ? reject(error) : resolve()));
assert.deepEqual(warnings, []);
`));

// library: grpc-js | works | `dormouse/register`, server and client
test('grpc-js', (t) => need(t, '@grpc/grpc-js') && inPlace('grpc', `
const grpc = require('@grpc/grpc-js');
const raw = { requestSerialize: Buffer.from, requestDeserialize: Buffer.from, responseSerialize: Buffer.from, responseDeserialize: Buffer.from };
const service = { echo: { path: '/test/echo', requestStream: false, responseStream: false, ...raw } };
const server = new grpc.Server();
server.addService(service, { echo: (call, done) => done(null, Buffer.concat([Buffer.from('hello '), call.request])) });
const credentials = grpc.ServerCredentials.createSsl(null, [{ cert_chain: Buffer.from(own.cert), private_key: Buffer.from(own.key) }]);
const port = await new Promise((resolve, reject) => server.bindAsync('127.0.0.1:0', credentials, (error, port) => error ? reject(error) : resolve(port)));
const Client = grpc.makeGenericClientConstructor(service, 'test');
const client = new Client('127.0.0.1:' + port, grpc.credentials.createSsl(Buffer.from(own.ca)), { 'grpc.ssl_target_name_override': 'localhost' });
const answer = await new Promise((resolve, reject) => client.echo(Buffer.from('x'), (error, answer) => error ? reject(error) : resolve(answer)));
assert.equal(String(answer), 'hello x');
client.close();
server.forceShutdown();
assert.deepEqual(warnings, []);
`));

/** A server that answers as little as a client of Redis needs. */
const REDIS = `
const server = require('tls').createServer(own, (socket) => {
  socket.on('error', () => {});
  socket.on('data', (data) => {
    for (const command of String(data).match(/\\*\\d+\\r\\n/g) ?? []) socket.write('+PONG\\r\\n');
  });
});
const port = await listening(server);
const tls = { ca: own.ca, host: '127.0.0.1', servername: 'localhost' };
`;

// library: ioredis | works | `dormouse/register`
test('ioredis', (t) => need(t, 'ioredis') && inPlace('ioredis', `${REDIS}
const Redis = require('ioredis');
const client = new Redis({ port, host: '127.0.0.1', tls, enableReadyCheck: false, disableClientInfo: true });
assert.equal(await client.ping(), 'PONG');
assert.ok(client.stream instanceof dormouse.TLSSocket);
client.disconnect();
`));

// library: redis (node-redis) | works | `dormouse/register`
test('redis', (t) => need(t, 'redis') && inPlace('redis', `${REDIS}
const { createClient } = require('redis');
const client = createClient({ socket: { port, tls: true, ...tls }, disableClientInfo: true });
client.on('error', (error) => assert.fail(error));
await client.connect();
assert.equal(await client.ping(), 'PONG');
client.destroy();
`));

// library: pg | works | `dormouse/register`: TLS begins within the protocol of PostgreSQL
test('pg', (t) => need(t, 'pg') && inPlace('pg', `
const net = require('net');
const tls = require('tls');
let isOurs;
const server = net.createServer((plain) => plain.once('data', () => {
  plain.write('S');
  const socket = new tls.TLSSocket(plain, { isServer: true, ...own });
  isOurs = socket instanceof dormouse.TLSSocket;
  socket.on('error', () => {});
  // The start-up message; then AuthenticationOk and ReadyForQuery.
  socket.once('data', () => socket.write(Buffer.from('5200000008000000005a0000000549', 'hex')));
}));
const port = await listening(server);
const { Client } = require('pg');
const client = new Client({ host: '127.0.0.1', port, user: 'a', database: 'a', ssl: { ca: own.ca, servername: 'localhost' } });
client.on('error', () => {});
await client.connect();
assert.ok(client.connection.stream instanceof dormouse.TLSSocket && isOurs);
`));

/** A server of MySQL that asks for TLS, and accepts every login and statement. */
const MYSQL = `
const net = require('net');
const tls = require('tls');
const packet = (number, ...parts) => {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([body.length, body.length >> 8, 0, number]), body]);
};
const OK = Buffer.from([0, 0, 0, 2, 0, 0, 0]);
// Version 10 of the protocol; what the server can, TLS among it; mysql_native_password.
const greeting = packet(0, Buffer.from('0a352e372e3000010000003132333435363738000b8a2102000800', 'hex'), Buffer.from([21]), Buffer.alloc(10),
  Buffer.from('123456789012\\0mysql_native_password\\0'));
const sockets = [];
const server = net.createServer((plain) => {
  plain.on('error', () => {});
  plain.write(greeting);
  plain.once('data', (request) => {
    // The client may send its first bytes of TLS together with the request for it.
    plain.pause();
    if (request.length > 36) plain.unshift(request.subarray(36));
    const secure = new tls.TLSSocket(plain, { isServer: true, ...own });
    sockets.push(secure);
    secure.once('data', () => {
      secure.write(packet(3, OK));
      secure.on('data', (command) => {
        if (command[4] === 1) secure.end();
        else if (String(command).endsWith('RESET')) plain.resetAndDestroy();
        else secure.write(packet(1, OK));
      });
    });
  });
});
const port = await listening(server);
/** Whether TLS was the package's, on both sides. */
const isOurs = (client) => client instanceof dormouse.TLSSocket && sockets.every((one) => one instanceof dormouse.TLSSocket) && warnings.length === 0;
`;

// library: mariadb, mysql, mysql2 | works | `dormouse/register`: TLS begins within the protocol of MySQL
test('mysql', (t) => need(t, 'mysql') && inPlace('mysql', `${MYSQL}
let client;
dormouse.TLSSocket.prototype._start = function() {
  client = this;
};
const { createConnection } = require('mysql');
const open = (ssl, at = { host: 'localhost', port }) => createConnection({ ...at, user: 'u', password: 'p', ssl });
const call = (connection, name, ...args) => new Promise((resolve, reject) => {
  connection[name](...args, (error, found) => (error ? reject(error) : resolve(found)));
});
const one = open({ ca: own.ca });
await call(one, 'connect');
assert.ok(await call(one, 'query', 'DO 1'));
assert.ok(isOurs(client));
await call(one, 'end');
// It hears of errors by '_tlsError' alone. None may end the process.
await assert.rejects(call(open({}), 'connect'), /unable to verify the first certificate/);
const elsewhere = net.createServer((plain) => server.emit('connection', plain)).listen(0, '127.0.0.2');
await once(elsewhere, 'listening');
await assert.rejects(call(open({ ca: own.ca }, { host: '127.0.0.2', port: elsewhere.address().port }), 'connect'), /does not match certificate's altnames/);
const two = open({ ca: own.ca });
await call(two, 'connect');
await assert.rejects(call(two, 'query', 'RESET'), { code: 'ECONNRESET' });
// The same while no call waits.
const three = open({ ca: own.ca });
await call(three, 'connect');
const lost = once(three, 'error');
sockets.at(-1)._parent.resetAndDestroy();
assert.equal((await lost)[0].code, 'ECONNRESET');
`));

test('mysql2', (t) => need(t, 'mysql2') && inPlace('mysql2', `${MYSQL}
const connection = await require('mysql2/promise').createConnection({ host: 'localhost', port, user: 'u', password: 'p', ssl: { ca: own.ca } });
await connection.query('DO 1');
assert.ok(isOurs(connection.connection.stream));
await connection.end();
`));

test('mariadb', (t) => need(t, 'mariadb') && inPlace('mariadb', `${MYSQL}
const connection = await require('mariadb').createConnection({ host: 'localhost', port, user: 'u', password: 'p', ssl: { ca: own.ca } });
await connection.query('DO 1');
assert.ok(isOurs(sockets[0]));
await connection.end();
`));

// library: basic-ftp | works | `dormouse/register`: TLS begins within FTP, and with each transfer
// library: ftp-srv | with a note | `dormouse/register`; its transfers use Node's own TLS, because of `pauseOnConnect`
test('basic-ftp and ftp-srv', (t) => need(t, 'basic-ftp') && need(t, 'ftp-srv') && inPlace('ftp', `
const fs = require('fs');
const { PassThrough, Readable } = require('stream');
const { FtpSrv } = require('ftp-srv');
const folder = fs.mkdtempSync(require('path').join(require('os').tmpdir(), 'dormouse-ftp-'));
const spare = require('net').createServer();
const port = await listening(spare);
await new Promise((resolve) => spare.close(resolve));
const quiet = new Proxy({}, { get: (target, name) => (name === 'child' ? () => quiet : () => {}) });
const server = new FtpSrv({ url: 'ftp://127.0.0.1:' + port, pasv_url: '127.0.0.1', anonymous: true, tls: own, log: quiet });
server.on('login', (login, accept) => accept({ root: folder }));
await server.listen();
const client = new (require('basic-ftp').Client)(10_000);
await client.access({ host: '127.0.0.1', port, secure: true, secureOptions: { ca: own.ca, servername: 'localhost' } });
await client.uploadFrom(Readable.from([Buffer.alloc(300_000, 65)]), 'a.txt');
assert.deepEqual((await client.list()).map((one) => one.name), ['a.txt']);
const received = new PassThrough().resume();
let length = 0;
received.on('data', (chunk) => (length += chunk.length));
await client.downloadTo(received, 'a.txt');
assert.equal(length, 300_000);
assert.ok(client.ftp.socket instanceof dormouse.TLSSocket);
client.close();
fs.rmSync(folder, { recursive: true });
assert.ok(warnings.every((one) => one.includes('pauseOnConnect')), warnings.join());
`));
