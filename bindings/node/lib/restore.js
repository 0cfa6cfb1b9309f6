'use strict';

// Connections of another process that continue here.

const { Readable } = require('node:stream');
const { codedError, hangUp } = require('./errors');
const native = require('./native');
const { proceed, receive, receiveEof } = require('./pump');
const { takeOver } = require('./socket');
const { AUTHORIZED, CLIENT, ENDED, EXPORTED, SECURE, TRUNCATABLE, kFlags, kNumber } = require('./state');

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

module.exports = { continueOn };
