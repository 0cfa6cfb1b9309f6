'use strict';

// Connections that leave this process, as bytes and a plain socket, and those that continue here.

const net = require('node:net');
const { Readable } = require('node:stream');
const { codedError, hangUp } = require('./errors');
const native = require('./native');
const {
  intoSharedPlain, invalidState, keepLast, proceed, receive, receiveEof, takeOver, kFlags, kNumber, kTransport, kUndelivered,
  AUTHORIZED, CLIENT, ENDED, EXPORTED, GONE, SECURE, TRUNCATABLE,
} = require('./socket');

/** Ends a connection in this process. Returns its state and a plain socket with its handle. */
function exportSocket(socket) {
  checkExportable(socket);
  keepLast(socket);
  const state = native.exportConnection(socket[kNumber], socket[kFlags] & EXPORTED);
  socket[kNumber] = GONE;
  const unread = takeUnread(socket);
  const handle = socket._handle;
  handle.readStop();
  handle.reading = false;
  const length = Buffer.alloc(4);
  length.writeUInt32LE(unread.length);
  const exported = Buffer.concat([length, unread, state]);
  state.fill(0);
  socket._handle = null;
  delete handle.isStreamBase;
  socket.destroy();
  const { allowHalfOpen } = socket;
  return { state: exported, socket: new net.Socket({ handle, onread: intoSharedPlain, pauseOnCreate: true, allowHalfOpen }) };
}

function checkExportable(socket) {
  const refuse = (why) => {
    throw invalidState('export()', why);
  };
  if (socket[kTransport] !== null) refuse('the connection lies over another stream');
  if (socket.destroyed || socket[kNumber] === GONE) refuse('the socket is closed');
  if (!(socket[kFlags] & SECURE)) refuse('the handshake is not done');
  if (socket[kFlags] & ENDED || socket.writableEnded) refuse('one direction of the connection has ended');
  if (socket.writableLength > 0 || socket._handle.writeQueueSize > 0) refuse('not everything is sent; wait for the callback of write()');
  // Text cannot become the received bytes again.
  const { decoder } = socket._readableState;
  if (decoder && (socket.readableLength > 0 || decoder.lastNeed > 0)) refuse('after setEncoding(), received text must be read first');
}

/** Takes the received bytes that the program has not got, out of its own listeners' reach. */
function takeUnread(socket) {
  const parts = [];
  socket.removeAllListeners('data');
  // While the stream flows, each call returns one chunk.
  for (let chunk; (chunk = socket.read()) !== null;) parts.push(chunk);
  if (socket[kUndelivered] !== null) parts.push(socket[kUndelivered]);
  return Buffer.concat(parts);
}

/** Continues an exported connection over its socket, which cannot be used otherwise afterwards. */
function continueOn(socket, exported, { isClient, allowTruncation = false }) {
  const unreadLength = exported.length >= 4 ? exported.readUInt32LE(0) : Infinity;
  if (exported.length < 4 + unreadLength) {
    throw codedError(TypeError, 'ERR_INVALID_ARG_VALUE', `state: ${exported.length} bytes are not an exported connection`);
  }
  const { number, flags } = native.restore(exported.subarray(4 + unreadLength));
  const received = [];
  for (let chunk; (chunk = socket.read()) !== null;) received.push(chunk);
  const secure = takeOver(socket, null);
  secure[kNumber] = number;
  // A server has a setting of its own for an end without close_notify.
  if (isClient) secure[kFlags] = SECURE | CLIENT | flags & EXPORTED;
  else secure[kFlags] = SECURE | flags & AUTHORIZED | (allowTruncation ? TRUNCATABLE : 0);
  if (!(flags & AUTHORIZED)) noteProblem(secure, native.problem(number));
  if (unreadLength > 0) Readable.prototype.push.call(secure, Buffer.from(exported.subarray(4, 4 + unreadLength)));
  exported.fill(0);
  for (const chunk of received) receive(secure, chunk, chunk.length, false);
  // A close_notify may have come before the move.
  proceed(secure);
  endLike(secure, socket);
  return secure;
}

function noteProblem(socket, problem) {
  if (problem !== null) socket.authorizationError = problem;
}

/** Ends a restored connection if the plain socket that carried it here has met the end meanwhile. */
function endLike(secure, plain) {
  if (secure.destroyed || secure[kFlags] & ENDED) return;
  if (plain._readableState.ended) receiveEof(secure);
  else if (!secure._handle) secure.destroy(plain.errored ?? hangUp());
}

module.exports = { continueOn, exportSocket };
