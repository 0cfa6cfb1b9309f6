'use strict';

// Connections that leave this process, as bytes and a plain socket.

const net = require('node:net');
const { invalidState } = require('./errors');
const native = require('./native');
const { intoSharedPlain } = require('./pump');
const { keepLast, ENDED, EXPORTED, GONE, SECURE, kFlags, kNumber, kTransport, kUndelivered } = require('./state');

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

module.exports = { exportSocket };
