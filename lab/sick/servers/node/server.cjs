// An echo server on Node.js with one fault, and its healthy twins: node server.cjs FAULT HOST:PORT CERTIFICATE KEY
//
//   fault      what it does                                                    twin
//   leak       keeps a text of 4 kB of each connection for ever                bounded: of the last hundred
//   listeners  adds a listener to the process for each connection              healthy
//   context    a secure context for each connection, by SNICallback            context-cached
//   no-tickets neither tickets nor a session store                             healthy
const { readFileSync } = require('node:fs');
const tls = require('node:tls');
const { constants } = require('node:crypto');

const [fault, address, certificate, key] = process.argv.slice(2);
const identity = { cert: readFileSync(certificate), key: readFileSync(key) };
const trusting = { ...identity, ca: readFileSync('/etc/ssl/certs/ca-certificates.crt') };
const kept = [];
const cached = fault === 'context-cached' ? tls.createSecureContext(trusting) : undefined;

const options = { ...identity };
if (fault === 'context') options.SNICallback = (_, done) => done(null, tls.createSecureContext(trusting));
if (fault === 'context-cached') options.SNICallback = (_, done) => done(null, cached);
if (fault === 'no-tickets') options.secureOptions = constants.SSL_OP_NO_TICKET;

const server = tls.createServer(options, (socket) => {
  socket.on('error', () => {});
  if (fault === 'leak' || fault === 'bounded') {
    kept.push(Buffer.alloc(4096, kept.length).toString('latin1'));
    if (fault === 'bounded' && kept.length > 100) kept.shift();
  }
  if (fault === 'listeners') {
    process.setMaxListeners(0);
    process.on('SIGUSR2', () => socket.destroy());
  }
  socket.on('data', (data) => socket.write(data));
});
server.on('tlsClientError', () => {});
const colon = address.lastIndexOf(':');
server.listen({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)), backlog: 4096 });
