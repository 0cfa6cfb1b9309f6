'use strict';

// An echo server that replaces itself on SIGHUP, for example with new code, and loses no connection.
//
//     node examples/restart.js cert.pem key.pem [port]
//
// The old process starts a new one, hands over the listening socket, then each connection: the socket as a handle,
// the TLS state as bytes. It exits when all connections are gone.

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const dormouse = require('..');

const [certificate, key, port = '0'] = process.argv.slice(2);
const sockets = new Set();
const server = dormouse.createServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key) }, serve);

function serve(socket) {
  sockets.add(socket);
  socket.on('close', () => sockets.delete(socket));
  socket.on('error', (error) => console.error(error.message));
  socket.on('data', (data) => socket.write(`${process.pid}: ${data}`));
}

server.on('listening', () => console.log(`serving ${server.address().port} ${process.pid}`));
if (process.env.SUCCESSOR) {
  process.on('message', (message, handle) => {
    if (message === 'listen') server.listen(handle);
    else if (handle) server.restore(message.state, handle); // a peer may have gone meanwhile
  });
} else {
  server.listen(Number(port), '127.0.0.1');
}

process.once('SIGHUP', async () => {
  // The predecessor may still be moving its connections here.
  if (process.connected) await once(process, 'disconnect');
  const successor = fork(__filename, process.argv.slice(2), { env: { ...process.env, SUCCESSOR: '1' }, serialization: 'advanced' });
  const send = (message, handle) => new Promise((resolve) => successor.send(message, handle, resolve));
  await send('listen', server);
  // Emitted when the last connection is gone. The successor accepts new ones.
  server.close(() => successor.disconnect());
  const moving = setInterval(() => {
    for (const socket of sockets) {
      if (!isQuiet(socket)) continue;
      const { state, socket: plain } = socket.export();
      send({ state }, plain);
    }
    if (sockets.size === 0 && !server.listening) clearInterval(moving);
  }, 10);
});

/** Whether a connection can move now. Otherwise it can soon, or it is about to end. */
function isQuiet(socket) {
  return socket.writableLength === 0 && socket._handle?.writeQueueSize === 0 && !socket.readableEnded && !socket.writableEnded;
}
