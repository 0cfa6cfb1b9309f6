'use strict';

// Shared parts of the tests: certificates, servers on free ports, other programs.

const { execFileSync, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
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

module.exports = { authority, connect, first, folder, hasProgram, issue, listen, need, openssl, readAll, run, write };
