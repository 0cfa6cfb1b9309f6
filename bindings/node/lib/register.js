'use strict';

// `node --import dormouse/register app.js`: puts this package where a program and its libraries ask for node:tls.
//
// node:https needs its server replaced only: its clients call `tls.connect`. What this package lacks is Node's own, with a
// warning. Node's own functions call each other by way of the module, so ours must step aside while they run.

const https = require('node:https');
const { syncBuiltinESMExports } = require('node:module');
const tls = require('node:tls');
const { open } = require('./connect');
const dormouse = require('./index');
const ourHttps = require('./https');

// Errors for what Node's own TLS has and ours not.
const LACKING = new Set(['ERR_FEATURE_UNAVAILABLE', 'ERR_SSL_NO_CIPHER_MATCH', 'ERR_TLS_INVALID_PROTOCOL_METHOD']);

const node = pick(tls, 'TLSSocket', 'Server', 'SecureContext', 'connect', 'createSecureContext');
const nodeHttps = pick(https, 'Server');
let isNodeRunning = false;
const warned = new Set();

function pick(module, ...names) {
  return Object.fromEntries(names.map((name) => [name, module[name]]));
}

/** Runs Node's own code. */
function inNode(call) {
  const before = isNodeRunning;
  isNodeRunning = true;
  try {
    return call();
  } finally {
    isNodeRunning = before;
  }
}

/** Calls ours; if it lacks something, warns and calls Node's own. */
function orNode(what, isServer, ours, theirs) {
  if (isNodeRunning) return theirs();
  try {
    return ours();
  } catch (error) {
    if (!LACKING.has(error.code)) throw error;
    warn(`${what} uses Node's own TLS: ${error.message}`, isServer);
    return inNode(theirs);
  }
}

/** Warns: of each server, and of each cause once for clients. */
function warn(text, isServer) {
  if (!isServer && warned.has(text)) return;
  warned.add(text);
  process.emitWarning(text, { type: 'DormouseWarning', code: 'DORMOUSE_NOT_USED' });
}

/** Replaces a class of Node's by ours. Instances of `kin` are instances of the result. */
function replaced(what, Ours, Theirs, prepare, kin) {
  const make = (args) => orNode(what, true, () => new Ours(...prepare(args)), () => adapt(new Theirs(...args)));
  const Replaced = new Proxy(Ours, {
    // A class of the program that extends it cannot be one of Node's.
    construct: (_, args, target) => (target === Replaced ? make(args) : Reflect.construct(Ours, prepare(args), target)),
    // Node's own https.Server calls it so.
    apply: (_, self, args) => (self instanceof Theirs ? Reflect.apply(Theirs, self, args) : make(args)),
    get: (target, property, receiver) => (property === Symbol.hasInstance ? hasInstance : Reflect.get(target, property, receiver)),
  });
  function hasInstance(value) {
    // Classes that extend it inherit this.
    return this === Replaced ? kin.some((One) => value instanceof One) : Function.prototype[Symbol.hasInstance].call(this, value);
  }
  return Replaced;
}

/** Lets a server of Node's own make contexts of its own later, too. */
function adapt(server) {
  for (const name of ['setSecureContext', 'addContext']) {
    if (typeof server[name] === 'function') {
      const method = server[name];
      server[name] = (...args) => inNode(() => method.apply(server, args));
    }
  }
  return server;
}

/** A server's arguments. As with node:tls, an end without close_notify counts as a proper one. */
function serverArguments(args) {
  const [options, ...rest] = typeof args[0] === 'function' ? [{}, ...args] : args;
  refuseContextOfNode(options);
  return [{ allowTruncation: true, ...options }, ...rest];
}

function socketArguments([socket, options, ...rest]) {
  refuseContextOfNode(options);
  return [socket, { allowTruncation: true, ...options }, ...rest];
}

/** A context is Node's own if ours lacks one of its options. */
function refuseContextOfNode(options) {
  if (options?.secureContext instanceof node.SecureContext) {
    throw Object.assign(new Error('so does its secureContext'), { code: 'ERR_FEATURE_UNAVAILABLE' });
  }
}

function connect(...args) {
  const ours = () => open(args, (given) => {
    refuseContextOfNode(given);
    return { allowTruncation: true, keepSession: true, ...given };
  });
  return orNode('tls.connect()', false, ours, () => node.connect(...args));
}

function createSecureContext(options) {
  return orNode('tls.createSecureContext()', false, () => dormouse.createSecureContext(options ?? {}), () => node.createSecureContext(options));
}

const { TLSSocket, Server } = dormouse;
Object.assign(tls, {
  TLSSocket: replaced('tls.TLSSocket', TLSSocket, node.TLSSocket, socketArguments, [TLSSocket, node.TLSSocket]),
  Server: replaced('tls.Server', Server, node.Server, serverArguments, [Server, ourHttps.Server, node.Server]),
  createServer: (...args) => new tls.Server(...args),
  connect,
  createSecureContext,
});
Object.assign(https, {
  Server: replaced('https.Server', ourHttps.Server, nodeHttps.Server, serverArguments, [ourHttps.Server, nodeHttps.Server]),
  createServer: (...args) => new https.Server(...args),
});
syncBuiltinESMExports();
