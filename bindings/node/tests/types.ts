// A program in TypeScript, which `types.test.js` only compiles.

import * as net from 'node:net';
import * as nodeHttps from 'node:https';
import * as dormouse from '../lib/index';
import * as https from '../lib/https';

const own = dormouse.selfSigned('localhost');
const options = {
  ...own,
  ALPNProtocols: ['h2'],
  SNICallback: (name: string, done: (error: Error | null, context?: dormouse.SecureContext) => void) => {
    done(null, dormouse.createSecureContext(own));
  },
};
const server: dormouse.Server = dormouse.createServer(options, (secure: dormouse.TLSSocket) => {
  const exported = secure.export();
  const state: Buffer = exported.state;
  const socket: net.Socket = exported.socket;
  server.restore(state, socket);
});
server.listen(8443);

const client = dormouse.connect({ port: 8443, host: 'localhost', ca: own.cert }, () => {
  const protocol: string | null = client.getProtocol();
  const authorized: boolean = client.authorized;
  client.end(`${protocol} ${authorized}`);
});

https.createServer(own, (request, response) => {
  response.end(request.url);
}).listen(8444);
const agent = new https.Agent({ keepAlive: true });
nodeHttps.get({ host: 'localhost', agent });
https.get('https://localhost', (response) => response.resume());

// @ts-expect-error A port is a number.
dormouse.connect({ port: {} });
