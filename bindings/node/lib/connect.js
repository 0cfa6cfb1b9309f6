'use strict';

// `connect`: a client.

const tls = require('node:tls');
const { invalidArgument } = require('./errors');
const { ClientFlight, refuseOptions } = require('./handshake');
const { contextOf, protocolsOf } = require('./secure_context');
const { TLSSocket } = require('./socket');
const { kFlight } = require('./state');

/** connect(options[, callback]), connect(port[, host][, options][, callback]), connect(path[, options][, callback]) */
function connect(...args) {
  return open(args, (given) => given);
}

/** Does the same with the options that `prepare` returns. */
function open(args, prepare) {
  const normalized = normalize(args);
  const { callback } = normalized;
  const given = prepare(normalized.given);
  refuseOptions(given);
  const options = {
    ...given,
    checkServerIdentity: given.checkServerIdentity ?? tls.checkServerIdentity,
    rejectUnauthorized: given.rejectUnauthorized ?? process.env.NODE_TLS_REJECT_UNAUTHORIZED !== '0',
    alpn: protocolsOf(given.ALPNProtocols),
  };
  if (typeof options.checkServerIdentity !== 'function') {
    throw invalidArgument('options.checkServerIdentity', 'of type function', options.checkServerIdentity);
  }
  options.rejectUnauthorized = options.rejectUnauthorized !== false;
  const flight = new ClientFlight(contextOf(options), options);
  const socket = options.socket ? over(options, flight) : dial(options, flight);
  if (callback) socket.once('secureConnect', callback);
  return socket;
}

function over({ socket, onread, signal }, flight) {
  const secure = new TLSSocket(socket, { flight, onread, signal });
  // net.Socket has destroyed it, and brought it back to life.
  return signal?.aborted ? secure.destroy() : secure;
}

function dial(options, flight) {
  const { allowHalfOpen, highWaterMark, onread, signal } = options;
  const socket = new TLSSocket(undefined, { allowHalfOpen, highWaterMark, onread, signal });
  // As above.
  if (signal?.aborted) return socket.destroy();
  socket[kFlight] = flight;
  if (options.timeout) socket.setTimeout(options.timeout);
  // Records are sent whole; waiting to fill a packet would only delay their last part.
  if (options.noDelay !== false) socket.setNoDelay(true);
  if (options.keepAlive) socket.setKeepAlive(true, options.keepAliveInitialDelay);
  // Before the listeners of the program.
  socket.connect(options, () => flight.begin(socket));
  return socket;
}

function normalize(args) {
  const callback = typeof args.at(-1) === 'function' ? args.at(-1) : undefined;
  const [first, ...rest] = callback ? args.slice(0, -1) : args;
  if (first !== null && typeof first === 'object') return { given: first, callback };
  const given = {};
  if (typeof first === 'string' && !/^\d+$/.test(first)) given.path = first;
  else given.port = first;
  if (typeof rest[0] === 'string') given.host = rest.shift();
  const more = rest.find((one) => one !== null && typeof one === 'object');
  return { given: Object.assign(given, more), callback };
}

module.exports = { connect, open };
