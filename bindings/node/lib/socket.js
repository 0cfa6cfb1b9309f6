'use strict';

// `TLSSocket`: a net.Socket whose bytes pass through the engine.
//
// A connection at rest is the socket itself and a number, by which the native half finds its 128 bytes of state.
// So a quiet TLS connection has one JavaScript object with two streams' states, like a plaintext one.

const net = require('node:net');
const { Duplex } = require('node:stream');
const { X509Certificate } = require('node:crypto');
const { chainOf } = require('./chain');
const { certificateError, codedError, invalidArgument, invalidState, unsupported } = require('./errors');
const { exportSocket } = require('./export');
const { NO_CERTIFICATE, flightOf } = require('./handshake');
const native = require('./native');
const {
  closeNow, continueOnread, fail, finish, intoShared, isHeldBack, join, receiveEof, receiveShared, release, send, stopReading, tap, untap,
} = require('./pump');
const {
  alpnProtocol, keepLast, servername, AUTHORIZED, CLIENT, ENDED, GONE, SECURE, kFlags, kFlight, kHandle, kLast,
  kNumber, kOnread, kSession, kTapped, kTransport, kUndelivered,
} = require('./state');

const netSocket = net.Socket.prototype;

// What net.Socket closes of a socket that lies over another stream: it then says by 'close' whether there was an error.
const NO_HANDLE = { bytesRead: 0, bytesWritten: 0, close: (done) => setImmediate(done) };

class TLSSocket extends net.Socket {
  /**
   * Does TLS over `socket`, any Duplex. The handshake begins in the next tick.
   *
   * Without a socket, `connect()` makes a connection.
   */
  constructor(socket, options = {}) {
    super({
      handle: options[kHandle],
      onread: intoShared,
      allowHalfOpen: socket ? socket.allowHalfOpen : options.allowHalfOpen,
      highWaterMark: options.highWaterMark,
      keepAlive: options.keepAlive,
      keepAliveInitialDelay: options.keepAliveInitialDelay,
      noDelay: options.noDelay,
      signal: options.signal,
    });
    this[kNumber] = GONE;
    this[kFlags] = 0;
    this[kFlight] = null;
    if (options.onread) this[kOnread] = checkOnread(options.onread);
    if (socket) {
      const flight = flightOf(options, socket);
      // Programs that make a TLSSocket by themselves may know errors by the name '_tlsError' alone, as `mysql` does.
      if (flight !== options.flight) this.on('error', emitTlsError);
      layOver(this, socket, flight);
    }
  }

  get encrypted() {
    return true;
  }

  get authorized() {
    return (this[kFlags] & AUTHORIZED) !== 0;
  }

  get secureConnecting() {
    return (this[kFlags] & SECURE) === 0;
  }

  /** The server name that the client requested, false if none; null before the handshake is done. */
  get servername() {
    return this[kLast] ? this[kLast].servername : servername(this);
  }

  /** The application protocol, false if none; null before the handshake is done. */
  get alpnProtocol() {
    return this[kLast] ? this[kLast].alpnProtocol : alpnProtocol(this);
  }

  // Receiving

  /** Called at the end of the transport, with null. */
  push(chunk, encoding) {
    if (chunk !== null || this[kNumber] === undefined) return super.push(chunk, encoding);
    return receiveEof(this);
  }

  // A net.Socket with a buffer of its own reads as soon as the program calls `read()`, and stops at once when the
  // program pauses it: our program gets plaintext, for which the stream's own rules hold.

  read(size) {
    return Duplex.prototype.read.call(this, size);
  }

  pause() {
    Duplex.prototype.pause.call(this);
    // No buffer of a stream would stop the reading.
    if (isHeldBack(this)) stopReading(this);
    return this;
  }

  resume() {
    Duplex.prototype.resume.call(this);
    // Later, because the caller may be the callback, which has still to return.
    if (this[kOnread] !== null) process.nextTick(continueOnread, this);
    return this;
  }

  _read(size) {
    // The stream asks again after each chunk; `unthrottle` or `resume` continues.
    if (isHeldBack(this)) return undefined;
    const transport = this[kTransport];
    if (transport === null) return netSocket._read.call(this, size);
    if (transport[kTapped]) netSocket._read.call(transport, size);
    return transport.resume();
  }

  // Sending

  _write(chunk, encoding, callback) {
    const data = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
    if (this[kFlight] === null) send(this, data, callback);
    else this[kFlight].held = { data, callback };
  }

  _writev(chunks, callback) {
    const data = join(chunks);
    if (this[kFlight] === null) send(this, data, callback);
    else this[kFlight].held = { data, callback };
  }

  _final(callback) {
    if (this[kFlight] !== null) this[kFlight].final = callback;
    else finish(this, callback);
  }

  _destroy(error, callback) {
    const flight = this[kFlight];
    keepLast(this);
    if (!error && flight === null) closeNow(this);
    this[kFlags] |= ENDED;
    this[kFlight] = null;
    release(this);
    let shown = error;
    try {
      if (flight !== null) shown = flight.abandon(this, error);
    } finally {
      const transport = this[kTransport];
      if (transport !== null) this._handle = NO_HANDLE;
      netSocket._destroy.call(this, error, () => callback(shown));
      if (transport !== null) {
        transport.destroy();
        untap(transport);
      }
    }
  }

  /**
   * Ends the connection in this process. Returns the bytes with which it continues in another one, and the
   * plain socket that goes with them: give both to `restore()` there. The bytes are secret, and work once.
   */
  export() {
    return exportSocket(this);
  }

  // Negotiated parameters

  /** The protocol; null once the socket is destroyed, 'unknown' before the handshake is done. */
  getProtocol() {
    return this[kNumber] === GONE ? null : native.protocol(this[kNumber]) ?? 'unknown';
  }

  getCipher() {
    if (this[kNumber] === GONE) return null;
    const names = native.suite(this[kNumber]);
    return names ? { name: names[1], standardName: names[0], version: cipherVersion(names) } : undefined;
  }

  /** A client's key exchange; null for servers. */
  getEphemeralKeyInfo() {
    if (this[kNumber] === GONE || !(this[kFlags] & CLIENT)) return null;
    switch (native.group(this[kNumber])) {
      case 'X25519MLKEM768': return { type: 'KEM', name: 'X25519MLKEM768' };
      case 'x25519': return { type: 'ECDH', name: 'X25519', size: 253 };
      case 'secp256r1': return { type: 'ECDH', name: 'prime256v1', size: 256 };
      case 'secp384r1': return { type: 'ECDH', name: 'secp384r1', size: 384 };
      default: return {};
    }
  }

  isSessionReused() {
    return this[kNumber] === GONE ? null : native.isResumed(this[kNumber]);
  }

  getPeerCertificate(detailed = false) {
    if (this[kNumber] === GONE) return null;
    const [own, ...others] = native.peerCertificates(this[kNumber]).map((der) => new X509Certificate(der));
    if (own === undefined) return {};
    return detailed ? linked(withTrusted(this, chainOf(own, others))) : own.toLegacyObject();
  }

  getPeerX509Certificate() {
    if (this[kNumber] === GONE) return undefined;
    const [own] = native.peerCertificates(this[kNumber]);
    return own && new X509Certificate(own);
  }

  exportKeyingMaterial(length, label, context) {
    if (!Number.isInteger(length)) throw invalidArgument('length', 'an integer', length);
    if (typeof label !== 'string') throw invalidArgument('label', 'of type string', label);
    if (context !== undefined && !ArrayBuffer.isView(context)) throw invalidArgument('context', 'a Buffer, a TypedArray or a DataView', context);
    if (this[kNumber] === GONE || !(this[kFlags] & SECURE)) throw invalidState('exportKeyingMaterial()', 'the handshake is not done, or the socket is closed');
    const bytes = native.exportKeyingMaterial(this[kNumber], length, label, context);
    if (bytes === null) throw unsupported('exportKeyingMaterial() without the option', 'pass exportKeyingMaterial: true to createSecureContext(), which costs some 200 bytes per connection');
    return bytes;
  }

  // Parts of node:tls without documentation. The package `mysql` begins TLS by them.

  /** Nothing to do: the handshake begins by itself. */
  _start() {}

  get ssl() {
    if (this[kNumber] === GONE) return null;
    return { fd: (this[kTransport] ?? this)._handle?.fd, verifyError: () => verifyError(this) };
  }

  /** Nothing to do: the engine never renegotiates. */
  disableRenegotiation() {}

  setServername(name) {
    if (typeof name !== 'string') throw invalidArgument('name', 'of type string', name);
    const connect = this[kFlight]?.connect;
    if (!connect) {
      throw codedError(Error, 'ERR_TLS_SNI_FROM_SERVER', 'Cannot issue SNI from a TLS server-side socket, or after the handshake has begun');
    }
    connect.servername = name;
  }

  /** A client's newest session: with a listener for 'session', a session to resume or the option `keepSession`. */
  getSession() {
    return this[kNumber] === GONE ? null : this[kSession];
  }

  setSession(session) {
    const connect = this[kFlight]?.connect;
    if (!connect) throw invalidState('setSession()', 'it is for clients, before the handshake begins');
    connect.session = typeof session === 'string' ? Buffer.from(session, 'latin1') : session;
  }

  // Properties of the transport

  get pending() {
    const transport = this[kTransport];
    return transport === null ? this._handle === null || this.connecting : Boolean(transport.pending);
  }

  _getpeername() {
    return this[kTransport]?._getpeername?.() ?? netSocket._getpeername.call(this);
  }

  _getsockname() {
    return this[kTransport]?._getsockname?.() ?? netSocket._getsockname.call(this);
  }
}

for (const name of ['setNoDelay', 'setKeepAlive', 'ref', 'unref']) {
  TLSSocket.prototype[name] = function(...args) {
    const transport = this[kTransport];
    if (transport === null) netSocket[name].apply(this, args);
    else transport[name]?.(...args);
    return this;
  };
}

const UNSUPPORTED = {
  renegotiate: 'the engine never renegotiates, and TLS 1.3 cannot',
  setMaxSendFragment: 'records have up to 16 KiB',
  setKeyCert: 'return a context from SNICallback',
  enableTrace: "listen to 'keylog' and use Wireshark",
  getCertificate: 'a connection does not keep its own certificate',
  getX509Certificate: 'a connection does not keep its own certificate',
  getFinished: 'messages of the handshake are not kept',
  getPeerFinished: 'messages of the handshake are not kept',
  getSharedSigalgs: 'messages of the handshake are not kept',
  getTLSTicket: "listen to 'session'",
};
for (const [name, why] of Object.entries(UNSUPPORTED)) {
  TLSSocket.prototype[name] = function() {
    throw unsupported(`${name}()`, why);
  };
}

// On the prototype, because few sockets set these.
TLSSocket.prototype[kTransport] = null;
TLSSocket.prototype[kOnread] = null;
TLSSocket.prototype[kUndelivered] = null;
TLSSocket.prototype[kLast] = null;
TLSSocket.prototype[kSession] = undefined;
TLSSocket.prototype.authorizationError = null;

// Other code must not bypass the engine through the handle: Node's HTTP parser and HTTP/2 would, with a handle of a
// stream that they can use from C++.
const handleOfSocket = Object.getOwnPropertyDescriptor(netSocket, '_handle');
Object.defineProperty(TLSSocket.prototype, '_handle', {
  get: handleOfSocket.get,
  set(handle) {
    if (handle) handle.isStreamBase = false;
    handleOfSocket.set.call(this, handle);
  },
});

// Beginning

/** Creates a TLSSocket from the handle of an unused `socket`, which cannot be used afterwards. */
function takeOver(socket, flight, options) {
  const handle = socket._handle;
  const server = socket._server;
  socket._handle = null;
  socket._server = null;
  const secure = new TLSSocket(undefined, { ...options, [kHandle]: handle, allowHalfOpen: socket.allowHalfOpen });
  secure.server = server;
  secure._server = server;
  secure[kFlight] = flight;
  return secure;
}

function layOver(socket, transport, flight) {
  if (typeof transport.write !== 'function' || typeof transport.on !== 'function') {
    throw invalidArgument('socket', 'an instance of stream.Duplex', transport);
  }
  socket[kTransport] = transport;
  socket[kFlight] = flight;
  if (transport instanceof net.Socket) socket._parent = transport;
  transport.on('error', (error) => socket.destroy(error));
  transport.on('close', () => {
    untap(transport);
    // After a proper end, received data must still be read.
    if (!(socket[kFlags] & ENDED)) socket.destroy();
  });
  if (!transport.connecting && !isYetToConnect(transport)) {
    process.nextTick(beginOver, socket, transport, flight);
    return;
  }
  socket.connecting = true;
  transport.once('connect', () => {
    socket.connecting = false;
    socket.emit('connect');
    beginOver(socket, transport, flight);
  });
}

function beginOver(socket, transport, flight) {
  if (socket.destroyed) return;
  // Its 'close' has been.
  if (transport.destroyed) {
    fail(socket, transport.errored ?? flight.hangUp());
    return;
  }
  flight.begin(socket);
  // Not earlier: waiting bytes of the transport need a connection to receive them.
  if (isPlain(transport) && transport._handle) tap(socket, transport);
  else transport.on('data', (chunk) => receiveShared(socket, transport, chunk));
  transport.on('end', () => receiveEof(socket));
  if (transport.readableEnded) receiveEof(socket);
}

function emitTlsError(error) {
  this.emit('_tlsError', error);
}

/** Whether a stream is a plain socket. A subclass of net.Socket may have bytes of its own, such as those of a tunnel. */
function isPlain(transport) {
  return transport instanceof net.Socket && transport[kNumber] === undefined && transport._read === netSocket._read;
}

/** Whether the program has still to call `connect()`. */
function isYetToConnect(transport) {
  return isPlain(transport) && !transport._handle && !transport.destroyed;
}

/** Null says that the peer is verified: neither a handshake in progress nor a client without a certificate is. */
function verifyError(socket) {
  return socket.authorized ? null : certificateError(socket.authorizationError ?? NO_CERTIFICATE);
}

function checkOnread(onread) {
  const { buffer, callback } = onread;
  if (typeof callback !== 'function') throw invalidArgument('options.onread.callback', 'of type function', callback);
  if (typeof buffer !== 'function' && !(buffer instanceof Uint8Array)) {
    throw invalidArgument('options.onread.buffer', 'a Uint8Array or a function', buffer);
  }
  return onread;
}

function cipherVersion([iana]) {
  return iana.startsWith('TLS_ECDHE') ? 'TLSv1.2' : 'TLSv1.3';
}

/** Adds the trusted issuers of a chain that the peer sent. */
function withTrusted(socket, chain) {
  const trusted = native.trustedIssuers(socket[kNumber], chain.at(-1).raw);
  return [...chain, ...trusted.map((der) => new X509Certificate(der))];
}

/** As Node.js describes a chain: the last certificate is its own issuer, if the chain is complete. */
function linked(chain) {
  const objects = chain.map((one) => one.toLegacyObject());
  objects.forEach((object, i) => {
    if (i + 1 < objects.length) object.issuerCertificate = objects[i + 1];
    else if (chain[i].checkIssued(chain[i])) object.issuerCertificate = object;
  });
  return objects[0];
}

module.exports = { TLSSocket, takeOver };
