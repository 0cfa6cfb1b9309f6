'use strict';

// Servers and clients for HTTPS, in the shape of node:https.

const http = require('node:http');
const https = require('node:https');
const { request: nodeRequest } = https;
const { connect } = require('./connect');
const { callable } = require('./errors');
const { withTls } = require('./server');

const Server = callable(class Server extends withTls(http.Server) {
  constructor(options, listener) {
    if (typeof options === 'function') [options, listener] = [{}, options];
    const alpn = options?.ALPNProtocols || options?.ALPNCallback ? {} : { ALPNProtocols: ['http/1.1'] };
    super({ ...alpn, ...options });
    this.on('tlsClientError', (error, socket) => {
      if (!this.emit('clientError', error, socket)) socket.destroy(error);
    });
    if (listener) this.on('request', listener);
  }
});

/** Opens connections for node:https, and lets them resume sessions. */
const Agent = callable(class Agent extends https.Agent {
  createConnection(...args) {
    const options = optionsOf(...args);
    const key = options._agentKey;
    const session = key && this._getSession(key);
    const socket = connect(session ? { session, ...options } : options);
    if (key) {
      socket.on('session', (newest) => this._cacheSession(key, newest));
      socket.once('close', (hadError) => {
        if (hadError) this._evictSession(key);
      });
    }
    return socket;
  }
});

/** createConnection(options), createConnection(port[, host][, options]) */
function optionsOf(port, host, options) {
  if (port !== null && typeof port === 'object') return port;
  const given = { ...(host !== null && typeof host === 'object' ? host : options) };
  if (typeof port === 'number') given.port = port;
  if (typeof host === 'string') given.host = host;
  return given;
}

const globalAgent = new Agent({ keepAlive: true, scheduling: 'lifo', timeout: 5000 });

/** request(options[, callback]), request(url[, options][, callback]) */
function request(...args) {
  const callback = typeof args.at(-1) === 'function' ? [args.pop()] : [];
  const options = args.at(-1) instanceof URL || typeof args.at(-1) === 'string' ? {} : args.pop();
  return nodeRequest(...args, { ...options, agent: agentOf(options ?? {}) }, ...callback);
}

/** Chooses as node:https does, which would take agents of its own. */
function agentOf({ agent, createConnection }) {
  if (agent === false) return new Agent();
  if (agent !== undefined && agent !== null) return agent;
  return typeof createConnection === 'function' ? undefined : globalAgent;
}

function get(...args) {
  const sent = request(...args);
  sent.end();
  return sent;
}

function createServer(options, listener) {
  return new Server(options, listener);
}

module.exports = { Agent, Server, createServer, get, globalAgent, request };
