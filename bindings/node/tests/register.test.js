'use strict';

// `node --import dormouse/register`: programs that ask for node:tls get this package.

const assert = require('node:assert/strict');
const test = require('node:test');
const { inPlace, need } = require('./support');

const HTTPS = `
import https, { createServer, get } from 'node:https';
import tls from 'node:tls';
const server = createServer(own, (request, response) => response.end(String(request.socket instanceof dormouse.TLSSocket)));
const port = await listening(server);
const ask = (options) => new Promise((resolve, reject) => {
  get({ ...to, port, ...options }, (response) => {
    const { socket } = response;
    let body = '';
    response.on('data', (chunk) => { body += chunk; });
    response.on('end', () => resolve([body, socket instanceof dormouse.TLSSocket, socket instanceof tls.TLSSocket]));
  }).on('error', reject);
});
`;

test('servers and clients of node:https, and fetch, in ES modules', () => inPlace('https', `${HTTPS}
assert.deepEqual([server instanceof https.Server, server instanceof tls.Server], [true, true]);
assert.deepEqual(await ask({}), ['true', true, true]);
assert.deepEqual(await ask({ agent: new https.Agent({ maxCachedSessions: 0 }) }), ['true', true, true]);
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
assert.equal(await (await fetch('https://localhost:' + port)).text(), 'true');
`));

test('what the package lacks is done by Node.js, with a warning', () => inPlace('lacking', `${HTTPS}
const lacked = { sigalgs: 'ECDSA+SHA256' };
for (let i = 0; i < 2; i++) assert.deepEqual(await ask({ ...lacked, agent: false }), ['true', false, true]);
assert.equal(warnings.filter((one) => /tls.connect\\(\\) uses Node's own TLS.*sigalgs/.test(one)).length, 1);
// A server warns each time.
for (let i = 0; i < 2; i++) {
  const other = createServer({ ...own, ...lacked }, (request, response) => response.end('node'));
  assert.deepEqual([other instanceof https.Server, other instanceof tls.Server, other instanceof dormouse.Server], [true, true, false]);
  const port = await listening(other);
  assert.deepEqual(await ask({ port, agent: false }), ['node', true, true]);
  other.setSecureContext(own);
  other.addContext('localhost', own);
  assert.deepEqual(await ask({ port, agent: false }), ['node', true, true]);
}
assert.equal(warnings.filter((one) => /https.Server uses Node's own TLS/.test(one)).length, 2);
// A context of Node's own leads to sockets of Node's own.
const secureContext = tls.createSecureContext({ ...own, ...lacked });
assert.ok(!(tls.createServer({ secureContext }) instanceof dormouse.Server));
const client = tls.connect({ ...to, port, secureContext });
assert.ok(!(client instanceof dormouse.TLSSocket) && client instanceof tls.TLSSocket);
client.on('error', () => {});
assert.throws(() => tls.createServer(own).addContext('x', secureContext), { code: 'ERR_TLS_INVALID_CONTEXT' });
assert.throws(() => tls.connect({ port, ca: 'x' }), { code: 'ERR_TLS_INVALID_CONTEXT' });
`));

test('HTTP/2 with HTTP/1.1 beside it', () => inPlace('http2', `${HTTPS}
import http2 from 'node:http2';
const both = http2.createSecureServer({ ...own, allowHTTP1: true }, (request, response) => {
  response.end(request.httpVersion + ' ' + request.socket.encrypted);
});
assert.ok(both instanceof dormouse.Server && both instanceof tls.Server);
const h2port = await listening(both);
const client = http2.connect('https://localhost:' + h2port, to);
const request = client.request({ ':path': '/' });
request.setEncoding('utf8');
assert.equal((await request.toArray()).join(''), '2.0 true');
assert.deepEqual([client.encrypted, client.alpnProtocol], [true, 'h2']);
client.close();
assert.equal((await ask({ port: h2port, agent: false }))[0], '1.1 true');
`));

test('sockets behave as those of node:tls where this package is stricter', () => inPlace('lenient', `
import net from 'node:net';
import tls, { TLSSocket, connect } from 'node:tls';
const server = tls.createServer(own, (socket) => {
  socket.on('end', () => server.emit('ended'));
  socket.resume();
});
const port = await listening(server);
const raw = net.connect(port, '127.0.0.1');
const client = connect({ ...to, socket: raw });
assert.ok(client instanceof TLSSocket);
await once(client, 'secureConnect');
raw.end();
// No error, for which this server has no listener.
await once(server, 'ended');
const other = connect({ ...to, port });
await once(other, 'secureConnect');
while (!other.getSession()) await new Promise((resolve) => setTimeout(resolve, 5));
class Own extends tls.Server {}
assert.ok(new Own(own) instanceof tls.Server && !(server instanceof Own));
`));

// library: Nodemailer, smtp-server, ws | works | `dormouse/register`, also with STARTTLS
test('libraries: SMTP with STARTTLS, and ws', async (t) => {
  if (!need(t, 'nodemailer') || !need(t, 'smtp-server') || !need(t, 'ws')) return;
  await inPlace('libraries', `
const { SMTPServer } = require('smtp-server');
const nodemailer = require('nodemailer');
const server = new SMTPServer({ ...own, authOptional: true, onData: (stream, session, done) => {
  stream.resume();
  stream.on('end', () => done(null, String(session.secure)));
} });
server.listen(0, '127.0.0.1');
await once(server.server, 'listening');
const transport = nodemailer.createTransport({ ...to, port: server.server.address().port, requireTLS: true, tls: to });
const sent = await transport.sendMail({ from: 'a@local.test', to: 'b@local.test', text: 'x' });
assert.match(sent.response, /true/);
const https = require('https');
const { WebSocket, WebSocketServer } = require('ws');
const web = https.createServer(own);
new WebSocketServer({ server: web }).on('connection', (socket) => socket.send('hello'));
const client = new WebSocket('wss://localhost:' + await listening(web), { ca: own.ca });
assert.equal(String((await once(client, 'message'))[0]), 'hello');
assert.deepEqual(warnings, []);
`);
});
