'use strict';

// Options that are 0, '', null, undefined or false do what they do in node:tls: for each option and value, both are tried.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const { issue, listen, readAll } = require('./support');

const own = issue();
const VALUES = [0, '', null, undefined, false];

const CONTEXT = [
  'ca', 'cert', 'key', 'pfx', 'passphrase', 'ciphers', 'ecdhCurve', 'minVersion', 'maxVersion', 'secureProtocol', 'secureOptions',
  'crl', 'ticketKeys', 'sessionTimeout', 'sessionIdContext', 'sigalgs', 'dhparam', 'clientCertEngine', 'privateKeyEngine',
  'privateKeyIdentifier', 'honorCipherOrder',
];
const SERVER = [
  ...CONTEXT, 'secureContext', 'SNICallback', 'ALPNProtocols', 'ALPNCallback', 'requestCert', 'rejectUnauthorized',
  'handshakeTimeout', 'pskCallback', 'pskIdentityHint', 'pauseOnConnect', 'allowHalfOpen', 'noDelay', 'keepAlive',
  'keepAliveInitialDelay',
];
// node:tls fails an assertion of its own for checkServerIdentity and minDHSize.
const CLIENT = [
  ...CONTEXT, 'secureContext', 'ALPNProtocols', 'servername', 'session', 'rejectUnauthorized', 'pskCallback', 'enableTrace',
  'requestOCSP', 'timeout', 'signal', 'onread', 'lookup', 'localAddress', 'localPort', 'family', 'hints', 'host', 'path', 'socket',
  'allowHalfOpen', 'noDelay', 'keepAlive',
];

/** How a call ended: its result, or that it throws. */
function attempt(call) {
  try {
    return call();
  } catch {
    return 'throws';
  }
}

/** Calls `outcome` with each option and value for both modules, and compares. */
async function compare(names, outcome) {
  for (const name of names) {
    const each = (module) => Promise.all(VALUES.map((value) => outcome(module, { [name]: value })));
    const [ours, theirs] = [await each(dormouse), await each(tls)];
    assert.deepEqual(ours, theirs, name);
  }
}

/** What a client sees: the text that the server sends, or an error. */
async function seen(client) {
  try {
    return (await readAll(client)).toString();
  } catch (error) {
    // The names of these differ: OpenSSL looks at the end of the chain, we at its beginning.
    return /SELF_SIGNED|UNABLE/.test(error.code) ? 'not trusted' : error.code;
  } finally {
    client.destroy();
  }
}

test('options of contexts', async () => {
  await compare(CONTEXT, (module, option) => attempt(() => typeof module.createSecureContext({ ...own, ...option })));
});

test('options of servers', async (t) => {
  const outcome = async (module, option) => {
    const answer = (socket) => socket.write(JSON.stringify([socket.authorized, socket.alpnProtocol, socket.servername]), () => socket.end());
    const server = attempt(() => module.createServer({ ...own, ...option }, answer));
    if (server === 'throws') return server;
    const port = await listen(t, server);
    const result = await seen(tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca, ALPNProtocols: ['a'] }));
    server.close();
    // An alert or a reset: the server has no certificate.
    return result.startsWith('[') ? result : 'refused';
  };
  await compare(SERVER, outcome);
});

test('options of clients', async (t) => {
  const server = tls.createServer(own, (socket) => socket.once('data', () => socket.end(JSON.stringify([socket.alpnProtocol, socket.servername]))));
  const port = await listen(t, server);
  const outcome = (module, option) => {
    const client = attempt(() => module.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca, ...option }));
    if (client === 'throws') return client;
    client.write('x');
    return seen(client);
  };
  await compare(CLIENT, outcome);
});

test('sessionIdContext, which servers for SMTP set, is taken without ticketKeys', async (t) => {
  const port = await listen(t, dormouse.createServer({ ...own, sessionIdContext: 'smtp' }, (socket) => socket.end('well')));
  const client = dormouse.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: own.ca });
  await once(client, 'secureConnect');
  assert.equal((await readAll(client)).toString(), 'well');
  const ticketKeys = Buffer.alloc(48, 1);
  assert.throws(() => dormouse.createServer({ ...own, sessionIdContext: 'smtp', ticketKeys }), { code: 'ERR_FEATURE_UNAVAILABLE' });
});
