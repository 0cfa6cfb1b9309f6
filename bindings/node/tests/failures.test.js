'use strict';

// What a program is told when a connection fails, beside node:tls, and which alert the peer gets. `failures.tsv` has the
// answers; DORMOUSE_WRITE=1 writes it anew, for FAILURES.md. The peer is always node:tls, or plain TCP.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const { authority, issue, openssl, first, folder } = require('./support');

const TABLE = path.join(__dirname, '..', 'failures.tsv');
const own = issue();
const host = '127.0.0.1';
authority('stranger');
const stranger = issue({ by: 'stranger' });
const V12 = { minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2' };
const V13 = { minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3' };

/** A certificate with other dates, or another purpose. */
function special(name, dates, extension = '') {
  fs.writeFileSync(path.join(folder, `${name}.ext`), `basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost\n${extension}`);
  openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=localhost', '-keyout', `${name}.key`, '-out', `${name}.csr`);
  fs.writeFileSync(path.join(folder, 'index.txt'), '');
  fs.writeFileSync(path.join(folder, 'special.conf'), '[ca]\ndefault_ca=it\n[it]\ndatabase=index.txt\nrand_serial=yes\n' +
    'new_certs_dir=.\ncertificate=ca.pem\nprivate_key=ca.key\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n');
  openssl('ca', '-batch', '-config', 'special.conf', '-in', `${name}.csr`, '-notext', '-out', `${name}.pem`, '-startdate', dates[0],
          '-enddate', dates[1], '-extfile', `${name}.ext`);
  const read = (end) => fs.readFileSync(path.join(folder, name + end), 'utf8');
  return { cert: read('.pem'), key: read('.key') };
}

const NOW = ['20200101000000Z', '20490101000000Z'];
const expired = special('expired', ['20200101000000Z', '20210101000000Z']);
const future = special('future', ['20480101000000Z', '20490101000000Z']);
const forClients = special('for-clients', NOW, 'extendedKeyUsage=clientAuth\n');

/** An error as the table shows it: its code, and OpenSSL's reason, or the message. */
function shown(error) {
  if (!(error instanceof Error)) return String(error);
  const message = error.reason && error.library ? error.reason : error.message.replace(/127\.0\.0\.1:\d+/, 'ADDRESS').trim();
  return `${error.code ?? error.name}: ${message}`.replaceAll(/\s+/g, ' ');
}

/** What the peer, of node:tls, was told by an alert. */
function alertOf(error) {
  const found = /SSL alert number (\d+)/.exec(error?.message ?? '');
  return found ? `; the peer gets alert ${found[1]}` : '';
}

const settled = (promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 2000, 'no event'))]);

/** The first error of a socket until it closes, or its timeout. */
async function endOf(socket) {
  socket.resume();
  const found = await settled(first(socket, 'error', 'close', 'timeout'));
  return Array.isArray(found) ? found[1] || `no error: ${found[0]}` : found;
}

/** Lets `server` listen for one attempt. */
async function attempt(server, connect) {
  const sockets = [];
  server.on('connection', (socket) => sockets.push(socket));
  server.listen(0, host);
  await once(server, 'listening');
  let client;
  try {
    return await connect(server.address().port, (made) => client = made);
  } finally {
    client?.destroy();
    sockets.forEach((socket) => socket.destroy());
    server.close();
  }
}

/** A client of the module, and a server of node:tls. */
function client(options, serverOptions = {}, act = (server) => server.resume()) {
  return (module) => {
    const server = tls.createServer({ ...own, ...serverOptions });
    let told;
    const heard = new Promise((resolve) => {
      server.on('tlsClientError', (error) => resolve(told ??= error));
      server.on('secureConnection', (socket) => {
        socket.on('error', (error) => resolve(told ??= error));
        act(socket);
      });
    });
    return attempt(server, async (port, keep) => {
      const socket = keep(module.connect({ port, host, servername: 'localhost', ca: own.ca, ...options }));
      const error = await endOf(socket);
      await Promise.race([heard, new Promise((resolve) => setTimeout(resolve, 200))]);
      return shown(error) + alertOf(told);
    });
  };
}

/** A client of the module, and a server that speaks no TLS. */
function plainServer(act, options = {}) {
  return (module) => attempt(net.createServer((socket) => {
    socket.on('error', () => {});
    act(socket);
  }), async (port, keep) => shown(await endOf(keep(module.connect({ port, host, servername: 'localhost', ca: own.ca, ...options })))));
}

/** A server of the module, and a client of node:tls, or of plain TCP if `act` is given. */
function server(options, clientOptions = {}, act = undefined) {
  return (module) => {
    const server = module.createServer({ ...own, ...options });
    const error = settled(new Promise((resolve) => {
      server.on('tlsClientError', resolve);
      server.on('secureConnection', (socket) => {
        socket.on('error', resolve).on('close', () => resolve('no error: close')).resume();
      });
    }));
    return attempt(server, async (port, keep) => {
      let told;
      if (act) {
        act(keep(net.connect(port, host)).on('error', () => {}));
      } else {
        const socket = keep(tls.connect({ port, host, servername: 'localhost', ca: own.ca, ...clientOptions }));
        // A failed check of the client closes it at once.
        const closed = first(socket, 'close');
        socket.on('error', (error) => told = error).resume();
        await Promise.race([error, closed]);
        await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, 200))]);
      }
      return shown(await error) + alertOf(told);
    });
  };
}

/** An established client of the module, whose bytes from the server go through `change`. */
function changed(change) {
  return async (module) => {
    const server = tls.createServer({ ...own, ...V13 });
    const relay = net.createServer((near) => {
      const far = net.connect(server.address().port, host);
      near.on('error', () => {}).on('data', (chunk) => far.write(chunk));
      far.on('error', () => {}).on('data', (chunk) => relay.isReady ? change(near, chunk) : near.write(chunk));
    });
    server.listen(0, host);
    await once(server, 'listening');
    const accepted = once(server, 'secureConnection');
    try {
      return await attempt(relay, async (port, keep) => {
        const socket = keep(module.connect({ port, host, servername: 'localhost', ca: own.ca }));
        const [peer] = await accepted;
        peer.on('error', () => {});
        if (!socket.authorized) await once(socket, 'secureConnect');
        await new Promise((resolve) => setTimeout(resolve, 100));
        relay.isReady = true;
        const error = endOf(socket);
        const told = settled(first(peer, 'error'));
        peer.write('some words');
        const failed = await error;
        const [, answer] = await Promise.race([told, new Promise((resolve) => setTimeout(resolve, 200, []))]);
        peer.destroy();
        return shown(failed) + alertOf(answer);
      });
    } finally {
      server.close();
    }
  };
}

/** A call after the end. */
function call(act) {
  return (module) => attempt(tls.createServer(own, (socket) => socket.on('error', () => {}).resume()), async (port, keep) => {
    const socket = keep(module.connect({ port, host, servername: 'localhost', ca: own.ca }));
    await once(socket, 'secureConnect');
    const error = endOf(socket);
    act(socket);
    return shown(await error);
  });
}

const selfSigned = dormouse.selfSigned('localhost');
const asks = { requestCert: true, rejectUnauthorized: true, ca: own.ca };
const situations = {
  'client: the certificate is of an unknown authority': client({}, stranger),
  'client: the certificate is self-signed': client({}, selfSigned),
  'client: the certificate has expired': client({}, expired),
  'client: the certificate is not valid yet': client({}, future),
  'client: the certificate is for another name': client({}, issue({ names: ['DNS:other.test'] })),
  'client: the certificate is for clients only': client({}, forClients),
  'client without the certificate that the server requires, TLSv1.2': client(V12, asks),
  'client without the certificate that the server requires, TLSv1.3': client(V13, asks),
  'client whose certificate the server does not trust, TLSv1.2': client({ ...stranger, ca: own.ca, ...V12 }, asks),
  'client whose certificate the server does not trust, TLSv1.3': client({ ...stranger, ca: own.ca, ...V13 }, asks),
  'client: no common protocol version': client(V12, V13),
  'client: no common cipher suite': client(V12, { ...V12, ciphers: 'ECDHE-RSA-AES128-GCM-SHA256' }),
  'client: no common application protocol': client({ ALPNProtocols: ['a'] }, { ALPNProtocols: ['b'] }),
  'client: the server answers in plaintext': plainServer((socket) => socket.write('220 ready\r\n')),
  'client: the server closes during the handshake': plainServer((socket) => socket.once('data', () => socket.end())),
  'client: the server resets the connection during the handshake': plainServer((socket) => socket.once('data', () => socket.resetAndDestroy())),
  'client: nobody listens': async (module) => shown(await endOf(module.connect({ port: 1, host }))),
  'client: the server does not answer (setTimeout)': plainServer(() => {}, { timeout: 100 }),
  'server: the client has no certificate, TLSv1.2': server(asks, V12),
  'server: the client has no certificate, TLSv1.3': server(asks, V13),
  'server: the client\'s certificate is of an unknown authority, TLSv1.2': server(asks, { ...stranger, ca: own.ca, ...V12 }),
  'server: the client\'s certificate is of an unknown authority, TLSv1.3': server(asks, { ...stranger, ca: own.ca, ...V13 }),
  'server: the client does not trust the certificate, TLSv1.2': server(V12, { ca: stranger.ca }),
  'server: the client does not trust the certificate, TLSv1.3': server(V13, { ca: stranger.ca }),
  'server: no common protocol version': server(V13, V12),
  'server: no common application protocol': server({ ALPNProtocols: ['a'] }, { ALPNProtocols: ['b'] }),
  'server: SNICallback returns an error': server({ SNICallback: (name, done) => done(new Error('no such name')) }),
  'server: the client sends plain HTTP': server({}, {}, (socket) => socket.write('GET / HTTP/1.1\r\n\r\n')),
  'server: the client sends other bytes': server({}, {}, (socket) => socket.write(Buffer.alloc(32, 0x55))),
  'server: the client closes during the handshake': server({}, {}, (socket) => socket.end()),
  'server: the client resets the connection during the handshake': server({}, {}, (socket) => socket.on('connect', () => socket.resetAndDestroy())),
  'server: the client does not speak (handshakeTimeout)': server({ handshakeTimeout: 100 }, {}, () => {}),
  'a forged record arrives': changed((near, chunk) => {
    chunk[chunk.length - 1] ^= 1;
    near.write(chunk);
  }),
  'a record that is too long arrives': changed((near) => near.write(Buffer.from('1703037000', 'hex'))),
  'the connection ends within a record': changed((near, chunk) => near.end(chunk.subarray(0, 9))),
  'the connection ends without close_notify': changed((near) => near.end()),
  'the connection is reset': changed((near) => near.resetAndDestroy()),
  'a write after end()': call((socket) => {
    socket.end();
    socket.write('late');
  }),
  'a write after destroy()': call((socket) => {
    socket.destroy();
    socket.write('late');
  }),
};

test('what programs are told when connections fail is what the table says', { timeout: 300_000 }, async () => {
  const lines = [`Node.js ${process.versions.node.split('.')[0]}`];
  for (const [situation, perform] of Object.entries(situations)) {
    lines.push([situation, await perform(tls), await perform(dormouse)].join('\t'));
  }
  if (process.env.DORMOUSE_WRITE) fs.writeFileSync(TABLE, `${lines.join('\n')}\n`);
  const expected = fs.readFileSync(TABLE, 'utf8').trimEnd().split('\n');
  // Another version of Node.js may have other answers of its own.
  const compared = (all) => all[0] === lines[0] && expected[0] === lines[0] ? all : all.map((line) => line.split('\t').toSpliced(1, 1).join('\t')).slice(1);
  assert.deepEqual(compared(lines), compared(expected));
});
