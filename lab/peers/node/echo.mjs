// node echo.mjs default|memory|plain|ticket-key|ticket-key-alone PORT CERT KEY
import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';

const [variant, port, cert, key] = process.argv.slice(2);

function pipe(socket) {
  socket.pipe(socket);
}

function write(socket) {
  socket.on('data', (bytes) => {
    if (!socket.write(bytes)) socket.pause();
  });
  socket.on('drain', () => socket.resume());
  socket.on('end', () => socket.end());
}

const echo = variant === 'memory' ? write : pipe;
const options = { allowHalfOpen: true, noDelay: true };
const identity = { cert: readFileSync(cert), key: readFileSync(key) };
// By default the context is a hash of the command line, so processes with different command lines
// do not resume each other's sessions.
if (variant === 'ticket-key') Object.assign(identity, { ticketKeys: Buffer.alloc(48, 1), sessionIdContext: 'lab' });
if (variant === 'ticket-key-alone') identity.ticketKeys = Buffer.alloc(48, 1);
function serve(socket) {
  socket.on('error', () => {}); // a connection's error is its own end
  echo(socket);
}
const server =
  variant === 'plain' ? net.createServer(options, serve) : tls.createServer({ ...identity, ...options }, serve);
server.on('tlsClientError', () => {});
server.listen({ host: '127.0.0.1', port: Number(port), backlog: 4096 });
