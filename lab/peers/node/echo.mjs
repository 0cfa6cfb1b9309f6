// node echo.mjs default|memory PORT CERT KEY
import { readFileSync } from 'node:fs';
import { createServer } from 'node:tls';

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
const server = createServer({ cert: readFileSync(cert), key: readFileSync(key), allowHalfOpen: true, noDelay: true }, (socket) => {
  socket.on('error', () => {}); // a connection's error is its own end
  echo(socket);
});
server.on('tlsClientError', () => {});
server.listen({ host: '127.0.0.1', port: Number(port), backlog: 4096 });
