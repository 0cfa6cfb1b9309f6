'use strict';

// Shared parts of the tests: certificates, servers on free ports, other programs.

const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const { on, once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'dormouse-node-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

function openssl(...args) {
  return execFileSync('openssl', args, { cwd: folder, stdio: ['ignore', 'pipe', 'ignore'] });
}

const authorities = new Map();

/** Makes an authority, once. */
function authority(name = 'ca') {
  if (!authorities.has(name)) {
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30',
            '-subj', `/CN=${name}`, '-keyout', `${name}.key`, '-out', `${name}.pem`);
    authorities.set(name, fs.readFileSync(path.join(folder, `${name}.pem`), 'utf8'));
  }
  return authorities.get(name);
}

/** Issues a certificate: `{ cert, key, ca }`, PEM. */
function issue({ names = ['DNS:localhost', 'IP:127.0.0.1'], cn = 'localhost', by = 'ca', days = 30, rsa = false } = {}) {
  const ca = authority(by);
  const file = `leaf-${Math.random().toString(36).slice(2)}`;
  const extensions = names.length > 0 ? `subjectAltName=${names.join(',')}\n` : '';
  fs.writeFileSync(path.join(folder, `${file}.ext`), `basicConstraints=CA:FALSE\n${extensions}`);
  const kind = rsa ? ['rsa:2048'] : ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  openssl('req', '-newkey', ...kind, '-nodes', '-subj', `/CN=${cn}`, '-keyout', `${file}.key`, '-out', `${file}.csr`);
  openssl('x509', '-req', '-in', `${file}.csr`, '-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', String(days),
          '-extfile', `${file}.ext`, '-out', `${file}.pem`);
  const read = (end) => fs.readFileSync(path.join(folder, file + end), 'utf8');
  return { cert: read('.pem'), key: read('.key'), ca };
}

/** Makes an authority that another one has signed, once. */
function intermediate(name, by = 'ca') {
  if (!authorities.has(name)) {
    authority(by);
    fs.writeFileSync(path.join(folder, `${name}.ext`), 'basicConstraints=critical,CA:TRUE\n');
    openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', `/CN=${name}`, '-keyout', `${name}.key`,
            '-out', `${name}.csr`);
    openssl('x509', '-req', '-in', `${name}.csr`, '-CA', `${by}.pem`, '-CAkey', `${by}.key`, '-CAcreateserial', '-days', '30',
            '-extfile', `${name}.ext`, '-out', `${name}.pem`);
    authorities.set(name, fs.readFileSync(path.join(folder, `${name}.pem`), 'utf8'));
  }
  return authorities.get(name);
}

/** Lets a server listen on a free port until the test ends. Returns the port. */
async function listen(t, server, host = '127.0.0.1') {
  const sockets = new Set();
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  server.on('secureConnection', (socket) => socket.on('error', () => {}));
  server.listen(0, host);
  await once(server, 'listening');
  t.after(() => new Promise((resolve) => {
    server.close(resolve);
    for (const socket of sockets) socket.destroy();
  }));
  return server.address().port;
}

/** Collects a stream's data until it ends. The stream stays open for writing. */
function readAll(stream) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.on('end', () => resolve(Buffer.concat(chunks)));
    stream.on('error', reject);
    stream.resume();
  });
}

/** Connects, and ignores errors that come when the test is over. */
function connect(options, callback) {
  const socket = require('..').connect(options, callback);
  socket.on('error', () => {});
  return socket;
}

/** A client that sends nothing by itself after the server's messages. Returns the last message of its handshake too. */
async function clientByHand(port, ca) {
  const native = require('../lib/native');
  const number = native.connect(require('..').createSecureContext({ ca }).client({}), 'localhost');
  native.receive(number, Buffer.alloc(0), 0);
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(native.takeOutput(number));
  for await (const [chunk] of on(socket, 'data')) {
    const isEstablished = (native.receive(number, chunk, chunk.length) & 2) !== 0;
    if (isEstablished) return { socket, number, last: native.takeOutput(number) };
  }
}

/** Seals a short text for the peer of a connection by hand. */
function sealed(number, text) {
  const output = Buffer.alloc(100 + text.length);
  return output.subarray(0, require('../lib/native').seal(number, Buffer.from(text), output));
}

/** Runs another program: `{ code, stdout, stderr }`. */
async function run(command, args, { input = '', timeout = 20_000 } = {}) {
  const child = spawn(command, args, { timeout });
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const outputs = Promise.all([readAll(child.stdout), readAll(child.stderr)]);
  const [code] = await once(child, 'close');
  const [stdout, stderr] = await outputs;
  return { code, stdout: stdout.toString(), stderr: stderr.toString() };
}

/** Writes a file for another program and returns its path. */
function write(name, text) {
  const file = path.join(folder, name);
  fs.writeFileSync(file, text);
  return file;
}

/** Settles with the first event of an emitter: `[event, ...arguments]`. */
function first(emitter, ...events) {
  return new Promise((resolve) => {
    for (const event of events) emitter.once(event, (...args) => resolve([event, ...args]));
  });
}

function hasProgram(name) {
  try {
    execFileSync('which', [name], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Loads a package of others, or skips the test. */
function need(t, name) {
  try {
    return require(name);
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    t.skip(`the npm package ${name} is not installed`);
    return null;
  }
}

const register = path.join(__dirname, '..', 'lib', 'register.js');
/** The beginning of such modules. */
const prelude = (own) => `
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
const require = createRequire(${JSON.stringify(__filename)});
const dormouse = require('..');
const own = ${JSON.stringify(own)};
const to = { host: '127.0.0.1', servername: 'localhost', ca: own.ca };
const warnings = [];
process.on('warning', (warning) => warnings.push(warning.message));
async function listening(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}
`;

/** Runs an ES module in a process with the package in place. */
async function inPlace(name, code) {
  const file = write(`${name}.mjs`, `${prelude(issue())}${code}\nconsole.log('well');\nprocess.exit();\n`);
  const { code: status, stdout, stderr } = await run('node', ['--import', register, file]);
  assert.deepEqual([status, stdout], [0, 'well\n'], stderr);
}

module.exports = {
  authority, clientByHand, connect, first, folder, hasProgram, inPlace, intermediate, issue, listen, need, openssl, readAll, run, sealed, write,
};
