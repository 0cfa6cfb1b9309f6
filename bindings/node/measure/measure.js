'use strict';

// Measures the servers of server.js, each several times, in turn: bytes of quiet connections. `../../cpu.py`
// measures CPU time.
//
//     measure.js [--connections 4900] [--runs 3] [--only KIND…] [--histogram] [--dry]
//
// The client is the same for all: node:net and node:tls.

const { execFileSync, fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const tls = require('node:tls');
const { parseArgs } = require('node:util');

const { grown, histogram } = require('./heap');

const RESULTS = path.join(__dirname, '..', '..', '..', 'lab', 'results');
const KINDS = { echo: 'echo', http: 'http.Server', express: 'express', ws: 'ws' };
// Those whose CPU time `../../cpu.py` measures.
const WITH_CPU = ['echo', 'http'];
const TLS = ['plain', 'own', 'dormouse'];
// Maximum bytes that Dormouse may add to plaintext.
const GOAL = 1536;
const WARM_UP = 500;
// So that the JIT compiler is done before memory is measured.
const WARM_ECHOES = 5000;
// The young generation grows by steps of megabytes, at any time, and would hide the connections.
const V8_FLAGS = ['--max-semi-space-size=1'];

const messages = {
  echo: Buffer.alloc(100, 'x'),
  http: Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'),
  // A frame with a mask of zeros (RFC 6455 section 5.2).
  ws: Buffer.concat([Buffer.from([0x82, 0x80 | 100, 0, 0, 0, 0]), Buffer.alloc(100, 'x')]),
};
messages.express = messages.http;
const UPGRADE = Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
  'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n');

class Server {
  static async start(kind, tlsKind, files) {
    const server = new Server();
    server.kind = kind;
    server.child = fork(path.join(__dirname, 'server.js'), [kind, tlsKind, files.certificate, files.key], {
      execArgv: V8_FLAGS,
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    });
    // Without it, this process would end with success: nothing else keeps it alive.
    const ended = once(server.child, 'exit').then(([code]) => { throw new Error(`the server ended with ${code}`); });
    server.port = Number(await Promise.race([once(server.child.stdout, 'data'), ended]));
    server.secure = tlsKind === 'plain' ? null : tls.createSecureContext({ ca: files.pem });
    return server;
  }

  async connect() {
    const to = { port: this.port, host: '127.0.0.1', servername: 'localhost', secureContext: this.secure };
    const socket = this.secure ? tls.connect(to) : net.connect(to);
    await once(socket, this.secure ? 'secureConnect' : 'connect');
    socket.setNoDelay(true);
    if (this.kind === 'ws') await talk('ws', socket, UPGRADE);
    return socket;
  }

  /** Asks the server about itself. */
  async ask(...request) {
    this.child.send(request);
    const [answer] = await once(this.child, 'message');
    return answer;
  }

  /** Returns the server's memory in bytes, after a collection. */
  async memory() {
    const heap = await this.ask('memory');
    const rollup = fs.readFileSync(`/proc/${this.child.pid}/smaps_rollup`, 'utf8');
    return { bytes: Number(/^Pss:\s+(\d+)/m.exec(rollup)[1]) * 1024, ...heap };
  }

  async heap() {
    const file = path.join(os.tmpdir(), `dormouse-measure-${this.child.pid}.heapsnapshot`);
    await this.ask('snapshot', file);
    const found = histogram(JSON.parse(fs.readFileSync(file)));
    fs.unlinkSync(file);
    return found;
  }

  stop() {
    this.child.kill('SIGKILL');
  }
}

/** Sends a message and waits for its answer: an echo of the same length, or one packet. */
function talk(kind, socket, data = messages[kind]) {
  let left = kind === 'echo' ? data.length : 1;
  return new Promise((resolve) => {
    socket.on('data', function read(chunk) {
      left -= chunk.length;
      if (left > 0) return;
      socket.off('data', read);
      resolve();
    });
    socket.write(data);
  });
}

async function measure(kind, tlsKind, files, connections) {
  return withConnections(kind, tlsKind, files, async (server, connect) => {
    const before = await server.memory();
    await connect(connections);
    const after = await server.memory();
    const each = (name) => (after[name] - before[name]) / connections;
    return {
      bytes: each('bytes'),
      heap: each('heapUsed'),
      outside: each('bytes') - each('heapResident'),
    };
  });
}

/** What V8's heap has more of with each connection. */
async function measureHeap(kind, tlsKind, files, connections) {
  return withConnections(kind, tlsKind, files, async (server, connect) => {
    const before = await server.heap();
    await connect(connections);
    return grown(before, await server.heap(), connections);
  });
}

/** Calls `work` with a server that has had connections before, and a function that makes more. */
async function withConnections(kind, tlsKind, files, work) {
  const server = await Server.start(kind, tlsKind, files);
  const sockets = [];
  try {
    for (let i = 0; i < WARM_UP; i++) {
      const socket = await server.connect();
      await talk(kind, socket);
      if (i === 0) {
        for (let echo = 0; echo < WARM_ECHOES; echo++) await talk(kind, socket);
      }
      socket.destroy();
    }
    return await work(server, async (count) => {
      for (let i = 0; i < count; i++) {
        sockets.push(await server.connect());
        await talk(kind, sockets[i]);
      }
      return sockets;
    });
  } finally {
    for (const socket of sockets) socket.destroy();
    server.stop();
  }
}

function certificate(folder) {
  const files = { certificate: path.join(folder, 'cert.pem'), key: path.join(folder, 'key.pem') };
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', files.key,
    '-out', files.certificate, '-subj', '/CN=localhost', '-days', '30', '-addext', 'subjectAltName=DNS:localhost',
    '-addext', 'basicConstraints=critical,CA:FALSE'], { stdio: 'ignore' });
  return { ...files, pem: fs.readFileSync(files.certificate) };
}

function interval(values) {
  const text = (value) => value.toLocaleString('en', { maximumFractionDigits: 0 });
  const [low, high] = [text(Math.min(...values)), text(Math.max(...values))];
  return low === high ? low : `${low} to ${high}`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

const COLUMNS = [
  ['bytes', 18, 'bytes'], ['heap', 18, 'heap'], ["outside V8's heap", 20, 'outside'],
];

/** Writes the figures of all runs, a line for each server. */
function table(out, kinds, found) {
  out(' '.repeat(24) + COLUMNS.map(([title, width]) => title.padStart(width)).join(''));
  for (const kind of kinds) {
    for (const tlsKind of TLS) {
      const runs = found[`${kind} ${tlsKind}`];
      const cells = COLUMNS.map(([, width, name]) => interval(runs.map((one) => one[name])).padStart(width));
      out(KINDS[kind].padEnd(14) + tlsKind.padEnd(10) + cells.join(''));
    }
    const plain = found[`${kind} plain`];
    const added = found[`${kind} dormouse`].map((one, i) => one.bytes - plain[i].bytes);
    out(`${''.padEnd(14)}dormouse adds ${interval(added)}; goal ${GOAL}: ${median(added) <= GOAL ? 'reached' : 'NOT REACHED'}`);
    out();
  }
}

/** Adds the figures to the result of all runtimes, as side_by_side.py does. */
function keep(file, kinds, found) {
  const result = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file)) : {};
  const servers = {};
  for (const kind of kinds.filter((one) => WITH_CPU.includes(one))) {
    servers[KINDS[kind]] = Object.fromEntries(TLS.map((tlsKind) => [tlsKind, found[`${kind} ${tlsKind}`]]));
  }
  result['Node.js'] = { ...result['Node.js'], bytes: servers };
  fs.writeFileSync(file, `${JSON.stringify(result, null, 1)}\n`);
}

async function main() {
  const { values: chosen } = parseArgs({
    options: {
      connections: { type: 'string', default: '4900' },
      runs: { type: 'string', default: '3' },
      only: { type: 'string', multiple: true, default: Object.keys(KINDS) },
      histogram: { type: 'boolean', default: false },
      dry: { type: 'boolean', default: false },
    },
  });
  const connections = Number(chosen.connections);
  const lines = [];
  const out = (line = '') => {
    console.log(line);
    lines.push(line);
  };
  const load = (when) => out(`load ${when}: ${os.loadavg().map((one) => one.toFixed(1)).join(' ')}`);
  out(`Servers in Node.js with ${connections} quiet connections, one echo or request each; ${chosen.runs} runs in turn`);
  out(`machine: ${os.cpus().length} cores, ${os.release()}; Node.js ${process.versions.node}; OpenSSL ${process.versions.openssl}`);
  load('before');
  out("bytes: proportional set size, after a collection; heap: objects in V8's heap; outside: the rest, without the heap's free room");
  out('own: node:tls');
  out(`all with ${V8_FLAGS.join(' ')}, because V8's young generation grows by megabytes at any time`);
  out();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'dormouse-measure-'));
  const files = certificate(folder);
  const found = {};
  for (let run = 0; run < Number(chosen.runs); run++) {
    for (const kind of chosen.only) {
      for (const tlsKind of TLS) {
        const result = await measure(kind, tlsKind, files, connections);
        (found[`${kind} ${tlsKind}`] ??= []).push(result);
        console.error(`${kind}, ${tlsKind}: ${result.bytes.toFixed(0)} bytes, heap ${result.heap.toFixed(0)}`);
      }
    }
  }
  table(out, chosen.only, found);
  for (const kind of chosen.histogram ? chosen.only : []) {
    for (const tlsKind of ['plain', 'dormouse']) {
      out(`Objects in V8's heap for each connection, ${KINDS[kind]}, ${tlsKind}:`);
      for (const line of await measureHeap(kind, tlsKind, files, connections)) out(line);
    }
  }
  load('after');
  fs.rmSync(folder, { recursive: true });
  if (chosen.dry) return;
  const date = new Date().toISOString().slice(0, 10);
  const file = path.join(RESULTS, `node-${date}.txt`);
  fs.writeFileSync(file, `${lines.join('\n')}\n`);
  console.log(`written: ${file}`);
  keep(path.join(RESULTS, `runtimes-${date}.json`), chosen.only, found);
}

main();
