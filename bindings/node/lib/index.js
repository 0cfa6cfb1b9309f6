'use strict';

// The package's exports, in the shape of node:tls.

const tls = require('node:tls');
const { connect } = require('./connect');
const native = require('./native');
const { continueOn } = require('./restore');
const { SecureContext, createSecureContext } = require('./secure_context');
const { Server, createServer } = require('./server');
const { TLSSocket } = require('./socket');

/** Continues, as a client, a connection exported by `TLSSocket.export()`. Servers have a method for this. */
function restore(state, socket) {
  return continueOn(socket, state, { isClient: true });
}

/** Creates a self-signed certificate for `name`, for tests. */
function selfSigned(name) {
  const [cert, key] = native.selfSigned(name);
  return { cert, key };
}

module.exports = {
  SecureContext,
  Server,
  TLSSocket,
  connect,
  createSecureContext,
  createServer,
  restore,
  selfSigned,
  checkServerIdentity: tls.checkServerIdentity,
  rootCertificates: tls.rootCertificates,
  getCiphers: () => native.suiteNames().map((name) => name.toLowerCase()),
  DEFAULT_ECDH_CURVE: 'auto',
  DEFAULT_MAX_VERSION: 'TLSv1.3',
  DEFAULT_MIN_VERSION: 'TLSv1.2',
};
