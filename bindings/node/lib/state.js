'use strict';

// The state of a TLSSocket: what the socket itself keeps, and what can be asked about its connection.

const net = require('node:net');
const native = require('./native');

// The number of the connection in the native half, or GONE.
const kNumber = Symbol('number');
const kFlags = Symbol('flags');
// Data of the handshake; null when it is done.
const kFlight = Symbol('flight');
// The underlying stream, if it is not the socket's own handle.
const kTransport = Symbol('transport');
// Set on an underlying net.Socket whose bytes come past its stream.
const kTapped = Symbol('tapped');
const kOnread = Symbol('onread');
// Opened bytes that the program has not got yet: while a listener runs that may export the connection, and while a
// program with `onread` pauses it. null: none.
const kUndelivered = Symbol('undelivered');
// An option: the handle of an existing connection.
const kHandle = Symbol('handle');
// A client's newest session, if it keeps sessions.
const kSession = Symbol('session');
// Values that the getters return after the socket was destroyed.
const kLast = Symbol('last');

const GONE = -1;

// Flags.
const CLIENT = 1; // we are the client
const SECURE = 2; // the handshake is done
const AUTHORIZED = 4;
const ENDED = 8; // the peer's direction has ended
const TRUNCATABLE = 16; // an end without close_notify counts as a proper one
const REQUESTS_CERT = 32;
const THROTTLED = 64; // too many answers wait to be sent
const FINISHED = 128; // our direction has ended
const IN_PIECES = 256; // a part of a large write is not sealed yet
// Those that move to another process with the connection. Their values must stay, and fit into a byte.
const EXPORTED = AUTHORIZED | TRUNCATABLE;

function servername(socket) {
  if (socket[kNumber] === GONE || !(socket[kFlags] & SECURE)) return null;
  const name = native.serverName(socket[kNumber]);
  // An IP address is not a server name (RFC 6066 §3).
  return name === null || net.isIP(name) ? false : name;
}

function alpnProtocol(socket) {
  if (socket[kNumber] === GONE || !(socket[kFlags] & SECURE)) return null;
  return native.alpn(socket[kNumber]) ?? false;
}

/** Keeps what the getters return after the native connection is gone. */
function keepLast(socket) {
  socket[kLast] ??= { servername: servername(socket), alpnProtocol: alpnProtocol(socket) };
}

module.exports = {
  servername, alpnProtocol, keepLast, kFlags, kFlight, kHandle, kLast, kNumber, kOnread, kSession, kTapped, kTransport,
  kUndelivered, AUTHORIZED, CLIENT, ENDED, EXPORTED, FINISHED, GONE, IN_PIECES, REQUESTS_CERT, SECURE, THROTTLED, TRUNCATABLE,
};
