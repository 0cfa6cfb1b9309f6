'use strict';

// Child processes and clusters: which process has which connection.

const assert = require('node:assert/strict');
const { fork, spawn } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');
const test = require('node:test');
const dormouse = require('..');
const https = require('../lib/https');
const { first, issue, listen, readAll, write } = require('./support');

const own = issue();
const PACKAGE = JSON.stringify(path.join(__dirname, '..'));
const REQUESTS_MAX = 500;

const CLUSTER = `
const cluster = require('node:cluster');
const { createServer } = require(${PACKAGE} + '/lib/https');
if (cluster.isPrimary) {
  const workers = [cluster.fork(), cluster.fork()];
  let ready = 0;
  for (const worker of workers) {
    worker.on('message', ({ port }) => { if (++ready === workers.length) process.send({ port }); });
  }
  process.on('disconnect', () => { for (const worker of workers) worker.kill(); });
} else {
  const own = ${JSON.stringify(own)};
  const server = createServer(own, (request, response) => response.end(String(process.pid)));
  server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
}
`;

function get(port) {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, servername: 'localhost', ca: own.ca, agent: false };
    https.get(options, (response) => readAll(response).then(String, reject).then(resolve)).on('error', reject);
  });
}

test('the workers of a cluster share a port', async (t) => {
  const primary = fork(write('cluster.js', CLUSTER));
  t.after(() => primary.disconnect());
  const [{ port }] = await once(primary, 'message');
  const pids = new Set();
  for (let i = 0; i < REQUESTS_MAX && pids.size < 2; i++) pids.add(await get(port));
  assert.equal(pids.size, 2, `only ${[...pids]} answered`);
});

for (const how of ['fork', 'spawn']) {
  test(`${how}() does not pass connections on`, async (t) => {
    const server = dormouse.createServer(own);
    const port = await listen(t, server);
    const client = dormouse.connect({ host: '127.0.0.1', port, servername: 'localhost', ca: own.ca });
    const [[socket]] = await Promise.all([once(server, 'secureConnection'), once(client, 'secureConnect')]);
    const script = write('idle.js', 'setInterval(() => {}, 1000); console.log("ready");');
    const child = how === 'fork'
      ? fork(script, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
      : spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
    t.after(() => child.kill());
    await once(child.stdout, 'data');
    socket.write('after');
    assert.equal(String((await once(client, 'data'))[0]), 'after');
    // If the child had the descriptor, too, the connection would not end here.
    client.on('error', () => {});
    const ended = first(client, 'close');
    socket.destroy();
    await ended;
  });
}
