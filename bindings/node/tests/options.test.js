'use strict';

// Options and methods of node:tls.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const crypto = require('node:crypto');
const { once } = require('node:events');
const net = require('node:net');
const { PassThrough, Duplex } = require('node:stream');
const tls = require('node:tls');
const test = require('node:test');
const { promisify } = require('node:util');
const dormouse = require('..');
const native = require('../lib/native');
const { authority, clientByHand, connect, first, intermediate, issue, listen, openssl, readAll, run, write } = require('./support');

const own = issue();
const to = { host: '127.0.0.1', servername: 'localhost', ca: own.ca };

function ignoreErrors(socket) {
  socket.on('error', () => {});
}

test('ALPN', async (t) => {
  const port = await listen(t, dormouse.createServer({ ...own, ALPNProtocols: ['h2', 'http/1.1'] }, (socket) => socket.end(socket.alpnProtocol || 'none')));
  for (const [offered, chosen] of [[['http/1.1', 'h2'], 'h2'], [['http/1.1'], 'http/1.1'], [undefined, false]]) {
    const client = connect({ ...to, port, ALPNProtocols: offered });
    assert.equal((await readAll(client)).toString(), chosen || 'none');
    assert.equal(client.alpnProtocol, chosen);
  }
  const refused = connect({ ...to, port, ALPNProtocols: [Buffer.from('x')] });
  const [error] = await once(refused, 'error');
  assert.equal(error.code, 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
});

test('ALPNCallback', async (t) => {
  const hellos = [];
  const server = dormouse.createServer({
    ...own,
    ALPNCallback: (hello) => {
      hellos.push(hello);
      return hello.protocols.includes('bad') ? 'not offered' : hello.protocols.find((one) => one === 'b');
    },
  }, (socket) => socket.end(socket.alpnProtocol || 'none'));
  const port = await listen(t, server);
  assert.equal((await readAll(connect({ ...to, port, ALPNProtocols: ['a', 'b'] }))).toString(), 'b');
  assert.deepEqual(hellos[0], { servername: 'localhost', protocols: ['a', 'b'] });
  assert.equal((await readAll(connect({ ...to, port }))).toString(), 'none');

  const refused = tls.connect({ ...to, port, ALPNProtocols: ['a'] });
  const [[error], [ofServer]] = await Promise.all([once(refused, 'error'), once(server, 'tlsClientError')]);
  assert.equal(error.code, 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
  assert.equal(typeof ofServer.code, 'string');

  ignoreErrors(connect({ ...to, port, ALPNProtocols: ['bad'] }));
  const [invalid] = await once(server, 'tlsClientError');
  assert.equal(invalid.code, 'ERR_TLS_ALPN_CALLBACK_INVALID_RESULT');
  assert.throws(() => dormouse.createServer({ ...own, ALPNCallback() {}, ALPNProtocols: ['a'] }), { code: 'ERR_TLS_ALPN_CALLBACK_WITH_PROTOCOLS' });
});

test('SNICallback, at once and later, and addContext', async (t) => {
  const one = issue({ names: ['DNS:one.test'], cn: 'one.test' });
  const two = issue({ names: ['DNS:two.test'], cn: 'two.test' });
  const contexts = { 'one.test': dormouse.createSecureContext(one), 'two.test': dormouse.createSecureContext(two) };
  const server = dormouse.createServer({
    ...own,
    SNICallback: (name, callback) => {
      if (name === 'bad.test') throw new Error('no such name');
      if (name === 'refused.test') return callback(new Error('refused'));
      if (name === 'foreign.test') return callback(null, tls.createSecureContext(own));
      if (name === 'two.test') return setImmediate(callback, null, contexts[name]);
      callback(null, contexts[name]);
    },
  }, (socket) => socket.end(String(socket.servername)));
  const port = await listen(t, server);
  for (const name of ['one.test', 'two.test', 'localhost']) {
    const client = connect({ ...to, port, servername: name });
    await once(client, 'secureConnect');
    assert.equal(client.getPeerCertificate().subject.CN, name);
    assert.equal((await readAll(client)).toString(), name);
  }
  for (const [name, message] of [['bad.test', /no such name/], ['refused.test', /refused/], ['foreign.test', /dormouse/]]) {
    const client = connect({ ...to, port, servername: name });
    const [[error], [ofServer]] = await Promise.all([once(client, 'error'), once(server, 'tlsClientError')]);
    assert.match(ofServer.message, message);
    assert.match(error.code, /^ERR_SSL_.*ALERT/);
  }

  const patterns = dormouse.createServer(own, (socket) => socket.end());
  patterns.addContext('*.test', contexts['one.test']);
  patterns.addContext('two.test', two);
  const port2 = await listen(t, patterns);
  for (const [name, cn] of [['one.test', 'one.test'], ['two.test', 'two.test'], ['localhost', 'localhost']]) {
    const client = connect({ ...to, port: port2, servername: name });
    await once(client, 'secureConnect');
    assert.equal(client.getPeerCertificate().subject.CN, cn);
  }
  assert.throws(() => patterns.addContext('', two), { code: 'ERR_TLS_REQUIRED_SERVER_NAME' });
});

for (const maxVersion of ['TLSv1.2', 'TLSv1.3']) {
  test(`client certificates, ${maxVersion}`, async (t) => {
    const stranger = issue({ by: 'other' });
    const strict = dormouse.createServer({ ...own, ca: own.ca, requestCert: true, maxVersion }, (socket) => {
      socket.end(`${socket.authorized} ${socket.getPeerCertificate().subject.CN}`);
    });
    const port = await listen(t, strict);
    const mine = issue({ cn: 'me' });
    const good = connect({ ...to, port, cert: mine.cert, key: mine.key });
    assert.equal((await readAll(good)).toString(), 'true me');
    for (const [identity, code, alert] of [
      [{}, 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE', maxVersion === 'TLSv1.3' ? 'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED' : 'ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE'],
      [{ cert: stranger.cert, key: stranger.key }, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'ERR_SSL_TLSV1_ALERT_UNKNOWN_CA'],
    ]) {
      const client = connect({ ...to, port, ...identity });
      const [[error], [ofServer]] = await Promise.all([once(client, 'error'), once(strict, 'tlsClientError')]);
      assert.equal(ofServer.code, code);
      assert.match(error.code, new RegExp(`^(${alert}|ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED)$`));
    }

    const lenient = dormouse.createServer({ ...own, ca: own.ca, requestCert: true, rejectUnauthorized: false, maxVersion }, (socket) => {
      socket.end(`${socket.authorized} ${socket.authorizationError}`);
    });
    const port2 = await listen(t, lenient);
    for (const [identity, said] of [
      [mine, 'true null'], [{}, 'false UNABLE_TO_GET_ISSUER_CERT'], [stranger, 'false UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ]) {
      const client = connect({ ...to, port: port2, cert: identity.cert, key: identity.key });
      assert.equal((await readAll(client)).toString(), said);
    }
  });
}

test('servers that a client refuses, and that it is told to accept', async (t) => {
  authority('other');
  const cases = [
    [issue({ by: 'other' }), 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    [issue({ names: ['DNS:elsewhere.test'] }), 'ERR_TLS_CERT_ALTNAME_INVALID'],
    [{ ...dormouse.selfSigned('localhost') }, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ];
  for (const [identity, code] of cases) {
    const port = await listen(t, dormouse.createServer(identity, (socket) => {
      ignoreErrors(socket);
      socket.end('hello');
    }));
    const strict = connect({ ...to, port });
    strict.on('secureConnect', () => assert.fail('refused'));
    const [error] = await once(strict, 'error');
    assert.equal(error.code, code);
    assert.equal(strict.authorized, false);
    const lenient = connect({ ...to, port, rejectUnauthorized: false });
    await once(lenient, 'secureConnect');
    assert.equal(lenient.authorized, false);
    assert.equal(lenient.authorizationError, code);
    assert.equal((await readAll(lenient)).toString(), 'hello');
  }
});

test('a self-signed certificate that is trusted itself', async (t) => {
  const self = dormouse.selfSigned('localhost');
  const port = await listen(t, dormouse.createServer(self, (socket) => socket.end()));
  const client = connect({ ...to, port, ca: self.cert });
  await once(client, 'secureConnect');
  assert.equal(client.authorized, true);
});

test('checkServerIdentity, and a common name where there is no other name', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end()));
  const asked = [];
  const client = connect({ ...to, port, checkServerIdentity: (host, certificate) => void asked.push(host, certificate.subject.CN) });
  await once(client, 'secureConnect');
  assert.deepEqual(asked, ['localhost', 'localhost']);
  const refused = connect({ ...to, port, checkServerIdentity: () => new Error('not this one') });
  const [error] = await once(refused, 'error');
  assert.equal(error.message, 'not this one');

  const old = issue({ names: [], cn: 'localhost' });
  const port2 = await listen(t, dormouse.createServer(old, (socket) => socket.end()));
  const accepted = connect({ ...to, port: port2 });
  await once(accepted, 'secureConnect');
  assert.equal(accepted.authorized, true);
});

for (const maxVersion of ['TLSv1.2', 'TLSv1.3']) {
  test(`sessions, ${maxVersion}`, async (t) => {
    const port = await listen(t, dormouse.createServer({ ...own, maxVersion }, (socket) => socket.end('x')));
    const sessionOf = async (options) => {
      const client = connect({ ...to, port, ...options });
      const session = first(client, 'session');
      await once(client, 'secureConnect');
      const reused = client.isSessionReused();
      const [, bytes] = await session;
      await readAll(client);
      return { bytes, reused };
    };
    const full = await sessionOf({});
    assert.equal(full.reused, false);
    const again = await sessionOf({ session: full.bytes });
    assert.equal(again.reused, true);
    const unasked = await sessionOf({ session: again.bytes, checkServerIdentity: () => assert.fail('no certificate to check') });
    assert.equal(unasked.reused, true);
    const other = await sessionOf({ session: full.bytes, host: '127.0.0.1', servername: '', rejectUnauthorized: false });
    assert.equal(other.reused, false, 'a session is for the name for which its server was verified');
    const unverified = await sessionOf({ rejectUnauthorized: false, ca: authority('other') });
    const strict = connect({ ...to, port, ca: authority('other'), session: unverified.bytes });
    const [error] = await once(strict, 'error');
    assert.equal(error.code, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'a session does not vouch for a server that was not verified');
  });
}

test('a server whose name only JavaScript accepts is not resumed', { timeout: 10_000 }, async (t) => {
  const checked = [];
  const accept = (host, certificate) => void checked.push(certificate.subject.CN);
  for (const [identity, checkServerIdentity] of [
    [issue({ names: [], cn: 'localhost' }), undefined], [issue({ names: ['DNS:elsewhere.test'], cn: 'elsewhere' }), accept],
  ]) {
    const port = await listen(t, dormouse.createServer(identity, (socket) => socket.end('x')));
    let session;
    for (let i = 0; i < 2; i++) {
      const client = connect({ ...to, port, session, checkServerIdentity });
      const arrived = first(client, 'session');
      await once(client, 'secureConnect');
      assert.deepEqual([client.authorized, client.isSessionReused()], [true, false]);
      [, session] = await arrived;
      await readAll(client);
    }
  }
  assert.deepEqual(checked, ['elsewhere', 'elsewhere']);
});

test('bytes that are no session', async (t) => {
  const port = await listen(t, dormouse.createServer(own));
  const client = connect({ ...to, port, session: Buffer.from('nonsense') });
  const [error] = await once(client, 'error');
  assert.equal(error.code, 'ERR_INVALID_ARG_VALUE');
});

test('servers with the same ticket keys resume each other’s sessions', async (t) => {
  const ticketKeys = crypto.randomBytes(48);
  const server = () => dormouse.createServer({ ...own, ticketKeys }, (socket) => socket.end('x'));
  const [one, two] = [await listen(t, server()), await listen(t, server())];
  const client = connect({ ...to, port: one });
  const [, session] = await first(client, 'session');
  client.resume();
  const again = connect({ ...to, port: two, session });
  await once(again, 'secureConnect');
  assert.equal(again.isSessionReused(), true);
  assert.ok(server().getTicketKeys().equals(ticketKeys));
});

test('a server’s sessions for node:tls', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end('x')));
  const client = tls.connect({ ...to, port });
  const [, session] = await first(client, 'session');
  client.resume();
  const again = tls.connect({ ...to, port, session });
  await once(again, 'secureConnect');
  assert.equal(again.isSessionReused(), true);
  again.resume();
});

test('the handshake timeout', async (t) => {
  const server = dormouse.createServer({ ...own, handshakeTimeout: 50 });
  const port = await listen(t, server);
  const slow = net.connect(port, '127.0.0.1');
  let port2;
  server.on('tlsClientError', (error, socket) => {
    assert.equal(error.code, 'ERR_TLS_HANDSHAKE_TIMEOUT');
    port2 = socket.remotePort;
  });
  await once(server, 'tlsClientError');
  assert.equal(port2, slow.localPort, 'the address can still be asked for');
  await once(slow, 'close');
  const patient = await listen(t, dormouse.createServer({ ...own, handshakeTimeout: 2 ** 31 }));
  await new Promise((resolve, reject) => {
    const client = net.connect(patient, '127.0.0.1').once('close', () => reject(new Error('timed out at once')));
    setTimeout(resolve, 50, client);
  });
});

test('a client that hangs up during the handshake', async (t) => {
  const server = dormouse.createServer(own);
  const port = await listen(t, server);
  net.connect(port, '127.0.0.1').end();
  const [error] = await once(server, 'tlsClientError');
  assert.equal(error.code, 'ECONNRESET');
});

test('a server that hangs up during the handshake', async (t) => {
  const port = await listen(t, net.createServer((socket) => socket.end()));
  const [error] = await once(connect({ ...to, port }), 'error');
  assert.equal(error.code, 'ECONNRESET');
  assert.match(error.message, /before secure TLS connection was established/);
  assert.equal(error.port, port);
});

test('half-open connections', async (t) => {
  const server = dormouse.createServer({ ...own, allowHalfOpen: true }, async (socket) => {
    const request = await readAll(socket);
    socket.end(`got ${request}`);
  });
  const port = await listen(t, server);
  for (const open of [connect, tls.connect]) {
    const client = open({ ...to, port, allowHalfOpen: true });
    client.end('all');
    assert.equal((await readAll(client)).toString(), 'got all');
  }
});

test('an end without close_notify is no end', async (t) => {
  for (const allowTruncation of [false, true]) {
    const server = dormouse.createServer({ ...own, allowTruncation });
    const port = await listen(t, server);
    const client = tls.connect({ ...to, port });
    const [socket] = await once(server, 'secureConnection');
    client.write('half of', () => client._parent?.destroy() ?? client.destroy());
    socket.on('data', () => {});
    const [event, error] = await first(socket, 'end', 'error');
    assert.equal(event, allowTruncation ? 'end' : 'error');
    if (!allowTruncation) assert.equal(error.code, 'ERR_SSL_UNEXPECTED_EOF_WHILE_READING');
  }
});

test('setTimeout', async (t) => {
  const port = await listen(t, dormouse.createServer(own));
  const client = connect({ ...to, port, timeout: 50 });
  await once(client, 'timeout');
  client.destroy();
});

test('setTimeout over another stream: what is sent and received extends it', { timeout: 10_000 }, async () => {
  for (const who of ['client', 'server']) {
    const [near, far] = pair();
    const server = new dormouse.TLSSocket(far, { isServer: true, ...own });
    const client = connect({ socket: near, ca: own.ca, servername: 'localhost' });
    await once(client, 'secureConnect');
    for (const socket of [server, client]) socket.on('error', () => {}).resume();
    const began = Date.now();
    client.setTimeout(400);
    const sending = setInterval(() => ({ client, server })[who].write('x'), 50);
    setTimeout(clearInterval, 800, sending);
    // The socket's own timer does not keep the process running.
    const running = setInterval(() => {}, 1000);
    await once(client, 'timeout');
    clearInterval(running);
    assert.ok(Date.now() - began > 1000, `${who}: ${Date.now() - began} ms`);
    for (const socket of [server, client]) socket.destroy();
  }
});

test('over another stream', async (t) => {
  const [near, far] = pair();
  const server = new dormouse.TLSSocket(far, { isServer: true, ...own });
  server.pipe(server);
  const client = connect({ socket: near, ca: own.ca, servername: 'localhost' });
  client.end('hello');
  assert.equal((await readAll(client)).toString(), 'hello');

  // TLS in TLS, with node:tls outside.
  const inner = dormouse.createServer(own, (socket) => socket.end(`inner ${socket.encrypted}`));
  const outer = tls.createServer(own, (socket) => inner.emit('connection', socket));
  const port = await listen(t, outer);
  const tunnel = tls.connect({ ...to, port });
  const through = connect({ socket: tunnel, ca: own.ca, servername: 'localhost' });
  assert.equal((await readAll(through)).toString(), 'inner true');
});

test('STARTTLS: a socket that was used in plaintext', async (t) => {
  const plain = net.createServer((socket) => {
    socket.once('data', () => {
      socket.write('go', () => {
        const secure = new dormouse.TLSSocket(socket, { isServer: true, ...own });
        secure.once('secure', () => secure.end(`hello ${secure.remotePort === socket.remotePort}`));
      });
    });
  });
  const port = await listen(t, plain);
  const socket = net.connect(port, '127.0.0.1');
  socket.write('STARTTLS');
  await once(socket, 'data');
  const client = connect({ socket, ca: own.ca, servername: 'localhost' });
  assert.equal((await readAll(client)).toString(), 'hello true');
});

test('bytes that arrived before the TLSSocket was made', async (t) => {
  const plain = net.createServer((socket) => {
    socket.once('readable', () => {
      const secure = new dormouse.TLSSocket(socket, { isServer: true, ...own });
      secure.on('error', () => {});
      secure.pipe(secure);
    });
  });
  const port = await listen(t, plain);
  const client = connect({ ...to, port });
  client.end('early');
  assert.equal((await readAll(client)).toString(), 'early');
});

function pair() {
  const [there, back] = [new PassThrough(), new PassThrough()];
  return [Duplex.from({ readable: back, writable: there }), Duplex.from({ readable: there, writable: back })];
}

test('a unix socket', async (t) => {
  const server = dormouse.createServer(own, (socket) => socket.end('hello'));
  const path = require('node:path').join(require('./support').folder, 'socket');
  server.listen(path);
  await once(server, 'listening');
  t.after(() => server.close());
  assert.equal((await readAll(connect({ path, ca: own.ca, servername: 'localhost' }))).toString(), 'hello');
});

test('onread', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end('0123456789')));
  const parts = [];
  const client = connect({
    ...to,
    port,
    onread: { buffer: Buffer.alloc(4), callback: (count, buffer) => void parts.push(buffer.toString('latin1', 0, count)) },
  });
  await once(client, 'close');
  assert.equal(parts.join(''), '0123456789');
  assert.ok(parts.every((part) => part.length <= 4));
});

test('onread: false and pause() stop the callbacks until resume()', { timeout: 20_000 }, async (t) => {
  const length = 1 << 20;
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end(Buffer.alloc(length))));
  const ways = [() => false, (client) => void client.pause()];
  for (const pause of ways) {
    for (const over of [() => ({ port }), () => ({ socket: net.connect(port, '127.0.0.1') })]) {
      let [received, late, pauses, isPaused] = [0, 0, 0, false];
      const callback = (count) => {
        received += count;
        if (isPaused) late++;
        if (received < pauses * 300_000) return true;
        pauses++;
        isPaused = true;
        setTimeout(() => {
          isPaused = false;
          client.resume();
        }, 50);
        return pause(client);
      };
      const client = connect({ ...to, ...over(), onread: { buffer: Buffer.alloc(1000), callback } });
      await once(client, 'end');
      assert.deepEqual({ received, late, pauses }, { received: length, late: 0, pauses: 4 });
    }
  }
});

test('an end comes to programs that do not read', { timeout: 10_000 }, async (t) => {
  const onread = { buffer: Buffer.alloc(4), callback: () => true };
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.end('0123')));
  const client = connect({ ...to, socket: net.connect(port, '127.0.0.1'), onread });
  await once(client, 'close');

  // To a server that only writes: over another stream, and by close_notify without FIN.
  const [near, far] = pair();
  const silent = new dormouse.TLSSocket(far, { isServer: true, ...own });
  connect({ socket: near, ca: own.ca, servername: 'localhost' }).end();
  await once(silent, 'end');
  silent.destroy();
  const server = dormouse.createServer(own);
  const port2 = await listen(t, server);
  const accepted = once(server, 'secureConnection');
  const { socket, number, last } = await clientByHand(port2, own.ca);
  socket.write(Buffer.concat([last, native.close(number)]));
  native.release(number);
  const [ended] = await accepted;
  await once(ended, 'close');
});

test('keylog', async (t) => {
  const server = dormouse.createServer(own, (socket) => socket.end());
  const ofServer = [];
  server.on('keylog', (line) => ofServer.push(String(line)));
  const port = await listen(t, server);
  const client = connect({ ...to, port });
  const lines = [];
  client.on('keylog', (line) => lines.push(String(line)));
  await readAll(client);
  assert.match(lines.join(''), /^CLIENT_TRAFFIC_SECRET_0 [0-9a-f]{64} [0-9a-f]+\n/m);
  assert.deepEqual(ofServer.sort(), lines.sort());
});

test('exportKeyingMaterial', async (t) => {
  const options = { exportKeyingMaterial: true };
  const server = dormouse.createServer({ ...own, ...options }, (socket) => socket.end(socket.exportKeyingMaterial(32, 'EXPORTER-test', Buffer.from('c'))));
  const port = await listen(t, server);
  const client = tls.connect({ ...to, port });
  await once(client, 'secureConnect');
  const expected = client.exportKeyingMaterial(32, 'EXPORTER-test', Buffer.from('c'));
  assert.ok((await readAll(client)).equals(expected));
  const without = connect({ ...to, port });
  await once(without, 'secureConnect');
  assert.throws(() => without.exportKeyingMaterial(32, 'x'), { code: 'ERR_FEATURE_UNAVAILABLE' });
});

test('keys: encrypted, KeyObject, wrong', () => {
  const encrypted = crypto.createPrivateKey(own.key).export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' });
  dormouse.createSecureContext({ cert: own.cert, key: encrypted, passphrase: 'secret' });
  dormouse.createSecureContext({ cert: own.cert, key: [{ pem: encrypted, passphrase: 'secret' }] });
  dormouse.createSecureContext({ cert: own.cert, key: crypto.createPrivateKey(own.key) });
  for (const passphrase of ['wrong', '', undefined]) {
    assert.throws(() => dormouse.createSecureContext({ cert: own.cert, key: encrypted, passphrase }), { code: 'ERR_OSSL_BAD_DECRYPT', message: /bad decrypt/ });
  }
  // A passphrase that would have to be hashed for longer than a second, and forms that the engine leaves to its library.
  const file = write('encrypted-plain.pem', own.key);
  const converted = (...how) => openssl(...how, '-in', file, '-passout', 'pass:secret').toString();
  const costly = converted('pkcs8', '-topk8', '-v2', 'aes-256-cbc', '-iter', '2000001');
  assert.throws(() => dormouse.createSecureContext({ cert: own.cert, key: costly, passphrase: 'secret' }), { code: 'ERR_TLS_INVALID_CONTEXT', message: /2000001 times/ });
  for (const how of [['ec', '-aes256'], ['ec', '-des3'], ['pkcs8', '-topk8', '-v1', 'PBE-SHA1-3DES'], ['pkcs8', '-topk8', '-v2prf', 'hmacWithSHA512']]) {
    dormouse.createSecureContext({ cert: own.cert, key: converted(...how), passphrase: 'secret' });
  }
  assert.throws(() => dormouse.createSecureContext({ cert: [own.cert, own.cert], key: own.key }), { code: 'ERR_TLS_INVALID_CONTEXT', message: /each chain needs its key/ });
  assert.throws(() => dormouse.createSecureContext({ cert: own.cert, key: issue().key }), { code: 'ERR_TLS_INVALID_CONTEXT' });
  assert.throws(() => dormouse.createSecureContext({ cert: 'x', key: own.key }), { code: 'ERR_TLS_INVALID_CONTEXT', message: /options\.cert/ });
  assert.throws(() => dormouse.createSecureContext({ ca: 'x' }), { code: 'ERR_TLS_INVALID_CONTEXT' });
});

test('callbacks and ticket keys of a wrong type', () => {
  for (const value of ['text', 42, {}, []]) {
    for (const name of ['ALPNCallback', 'SNICallback']) {
      for (const make of [(options) => dormouse.createServer(options), (options) => new dormouse.TLSSocket(new net.Socket(), { isServer: true, ...options })]) {
        assert.throws(() => make({ ...own, [name]: value }), { code: 'ERR_INVALID_ARG_TYPE', name: 'TypeError' });
      }
    }
  }
  const server = new dormouse.Server(own);
  for (const keys of [null, undefined, 0, 1n, Symbol('keys'), {}, [], true, '', () => {}]) {
    assert.throws(() => server.setTicketKeys(keys), { code: 'ERR_INVALID_ARG_TYPE' });
  }
  assert.throws(() => server.setTicketKeys(Buffer.alloc(47)), { code: 'ERR_INVALID_ARG_VALUE', message: /Session ticket keys must be a 48-byte buffer/ });
});

test('a signal that was aborted before makes no connection', async (t) => {
  const server = dormouse.createServer(own);
  server.on('connection', () => assert.fail('a connection'));
  const port = await listen(t, server);
  for (const host of ['127.0.0.1', 'localhost']) {
    const socket = dormouse.connect({ ...to, host, port, signal: AbortSignal.abort() });
    await assert.rejects(once(socket, 'close'), { name: 'AbortError' });
    assert.ok(socket.destroyed);
    assert.ok(!socket.connecting);
  }
});

test('a signal ends a connection over another stream, and that stream', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.resume()));
  for (const isBefore of [true, false]) {
    const transport = net.connect(port, '127.0.0.1');
    const aborts = new AbortController();
    if (isBefore) aborts.abort();
    const socket = dormouse.connect({ ...to, socket: transport, signal: aborts.signal });
    const closed = once(transport, 'close');
    if (!isBefore) {
      await once(socket, 'secureConnect');
      aborts.abort();
    }
    await assert.rejects(once(socket, 'close'), { name: 'AbortError' });
    await closed;
    assert.ok(socket.destroyed);
  }
});

test('older versions are allowed by minVersion, and not used', async (t) => {
  for (const minVersion of ['TLSv1', 'TLSv1.1']) {
    const port = await listen(t, dormouse.createServer({ ...own, minVersion, maxVersion: 'TLSv1.2' }, (socket) => socket.end()));
    const client = connect({ ...to, port, minVersion });
    await once(client, 'secureConnect');
    assert.equal(client.getProtocol(), 'TLSv1.2');
    const old = ['s_client', '-connect', `127.0.0.1:${port}`, minVersion === 'TLSv1' ? '-tls1' : '-tls1_1', '-cipher', 'ALL:@SECLEVEL=0'];
    assert.notEqual((await run('openssl', old)).code, 0);
    client.destroy();
  }
});

test('getSession() returns the newest session, if sessions are kept', async (t) => {
  const port = await listen(t, dormouse.createServer(own, (socket) => socket.write('x')));
  const client = async (options) => {
    const socket = connect({ ...to, port, ...options });
    await once(socket, 'data');
    return socket;
  };
  const first = await client({ keepSession: true });
  const session = first.getSession();
  assert.ok(session.length > 0);
  const second = await client({ session });
  assert.equal(second.isSessionReused(), true);
  const third = await client({});
  assert.equal(third.getSession(), undefined);
  for (const socket of [first, second, third]) socket.destroy();
  assert.equal(first.getSession(), null);
});

test('pfx: a chain, a key and authorities of a PKCS #12 file, as node:tls reads them', async (t) => {
  const inter = intermediate('inter');
  const leaf = issue({ by: 'inter', cn: 'leaf' });
  const files = { cert: write('pfx-cert.pem', leaf.cert), key: write('pfx-key.pem', leaf.key), chain: write('pfx-chain.pem', own.ca + authority('another') + inter) };
  const exported = (passphrase, ...more) => {
    const args = ['pkcs12', '-export', '-in', files.cert, '-inkey', files.key, '-certfile', files.chain, '-passout', `pass:${passphrase}`];
    return openssl(...args, ...more);
  };
  const forms = [
    [], ['-keypbe', 'PBE-SHA1-3DES', '-certpbe', 'PBE-SHA1-3DES', '-macalg', 'sha1'], ['-keypbe', 'AES-128-CBC', '-certpbe', 'AES-192-CBC', '-macalg', 'sha512'],
    ['-keypbe', 'NONE', '-certpbe', 'NONE'], ['-iter', '1', '-nomaciter'], ['-legacy'],
  ];
  const chainOf = async (module, options) => {
    const port = await listen(t, module.createServer(options, (socket) => socket.resume()));
    const client = tls.connect({ ...to, port });
    await once(client, 'secureConnect');
    const { subject, issuerCertificate } = client.getPeerCertificate(true);
    client.destroy();
    return [subject.CN, issuerCertificate.subject.CN];
  };
  for (const form of forms) {
    const pfx = exported('pässword', ...form);
    // Node's own OpenSSL has no RC2 by default.
    for (const module of form[0] === '-legacy' ? [dormouse] : [dormouse, tls]) {
      assert.deepEqual(await chainOf(module, { pfx, passphrase: 'pässword' }), ['leaf', 'inter']);
    }
  }
  const empty = exported('');
  assert.deepEqual(await chainOf(dormouse, { pfx: [{ buf: empty, passphrase: '' }] }), ['leaf', 'inter']);
  const pfx = exported('secret');
  assert.deepEqual(await chainOf(dormouse, { pfx: [{ buf: pfx, passphrase: 'secret' }] }), ['leaf', 'inter']);
  // Its authority is trusted.
  const port = await listen(t, tls.createServer({ ...leaf, cert: leaf.cert + inter }, (socket) => socket.resume()));
  const client = connect({ port, host: '127.0.0.1', servername: 'localhost', pfx, passphrase: 'secret' });
  await once(client, 'secureConnect');
  client.destroy();
  // The certificate of its key is none, also if it has issued itself.
  const alone = dormouse.selfSigned('localhost');
  const selfSigned = openssl('pkcs12', '-export', '-in', write('pfx-self.pem', alone.cert), '-inkey', write('pfx-self-key.pem', alone.key), '-passout', 'pass:x');
  for (const module of [tls, dormouse]) {
    const options = { pfx: selfSigned, passphrase: 'x', rejectUnauthorized: false };
    const server = module.createServer({ ...options, requestCert: true }, (socket) => socket.end(String(socket.authorizationError)));
    const itself = tls.connect({ ...options, host: '127.0.0.1', port: await listen(t, server) });
    assert.equal((await readAll(itself)).toString(), 'DEPTH_ZERO_SELF_SIGNED_CERT');
  }
  const changed = Buffer.from(pfx);
  changed[changed.length >> 1] ^= 1;
  const wrong = [
    [{ pfx, passphrase: 'wrong' }, /passphrase is wrong/], [{ pfx }, /passphrase is wrong/], [{ pfx: changed, passphrase: 'secret' }, /./],
    [{ pfx: pfx.subarray(0, 500), passphrase: 'secret' }, /bad pkcs12 data/], [{ pfx: leaf.cert }, /bad pkcs12 data/],
    [{ pfx: exported('x', '-nomac'), passphrase: 'x' }, /missing mac/],
  ];
  for (const [options, message] of wrong) {
    for (const module of [dormouse, tls]) assert.throws(() => module.createSecureContext(options), module === tls ? undefined : { message });
  }
  assert.throws(() => dormouse.createSecureContext({ pfx: 1 }), { code: 'ERR_INVALID_ARG_TYPE' });
});

test('what is not supported throws when it is asked for', async (t) => {
  const unavailable = { code: 'ERR_FEATURE_UNAVAILABLE' };
  for (const options of [{ sigalgs: 'x' }, { dhparam: 'auto' }, { privateKeyEngine: 'x' }, { maxVersion: 'TLSv1.1' },
    { secureOptions: crypto.constants.SSL_OP_LEGACY_SERVER_CONNECT }, { ciphers: 'ECDHE+AESGCM' }, { ciphers: 'HIGH:!CHACHA20' }]) {
    assert.throws(() => dormouse.createSecureContext(options), unavailable, JSON.stringify(options));
  }
  for (const ciphers of ['HIGH:!aNULL:!MD5', tls.DEFAULT_CIPHERS, `${tls.DEFAULT_CIPHERS}:!SEED`]) dormouse.createSecureContext({ ciphers });
  assert.throws(() => dormouse.createSecureContext({ minVersion: 'x' }), { code: 'ERR_TLS_INVALID_PROTOCOL_VERSION' });
  assert.throws(() => dormouse.createSecureContext({ secureProtocol: 'SSLv3_method' }), { code: 'ERR_TLS_INVALID_PROTOCOL_METHOD' });
  assert.throws(() => dormouse.createSecureContext({ secureProtocol: 'TLS_method', minVersion: 'TLSv1.2' }), { code: 'ERR_TLS_PROTOCOL_VERSION_CONFLICT' });
  assert.throws(() => dormouse.createSecureContext({ ciphers: 'AES128-SHA' }), { code: 'ERR_SSL_NO_CIPHER_MATCH' });
  assert.throws(() => dormouse.createSecureContext({ ecdhCurve: 'sect113r1' }), { code: 'ERR_TLS_INVALID_CONTEXT' });
  for (const options of [{ pskCallback() {} }, { requestOCSP: true }, { enableTrace: true }]) {
    assert.throws(() => connect({ port: 1, ...options }), unavailable);
  }
  const server = dormouse.createServer(own, (socket) => socket.end());
  for (const event of ['newSession', 'resumeSession', 'OCSPRequest']) assert.throws(() => server.on(event, () => {}), unavailable);
  const port = await listen(t, server);
  const client = connect({ ...to, port });
  await once(client, 'secureConnect');
  for (const method of ['renegotiate', 'getFinished', 'setMaxSendFragment', 'enableTrace', 'getCertificate']) {
    assert.throws(() => client[method](), unavailable, method);
  }
});

test('NODE_EXTRA_CA_CERTS that cannot be read', async () => {
  const script = `
    const dormouse = require(${JSON.stringify(require.resolve('..'))});
    const ours = [];
    process.on('warning', ({ message }) => ours.push(message));
    dormouse.createSecureContext().client({});
    setImmediate(() => console.log(ours.filter((one) => one.includes('missing.pem')).length));`;
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: 'missing.pem' };
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', script], { env, timeout: 20_000 });
  assert.ok(Number(stdout) >= 1, stdout);
});

test('ciphers', async (t) => {
  const port = await listen(t, dormouse.createServer({ ...own, ciphers: 'TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:!RC4' }, (socket) => socket.end()));
  for (const [version, name] of [['TLSv1.2', 'ECDHE-ECDSA-CHACHA20-POLY1305'], ['TLSv1.3', 'TLS_CHACHA20_POLY1305_SHA256']]) {
    const client = connect({ ...to, port, minVersion: version, maxVersion: version });
    await once(client, 'secureConnect');
    assert.equal(client.getCipher().name, name);
    assert.equal(client.getEphemeralKeyInfo().name.length > 0, true);
  }
});

test('setSecureContext replaces the certificate', async (t) => {
  const server = dormouse.createServer(own, (socket) => socket.pipe(socket));
  const port = await listen(t, server);
  const before = connect({ ...to, port });
  await once(before, 'secureConnect');
  server.setSecureContext(issue({ cn: 'renewed' }));
  const after = connect({ ...to, port });
  await once(after, 'secureConnect');
  assert.equal(after.getPeerCertificate().subject.CN, 'renewed');
  assert.equal(after.getPeerCertificate(true).issuerCertificate.subject.CN, 'ca');
  before.end('still there');
  assert.equal((await readAll(before)).toString(), 'still there');
  assert.throws(() => server.setSecureContext({ cert: 'x', key: 'y' }), { code: 'ERR_TLS_INVALID_CONTEXT' });
});

// Certbot's tutorials name the intermediate certificate in `ca`.
test('a chain is completed from the certificates in ca, as by node:tls', async (t) => {
  const inter = intermediate('inter');
  const leaf = issue({ by: 'inter', cn: 'leaf' });
  const shown = async (module, options) => {
    const port = await listen(t, module.createServer(options, (socket) => socket.end('well')));
    const { stdout } = await run('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, '-servername', 'localhost', '-showcerts']);
    const certificates = stdout.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----\n/g);
    return certificates.map((pem) => new crypto.X509Certificate(pem).subject);
  };
  const pair = { cert: leaf.cert, key: leaf.key };
  for (const ca of [[inter, own.ca], own.ca + inter, Buffer.from(`\ufeff${inter}`), inter.replaceAll('\n', '\r\n')]) {
    assert.deepEqual(await shown(dormouse, { ...pair, ca }), ['CN=leaf', 'CN=inter']);
    // OpenSSL adds the authority, too, if it has it.
    assert.deepEqual((await shown(tls, { ...pair, ca })).slice(0, 2), ['CN=leaf', 'CN=inter']);
  }
  assert.deepEqual(await shown(dormouse, { ...pair, ca: own.ca }), ['CN=leaf']);
  assert.deepEqual(await shown(dormouse, { ...pair, cert: leaf.cert + inter, ca: own.ca + inter }), ['CN=leaf', 'CN=inter']);
  // A client's chain is completed, too.
  const port = await listen(t, dormouse.createServer({ ...own, ca: own.ca, requestCert: true }, (socket) => socket.end(socket.getPeerCertificate(true).issuerCertificate.subject.CN)));
  const client = connect({ ...to, port, ...pair, ca: [own.ca, inter] });
  assert.equal((await readAll(client)).toString(), 'inter');
});

test('the issuers of a peer end in one that has issued itself, as in the manual of Node.js', async (t) => {
  const inter = intermediate('inter');
  const leaf = issue({ by: 'inter', cn: 'leaf' });
  const port = await listen(t, dormouse.createServer({ key: leaf.key, cert: leaf.cert + inter }, (socket) => socket.resume()));
  const lists = [];
  for (const module of [dormouse, tls]) {
    const client = module.connect({ ...to, port, ca: [own.ca, inter] });
    await once(client, 'secureConnect');
    const list = [];
    let certificate = client.getPeerCertificate(true);
    let last;
    do {
      list.push(certificate.subject.CN);
      last = certificate.fingerprint256;
      certificate = certificate.issuerCertificate;
    } while (certificate.fingerprint256 !== last);
    assert.equal(certificate.issuerCertificate, certificate);
    assert.equal(client.getPeerCertificate().issuerCertificate, undefined);
    lists.push(list);
    client.destroy();
  }
  assert.deepEqual(lists[0], ['leaf', 'inter', 'ca']);
  assert.deepEqual(lists[1], lists[0]);
  // What the peer sent can have any order, and certificates that do not belong there.
  const mixed = await listen(t, dormouse.createServer({ key: leaf.key, cert: leaf.cert + authority('another') + own.ca + inter }, (socket) => socket.resume()));
  const subjects = [];
  for (const module of [dormouse, tls]) {
    const client = module.connect({ ...to, port: mixed });
    await once(client, 'secureConnect');
    const certificate = client.getPeerCertificate(true);
    const issuer = certificate.issuerCertificate;
    subjects.push([certificate, issuer, issuer.issuerCertificate].map(({ subject }) => subject.CN));
    assert.equal(issuer.issuerCertificate.issuerCertificate, issuer.issuerCertificate);
    client.destroy();
  }
  assert.deepEqual(subjects, [['leaf', 'inter', 'ca'], ['leaf', 'inter', 'ca']]);
  // Nobody trusted knows the issuer.
  const stranger = connect({ ...to, port, ca: authority('another'), rejectUnauthorized: false });
  await once(stranger, 'secureConnect');
  assert.equal(stranger.getPeerCertificate(true).issuerCertificate.issuerCertificate, undefined);
  stranger.destroy();
});

test('nothing in a PEM text is passed over', () => {
  const both = own.ca + authority('another');
  const lines = own.ca.trim().split('\n').length;
  for (const ca of [`\ufeff${both}`, `${own.ca}\ufeff${authority('another')}`, Buffer.from(`subject=O = F\xf5o\n${both}`, 'latin1')]) {
    dormouse.createSecureContext({ ca, cert: own.cert, key: `\ufeff${own.key}` });
  }
  for (const [options, message] of [
    [{ ca: own.ca.trim() + own.ca }, new RegExp(`line ${lines}: -----END and other text in one line`)],
    [{ cert: own.cert.trim() + own.ca, key: own.key }, /options\.cert:\d+: -----END and other text in one line/],
    [{ ca: Buffer.from(own.ca, 'utf16le') }, /UTF-16/],
    [{ ca: own.ca.replaceAll('CERTIFICATE', 'PKCS7') }, /openssl pkcs7 -print_certs/],
  ]) {
    assert.throws(() => dormouse.createSecureContext(options), { code: 'ERR_TLS_INVALID_CONTEXT', message });
  }
});
