'use strict';

// The bytes of a TLSSocket, in both directions, and how each direction ends.
//
// Written bytes are sealed in `send()`. All handles of a thread read into one buffer, where the records are opened: only
// the plaintext gets memory of its own, as much as it needs.

const net = require('node:net');
const { Readable } = require('node:stream');
const { isUint8Array } = require('node:util').types;
const { codedError, endError, hangUp } = require('./errors');
const native = require('./native');
const {
  CLIENT, ENDED, FINISHED, GONE, IN_PIECES, SECURE, THROTTLED, TRUNCATABLE, kFlags, kFlight, kNumber, kOnread, kSession, kTapped,
  kTransport, kUndelivered,
} = require('./state');

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

// Receiving

/** Opens ciphertext in memory that belongs to other code. */
function receiveShared(socket, transport, chunk) {
  if (!isUint8Array(chunk)) {
    fail(socket, codedError(Error, 'ERR_STREAM_WRAP', 'Stream has StringDecoder set or is in objectMode'));
    return;
  }
  socket._unrefTimer();
  // Copied first, because it is opened in place.
  if (!receivePieces(socket, Buffer.from(chunk))) transport.pause();
}

/** Opens ciphertext in memory of its own. Returns whether to read on. */
function receivePieces(socket, bytes) {
  const piece = bytes.subarray(0, PIECE_MAX);
  let readsOn = true;
  try {
    readsOn = receive(socket, piece, piece.length, false);
  } finally {
    // Also after an exception of the program, whose stream must not have a hole.
    if (bytes.length > PIECE_MAX) readsOn = receivePieces(socket, bytes.subarray(PIECE_MAX)) && readsOn;
  }
  return readsOn;
}

// Where a net.Socket has the callback of its option `onread`, which gets its bytes in place of `push()`.
const kCallback = Object.getOwnPropertySymbols(new net.Socket()).find(({ description }) => description === 'kBufferCb');

/**
 * Receives what a plain net.Socket reads before its stream does, as node:tls does: the encoding of that stream and its
 * listeners are those of the plaintext protocol, and must not get ciphertext. Bytes that its stream holds already are
 * taken from there, where its listeners see them, also as with node:tls.
 */
function tap(socket, plain) {
  for (let chunk; (chunk = plain.read()) !== null;) receiveShared(socket, plain, chunk);
  plain[kTapped] = { callback: plain[kCallback] };
  const take = (bytes) => {
    socket._unrefTimer();
    return receivePieces(socket, bytes);
  };
  plain.push = (chunk) => {
    if (chunk !== null) return take(chunk);
    receiveEof(socket);
    return readablePush.call(plain, null);
  };
  if (plain[kCallback]) plain[kCallback] = (length, buffer) => take(copyOf(buffer, length));
  if (!isHeldBack(socket)) netSocket._read.call(plain);
}

/** Returns what a net.Socket reads to its own stream: the program may connect it again. */
function untap(plain) {
  if (!plain[kTapped]) return;
  delete plain.push;
  if (plain[kCallback]) plain[kCallback] = plain[kTapped].callback;
  delete plain[kTapped];
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
  const transport = socket[kTransport];
  const handle = (transport ?? socket)._handle;
  if (transport !== null && !transport[kTapped]) {
    transport.pause();
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
  } else if (native.receiveEof(socket[kNumber], (socket[kFlags] & FINISHED) !== 0) || socket[kFlags] & TRUNCATABLE) {
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
  if (!session) return;
  socket[kSession] = session;
  socket.emit('session', session);
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
  if (queuedBelow(socket) > ANSWERS_MAX) socket[kFlags] |= THROTTLED;
}

/** Whether written bytes have not reached the transport, or wait there. */
function hasUnsent(socket) {
  const { length, writelen } = socket._writableState;
  return length > writelen || (socket[kFlags] & IN_PIECES) !== 0 || queuedBelow(socket) > 0;
}

/** Bytes that wait in the transport. */
function queuedBelow(socket) {
  return socket[kTransport]?.writableLength ?? socket._handle?.writeQueueSize ?? 0;
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
  socket[kFlags] |= IN_PIECES;
  if (from >= data.length) {
    socket[kFlags] &= ~IN_PIECES;
    return callback();
  }
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
  socket[kFlags] |= FINISHED;
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

/** Sends close_notify before the socket is destroyed. If written bytes are lost with it, the peer must see a truncation. */
function closeNow(socket) {
  if (socket[kNumber] === GONE || socket.resetAndClosing || hasUnsent(socket)) return;
  try {
    const bytes = native.close(socket[kNumber]);
    if (bytes.length > 0) sendRaw(socket, bytes, ignore);
  } catch {
    // A failed connection has nothing to end.
  }
}

function ignore() {}

// The handshake's end

// Nothing but the program holds a socket over a stream of JavaScript: it may disappear without an end.
const forgotten = new FinalizationRegistry((number) => native.release(number));

/** Starts the native connection, which gets the handshake's bytes from now on. */
function start(socket, number) {
  socket[kNumber] = number;
  if (socket[kTransport] !== null) forgotten.register(socket, number, socket);
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
  if (socket[kTransport] !== null) forgotten.unregister(socket);
  if (socket[kNumber] !== GONE && socket[kNumber] !== undefined) native.release(socket[kNumber]);
  socket[kNumber] = GONE;
}

module.exports = {
  answer, closeNow, continueOnread, fail, finish, intoShared, intoSharedPlain, isHeldBack, join, proceed, receive, receiveEof,
  receiveShared, release, send, start, stopReading, tap, unthrottle, untap,
};
