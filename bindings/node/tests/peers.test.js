'use strict';

// Server and client against other programs: openssl, curl, node:tls.

const assert = require('node:assert/strict');
const { once } = require('node:events');
const tls = require('node:tls');
const test = require('node:test');
const dormouse = require('..');
const https = require('../lib/https');
const { hasProgram, issue, listen, readAll, run, write } = require('./support');

const own = issue();
const rsa = issue({ rsa: true });

function echo(options = own) {
  return dormouse.createServer(options, (socket) => socket.pipe(socket));
}

for (const version of ['TLSv1.2', 'TLSv1.3']) {
  for (const [kind, identity] of [['ECDSA', own], ['RSA', rsa]]) {
    test(`a server with node:tls as client, ${version}, ${kind}`, async (t) => {
      const port = await listen(t, echo({ ...identity, minVersion: version, maxVersion: version }));
      const client = tls.connect({ port, ca: identity.ca, host: '127.0.0.1', servername: 'localhost' });
      await once(client, 'secureConnect');
      assert.equal(client.getProtocol(), version);
      assert.equal(client.authorized, true);
      client.end('hello');
      assert.equal((await readAll(client)).toString(), 'hello');
    });

    test(`a client with node:tls as server, ${version}, ${kind}`, async (t) => {
      const server = tls.createServer({ ...identity, minVersion: version, maxVersion: version }, (socket) => socket.pipe(socket));
      const port = await listen(t, server);
      const client = dormouse.connect({ port, ca: identity.ca, host: '127.0.0.1', servername: 'localhost' });
      await once(client, 'secureConnect');
      assert.equal(client.getProtocol(), version);
      assert.equal(client.authorized, true);
      assert.equal(client.getCipher().version, version);
      client.end('hello');
      assert.equal((await readAll(client)).toString(), 'hello');
    });
  }
}

test('a server and a client of ours', async (t) => {
  const port = await listen(t, echo());
  const client = dormouse.connect({ port, host: '127.0.0.1', ca: own.ca }, () => client.end('hello'));
  assert.equal((await readAll(client)).toString(), 'hello');
  assert.equal(client.servername, false, 'an address is no server name');
});

test('ten megabytes each way, with backpressure', async (t) => {
  const port = await listen(t, echo());
  const client = dormouse.connect({ port, host: '127.0.0.1', ca: own.ca });
  const sent = require('node:crypto').randomBytes(10 << 20);
  client.end(sent);
  client.pause();
  await once(client, 'secureConnect');
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.ok(client.readableLength < 2 << 20, 'a paused socket does not collect everything');
  assert.ok((await readAll(client)).equals(sent));
});

test('openssl s_client', { skip: !hasProgram('openssl') }, async (t) => {
  const server = dormouse.createServer(own, (socket) => {
    socket.end(`${socket.getProtocol()} ${socket.getCipher().name} ${socket.servername}\n`);
  });
  const port = await listen(t, server);
  for (const [flag, version] of [['-tls1_2', 'TLSv1.2'], ['-tls1_3', 'TLSv1.3']]) {
    const { stdout } = await run('openssl', ['s_client', '-quiet', flag, '-verify_return_error', '-CAfile', write('ca.pem', own.ca),
      '-servername', 'localhost', '-connect', `127.0.0.1:${port}`]);
    assert.match(stdout, new RegExp(`^${version} [A-Z0-9_-]+ localhost$`, 'm'));
  }
});

test('curl', { skip: !hasProgram('curl') }, async (t) => {
  const server = https.createServer(own, (request, response) => response.end(`hello ${request.method} ${request.socket.encrypted}`));
  const port = await listen(t, server);
  const { stdout, stderr, code } = await run('curl', ['-sS', '--cacert', write('ca.pem', own.ca), `https://localhost:${port}/`,
    `https://localhost:${port}/again`, '-d', 'x']);
  assert.equal(code, 0, stderr);
  assert.equal(stdout, 'hello POST truehello POST true');
});

test('a peer without TLS', async (t) => {
  const server = echo();
  const port = await listen(t, server);
  const socket = require('node:net').connect(port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\n\r\n');
  const [error] = await once(server, 'tlsClientError');
  assert.equal(error.code, 'ERR_SSL_HTTP_REQUEST');
  socket.destroy();
});
