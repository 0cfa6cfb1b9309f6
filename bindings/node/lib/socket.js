'use strict';

// `TLSSocket`: a net.Socket whose bytes pass through the engine.
//
// A connection at rest is the socket itself and a number, by which the native half finds its 128 bytes of state.
// So a quiet TLS connection has one JavaScript object with two streams' states, like a plaintext one. Written bytes are
// sealed in `_write()`. All handles of a thread read into one buffer, where the records are opened: only the plaintext
// gets memory of its own, as much as it needs.

const net = require('node:net');
const { Duplex, Readable } = require('node:stream');
const { X509Certificate } = require('node:crypto');
const { codedError, endError, hangUp, invalidArgument, unsupported } = require('./errors');
const native = require('./native');

// The number of the connection in the native half, or GONE.
const kNumber = Symbol('number');
const kFlags = Symbol('flags');
// Data of the handshake; null when it is done.
const kFlight = Symbol('flight');
// The underlying stream, if it is not the socket's own handle.
const kTransport = Symbol('transport');
const kOnread = Symbol('onread');
// Opened bytes that the program has not got yet: while a listener runs that may export the connection, and while a
// program with `onread` pauses it. null: none.
const kUndelivered = Symbol('undelivered');
// An option: the handle of an existing connection.
const kHandle = Symbol('handle');
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
// Those that move to another process with the connection. Their values must stay, and fit into a byte.
const EXPORTED = AUTHORIZED | TRUNCATABLE;

// Flags in the result of native.receive(), in the bits below the plaintext's length.
const OUTPUT = 1;
const ESTABLISHED = 2;
const CLIENT_HELLO = 4;
const END = 8;
const SESSION = 16;
const KEY_LOG = 32;
const SPILLED = 64;
const FOUND_MASK = 127;
const FOUND_BITS = 7;

// Maximum input and plaintext of one call of the native half.
const PIECE_MAX = 1 << 20;
// Room for a record's header, tag and type, rounded up; and for a KeyUpdate.
const RECORD_OVERHEAD = 32;
const RECORD_CONTENT = 14; // bits
// Maximum bytes of unsent replies to the peer. A peer that causes more without reading them is not read any more.
const ANSWERS_MAX = 64 * 1024;
const EMPTY = Buffer.alloc(0);
// How long a client keeps memory for sessions that the server may send.
const SESSIONS_WAIT_MS = 1000;

const netSocket = net.Socket.prototype;
const readablePush = Readable.prototype.push;

// The buffer into which the handles of this thread read, and its length: that of libuv's own buffers.
const RECEIVED_MAX = 64 * 1024;
const intoShared = {
  buffer: Buffer.allocUnsafeSlow(RECEIVED_MAX),
  callback(length, buffer) {
    return receive(this, buffer, length, true);
  },
};
// The same for a plain socket whose handle has been one of ours.
const intoSharedPlain = {
  buffer: intoShared.buffer,
  callback(length, buffer) {
    return this.push(copyOf(buffer, length));
  },
};

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
      const { flightOf } = require('./handshake'); // it needs this class
      layOver(this, socket, flightOf(options));
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
    this[kFlags] |= ENDED;
    this[kFlight] = null;
    release(this);
    try {
      if (flight !== null) error = flight.abandon(this, error);
    } finally {
      const transport = this[kTransport];
      netSocket._destroy.call(this, error, callback);
      if (transport !== null) transport.destroy();
    }
  }

  /**
   * Ends the connection in this process. Returns the bytes with which it continues in another one, and the
   * plain socket that goes with them: give both to `restore()` there. The bytes are secret, and work once.
   */
  export() {
    const { exportSocket } = require('./export'); // it needs this class
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
    const chain = native.peerCertificates(this[kNumber]).map((der) => new X509Certificate(der));
    if (chain.length === 0) return {};
    const objects = (detailed ? chain : chain.slice(0, 1)).map((one) => one.toLegacyObject());
    if (detailed) linkIssuers(chain, objects);
    return objects[0];
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
  getSession: "listen to 'session'",
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
    // After a proper end, received data must still be read.
    if (!(socket[kFlags] & ENDED)) socket.destroy();
  });
  if (!transport.connecting) {
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
  flight.begin(socket);
  // Not earlier: waiting bytes of the transport need a connection to receive them.
  transport.on('data', (chunk) => receiveShared(socket, transport, chunk));
  transport.on('end', () => receiveEof(socket));
}

function checkOnread(onread) {
  const { buffer, callback } = onread;
  if (typeof callback !== 'function') throw invalidArgument('options.onread.callback', 'of type function', callback);
  if (typeof buffer !== 'function' && !(buffer instanceof Uint8Array)) {
    throw invalidArgument('options.onread.buffer', 'a Uint8Array or a function', buffer);
  }
  return onread;
}

// Receiving

/** Opens ciphertext in memory that belongs to other code. */
function receiveShared(socket, transport, chunk) {
  socket._unrefTimer();
  // Copied first, because it is opened in place.
  receivePieces(socket, transport, Buffer.from(chunk));
}

function receivePieces(socket, transport, bytes) {
  const piece = bytes.subarray(0, PIECE_MAX);
  try {
    if (!receive(socket, piece, piece.length, false)) transport.pause();
  } finally {
    // Also after an exception of the program, whose stream must not have a hole.
    if (bytes.length > PIECE_MAX) receivePieces(socket, transport, bytes.subarray(PIECE_MAX));
  }
}

/** A buffer of its own for the first bytes. */
function copyOf(buffer, length) {
  const copy = Buffer.allocUnsafe(length);
  buffer.copy(copy, 0, 0, length);
  return copy;
}

/**
 * Opens ciphertext, the first `count` bytes of `input`, in place and passes on the plaintext. Returns whether to read on.
 * `isReused`: later ciphertext goes to the same memory.
 */
function receive(socket, input, count, isReused) {
  const flags = socket[kFlags];
  if (flags & ENDED) return true;
  const number = socket[kNumber];
  if (number === GONE) return !socket.destroyed;
  let found;
  try {
    found = native.receive(number, input, count);
  } catch (error) {
    socket.destroy(error);
    return false;
  }
  if ((found & FOUND_MASK) !== 0) return receiveMore(socket, input, found, isReused);
  const length = found >>> FOUND_BITS;
  return length === 0 || deliver(socket, input, length, isReused);
}

/** Handles the rare results of `receive`. */
function receiveMore(socket, input, found, isReused) {
  const number = socket[kNumber];
  // Each step may call the program, which may destroy or export the socket, or throw. A program that survives its
  // exception gets all that follows: a stream without these bytes, or without its end, would be another one.
  const take = (isFound, step) => {
    if (!isFound || socket[kNumber] !== number) return;
    try {
      step();
    } catch (error) {
      process.nextTick(rethrow, error);
    }
  };
  take(found & KEY_LOG, () => emitKeyLog(socket, native.takeKeyLog(number)));
  take(found & OUTPUT, () => answer(socket, native.takeOutput(number)));
  take(found & CLIENT_HELLO, () => socket[kFlight].choose(socket, native.clientHello(number)));
  let plaintext = input.subarray(0, found >>> FOUND_BITS);
  take(found & SPILLED, () => {
    plaintext = native.takePlaintext(number);
    isReused = false;
  });
  take(found & ESTABLISHED, () => establishBefore(socket, plaintext));
  let readsOn = true;
  take(plaintext.length > 0, () => {
    readsOn = deliver(socket, plaintext, plaintext.length, isReused);
  });
  take(found & SESSION, () => emitSession(socket, native.takeSession(number)));
  take(found & END, () => endReading(socket, native.end(number)));
  return readsOn && !isHeldBack(socket);
}

function rethrow(error) {
  throw error;
}

/** Completes the handshake, whose last message came together with `plaintext`. */
function establishBefore(socket, plaintext) {
  if (plaintext.length === 0) return establish(socket);
  socket[kUndelivered] = plaintext;
  try {
    establish(socket);
  } finally {
    socket[kUndelivered] = null;
  }
}

/** Passes on plaintext, the first `length` bytes of `input`. Returns whether to read on. */
function deliver(socket, input, length, isReused) {
  if (socket[kOnread] !== null) return deliverToBuffer(socket, input.subarray(0, length), isReused);
  return readablePush.call(socket, isReused ? copyOf(input, length) : input.subarray(0, length));
}

/** Passes on plaintext by way of the program's buffer, as long as the program does not pause. */
function deliverToBuffer(socket, plaintext, isReused) {
  const onread = socket[kOnread];
  const waiting = socket[kUndelivered];
  let rest = waiting === null ? plaintext : Buffer.concat([waiting, plaintext]);
  try {
    while (rest.length > 0 && !socket.destroyed && !socket.isPaused()) {
      const buffer = typeof onread.buffer === 'function' ? onread.buffer() : onread.buffer;
      const count = Math.min(buffer.length, rest.length);
      if (count === 0) throw codedError(RangeError, 'ERR_OUT_OF_RANGE', 'options.onread.buffer is empty');
      buffer.set(rest.subarray(0, count));
      rest = rest.subarray(count);
      // `export()` takes them along.
      socket[kUndelivered] = rest;
      if (onread.callback(count, buffer) === false) socket.pause();
    }
  } finally {
    if (rest.length === 0 || socket.destroyed) socket[kUndelivered] = null;
    else socket[kUndelivered] = isReused ? Buffer.from(rest) : rest;
  }
  return !isHeldBack(socket);
}

/** Continues after `resume()`: with the bytes that waited, then with new ones. */
function continueOnread(socket) {
  if (socket.destroyed || socket.isPaused() || !(socket[kFlags] & SECURE)) return;
  if (socket[kUndelivered] !== null) {
    deliverToBuffer(socket, EMPTY, false);
    if (socket.destroyed || socket[kUndelivered] !== null) return;
    if (socket[kFlags] & ENDED) pushEnd(socket);
  }
  if (!(socket[kFlags] & ENDED)) socket._read(0);
}

/** Whether reading waits for `unthrottle`, or for the program. A handshake reads even while the program pauses. */
function isHeldBack(socket) {
  const flags = socket[kFlags];
  return (flags & THROTTLED) !== 0 || (socket[kOnread] !== null && (flags & SECURE) !== 0 && socket.isPaused());
}

function stopReading(socket) {
  const handle = socket._handle;
  if (socket[kTransport] !== null) {
    socket[kTransport].pause();
  } else if (handle?.reading) {
    handle.reading = false;
    handle.readStop();
  }
}

function endReading(socket, end) {
  const error = endError(end, native.problem(socket[kNumber]));
  socket[kFlags] |= ENDED;
  if (error === null) pushEnd(socket);
  else fail(socket, error);
}

/** Ends the stream of received bytes, after those that still wait. */
function pushEnd(socket) {
  if (socket[kUndelivered] !== null) {
    continueOnread(socket);
    return;
  }
  readablePush.call(socket, null);
  // As Node.js does after an end: a program that does not read gets 'end', too, if nothing is unread.
  socket.read(0);
}

/** Destroys the socket; its listeners can still ask for addresses. */
function fail(socket, error) {
  if (socket[kFlight] !== null && socket._handle) socket._closeAfterHandlingError = true;
  socket.destroy(error);
}

function receiveEof(socket) {
  if (socket.destroyed || socket[kFlags] & ENDED) return false;
  socket[kFlags] |= ENDED;
  if (socket[kNumber] === GONE || socket[kFlight] !== null) {
    fail(socket, socket[kFlight]?.hangUp() ?? hangUp());
  } else if (native.receiveEof(socket[kNumber]) || socket[kFlags] & TRUNCATABLE) {
    pushEnd(socket);
  } else {
    fail(socket, endError(native.end(socket[kNumber])));
  }
  return false;
}

function emitKeyLog(socket, lines) {
  for (const line of lines) {
    const bytes = Buffer.from(line, 'latin1');
    socket.emit('keylog', bytes);
    socket[kFlight]?.server?.emit('keylog', bytes, socket);
  }
}

function emitSession(socket, session) {
  if (session) socket.emit('session', session);
}

// Sending

/** Sends bytes to the peer directly, not through the program's stream of writes. */
function sendRaw(socket, bytes, callback) {
  const transport = socket[kTransport];
  if (transport !== null) {
    socket._unrefTimer();
    if (transport.writable) transport.write(bytes, callback);
    else callback(codedError(Error, 'EPIPE', 'the stream below has ended'));
    return;
  }
  netSocket._write.call(socket, bytes, 'buffer', callback);
}

/** Sends the engine's own output: handshake messages, KeyUpdates, alerts. */
function answer(socket, bytes) {
  if (bytes.length === 0 || socket.destroyed) return;
  sendRaw(socket, bytes, (error) => {
    if (error) socket.destroy(error);
    else unthrottle(socket);
  });
  const queued = socket[kTransport]?.writableLength ?? socket._handle?.writeQueueSize ?? 0;
  if (queued > ANSWERS_MAX) socket[kFlags] |= THROTTLED;
}

function unthrottle(socket) {
  if (!(socket[kFlags] & THROTTLED) || socket.destroyed) return;
  socket[kFlags] &= ~THROTTLED;
  socket._read(0);
}

/** Seals and sends plaintext. */
function send(socket, data, callback) {
  const number = socket[kNumber];
  if (number === GONE) return callback(codedError(Error, 'ERR_SOCKET_CLOSED', 'Socket is closed'));
  if (data.length === 0) return callback();
  if (data.length > PIECE_MAX) return sendPieces(socket, data, 0, callback);
  let sealed;
  try {
    sealed = seal(number, data);
  } catch (error) {
    return callback(error);
  }
  sendRaw(socket, sealed, callback);
}

function sendPieces(socket, data, from, callback) {
  if (from >= data.length) return callback();
  const to = from + PIECE_MAX;
  send(socket, data.subarray(from, to), (error) => {
    if (error) callback(error);
    else sendPieces(socket, data, to, callback);
  });
}

/** Joins what was written, such as the head and the body of an HTTP message: one record is cheaper than two. */
function join(chunks) {
  const lengths = chunks.map(({ chunk, encoding }) => typeof chunk === 'string' ? Buffer.byteLength(chunk, encoding) : chunk.length);
  const data = Buffer.allocUnsafe(lengths.reduce((sum, length) => sum + length));
  let at = 0;
  chunks.forEach(({ chunk, encoding }, i) => {
    if (typeof chunk === 'string') data.write(chunk, at, lengths[i], encoding);
    else data.set(chunk, at);
    at += lengths[i];
  });
  return data;
}

function seal(number, data) {
  const bytes = ArrayBuffer.isView(data) && !isShared(data) ? data : Buffer.from(data);
  const room = bytes.length + RECORD_OVERHEAD * (2 + (bytes.length >>> RECORD_CONTENT)) + RECORD_OVERHEAD;
  let output = Buffer.allocUnsafe(room);
  let length = native.seal(number, bytes, output);
  if (length === 0) {
    output = Buffer.allocUnsafe(native.sealedLen(number, bytes.length));
    length = native.seal(number, bytes, output);
  }
  return output.subarray(0, length);
}

/** Other threads may change shared memory while it is sealed. */
function isShared(view) {
  return typeof SharedArrayBuffer !== 'undefined' && view.buffer instanceof SharedArrayBuffer;
}

/** Sends close_notify, then the transport's end. */
function finish(socket, callback) {
  if (socket[kNumber] !== GONE) {
    try {
      // If it can't be sent, the peer is gone; earlier losses have been reported.
      sendRaw(socket, native.close(socket[kNumber]), ignore);
    } catch (error) {
      // A failed connection has nothing to end.
      if (error.code !== 'ERR_TLS_INVALID_STATE') return callback(error);
    }
  }
  const transport = socket[kTransport];
  if (transport === null) netSocket._final.call(socket, callback);
  else if (transport.writable) transport.end(() => callback());
  else callback();
}

function ignore() {}

// The handshake's end

/** Starts the native connection, which gets the handshake's bytes from now on. */
function start(socket, number) {
  socket[kNumber] = number;
}

/** Continues without input: the engine has a ClientHello to send, or has got a context. */
function proceed(socket) {
  // The handshake reads even while the program has paused the socket.
  if (!socket.destroyed) socket._read(0);
  receive(socket, EMPTY, 0, false);
}

function establish(socket) {
  const flight = socket[kFlight];
  if (flight === null) return;
  try {
    flight.verify(socket);
  } catch (error) {
    // Nobody has accepted this peer.
    socket.destroy();
    throw error;
  }
  if (socket.destroyed) return;
  socket[kFlags] |= SECURE;
  socket[kFlight] = null;
  flight.stop();
  if (socket[kFlags] & CLIENT && native.awaitsSessions(socket[kNumber])) {
    setTimeout(ignoreSessions, SESSIONS_WAIT_MS, socket, socket[kNumber]).unref();
  }
  if (flight.held !== null) send(socket, flight.held.data, flight.held.callback);
  if (flight.final !== null) finish(socket, flight.final);
  flight.announce(socket);
}

function ignoreSessions(socket, number) {
  if (socket[kNumber] === number) native.ignoreSessions(number);
}

function release(socket) {
  if (socket[kNumber] !== GONE && socket[kNumber] !== undefined) native.release(socket[kNumber]);
  socket[kNumber] = GONE;
}

// Negotiated parameters

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

function cipherVersion([iana]) {
  return iana.startsWith('TLS_ECDHE') ? 'TLSv1.2' : 'TLSv1.3';
}

function linkIssuers(chain, objects) {
  objects.forEach((object, i) => {
    if (i + 1 < objects.length) object.issuerCertificate = objects[i + 1];
    else if (chain[i].checkIssued(chain[i])) object.issuerCertificate = object;
  });
}

function invalidState(what, why) {
  return codedError(Error, 'ERR_TLS_INVALID_STATE', `${what}: ${why}`);
}

module.exports = {
  TLSSocket, fail, intoSharedPlain, invalidState, keepLast, proceed, receive, receiveEof, start, takeOver,
  kFlags, kFlight, kNumber, kTransport, kUndelivered,
  AUTHORIZED, CLIENT, ENDED, EXPORTED, GONE, REQUESTS_CERT, SECURE, THROTTLED, TRUNCATABLE,
};
