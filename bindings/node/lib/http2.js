'use strict';

// TLSSockets under node:http2.
//
// node:http2 reads and writes in C++. Around a stream that has no handle for that it puts a socket of Node's own, and asks
// that socket, as programs then do, for everything that a TLSSocket knows: whether it is encrypted, the protocol, addresses.

const { Duplex } = require('node:stream');
const { kNumber } = require('./state');

let isPrepared = false;

/** Lets the sockets that node:http2 puts around TLSSockets answer for these. Called before the first one that may speak HTTP/2. */
function prepareForHttp2() {
  if (isPrepared) return;
  isPrepared = true;
  const wrapper = wrapperPrototype();
  // Another version of Node.js, in which node:http2 needs none.
  if (wrapper === null) return;
  let answering = null;
  // The constructor of the wrapper assigns it.
  Object.defineProperty(wrapper, 'stream', {
    configurable: true,
    set(stream) {
      Object.defineProperty(this, 'stream', { value: stream, writable: true, enumerable: true, configurable: true });
      if (stream[kNumber] === undefined) return;
      answering ??= Object.create(wrapper, answersOf(stream, wrapper));
      Object.setPrototypeOf(this, answering);
      // node:http2 begins when the wrapper connects, and looks at the negotiated protocol then.
      if (stream.secureConnecting) stream.once('secure', () => this.emit('connect'));
    },
  });
}

/** The prototype of the sockets that node:http2 puts around streams; null: none. */
function wrapperPrototype() {
  const http2 = require('node:http2');
  const stream = new Duplex({ read() {}, write: (chunk, encoding, callback) => callback() });
  const session = http2.connect('http://localhost', { createConnection: () => stream });
  const prototype = Object.getPrototypeOf(session.socket);
  session.destroy();
  return prototype.constructor.name === 'JSStreamSocket' ? prototype : null;
}

/** Properties for everything that a TLSSocket has, and a wrapper not. */
function answersOf(socket, wrapper) {
  // A class of the program may extend it.
  while (!Object.hasOwn(socket, 'alpnProtocol')) socket = Object.getPrototypeOf(socket);
  const names = Object.getOwnPropertyNames(socket).filter((name) => !(name in wrapper) && name !== 'export');
  // By these two a socket finds its addresses.
  names.push('_getpeername', '_getsockname');
  const answer = (name) => ({
    configurable: true,
    get() {
      const value = this.stream[name];
      return typeof value === 'function' ? value.bind(this.stream) : value;
    },
  });
  return Object.fromEntries(names.map((name) => [name, answer(name)]));
}

module.exports = { prepareForHttp2 };
