'use strict';

// A server for `compare`: server.js KIND TLS CERTIFICATE KEY. It prints its port, and answers requests about itself.
//
// KIND: echo, http, express, ws. TLS: plain, own, dormouse.

const fs = require('node:fs');
const v8 = require('node:v8');
const vm = require('node:vm');

const [kind, tls, certificate, key] = process.argv.slice(2);
v8.setFlagsFromString('--expose-gc');
const collect = vm.runInNewContext('gc');

const modules = {
  echo: { plain: 'node:net', own: 'node:tls', dormouse: '..' },
  http: { plain: 'node:http', own: 'node:https', dormouse: '../lib/https' },
};
modules.express = modules.ws = modules.http;
const listeners = {
  echo: (socket) => {
    socket.on('data', echo);
    socket.on('error', ignore);
  },
  http: (request, response) => {
    response.setHeader('Content-Length', 2);
    response.end('ok');
  },
};

function echo(data) {
  this.write(data);
}

function ignore() {}

if (kind === 'express') listeners.express = require('express')().get('/', (request, response) => response.send('ok'));
const options = tls === 'plain' ? {} : { cert: fs.readFileSync(certificate), key: fs.readFileSync(key) };
const server = require(modules[kind][tls]).createServer(options, listeners[kind]);
if (kind === 'ws') {
  const { WebSocketServer } = require('ws');
  new WebSocketServer({ server }).on('connection', (socket) => {
    socket.on('message', (data) => socket.send(data));
    socket.on('error', ignore);
  });
}
server.keepAliveTimeout = 0;
server.requestTimeout = 0;
server.listen({ port: 0, host: '127.0.0.1', backlog: 1000 }, () => console.log(server.address().port));
const requests = {
  memory: () => {
    collect();
    collect();
    setTimeout(() => {
      collect();
      process.send(memory());
    }, 500);
  },
  snapshot: (file) => {
    v8.writeHeapSnapshot(file);
    process.send('written');
  },
};

process.on('message', ([request, argument]) => requests[request](argument));

function memory() {
  const { heapUsed, external } = process.memoryUsage();
  // Of V8's heap: what is resident, used or not.
  return { heapUsed, external, heapResident: v8.getHeapStatistics().total_physical_size };
}
