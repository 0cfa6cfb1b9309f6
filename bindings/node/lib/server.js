'use strict';

// `Server`: a net.Server whose connections are TLSSockets; and TLS for other classes of servers.

const { EventEmitter } = require('node:events');
const net = require('node:net');
const { callable, codedError, invalidArgument, unsupported } = require('./errors');
const { HANDSHAKE_TIMEOUT_MS, ServerFlight, checkCallbacks, refuseOptions } = require('./handshake');
const { continueOn } = require('./restore');
const { SecureContext, createSecureContext, protocolsOf, serverContextOf } = require('./secure_context');
const { TLSSocket, takeOver } = require('./socket');

const kSettings = Symbol('settings');
const kContexts = Symbol('contexts');

const UNSUPPORTED_EVENTS = {
  newSession: 'sessions are in the tickets of clients; share ticketKeys between servers',
  resumeSession: 'sessions are in the tickets of clients; share ticketKeys between servers',
  OCSPRequest: 'staple a response with the certificate chain at a gateway, or use short-lived certificates',
};

/** Adds TLS to a class of servers that emits 'connection'. */
const withTls = (Base) => class extends Base {
  constructor(options, listener) {
    if (typeof options === 'function') [options, listener] = [{}, options];
    options ??= {};
    if (typeof options !== 'object') throw invalidArgument('options', 'of type object', options);
    refuseOptions(options);
    // Records are sent whole; waiting to fill a packet would only delay their last part.
    super({ noDelay: true, ...options });
    this[kContexts] = [];
    this[kSettings] = settingsOf(this, options);
    this.setSecureContext(options);
    this.on('newListener', refuseEvents);
    // The class handles connections once they are secure.
    for (const handle of this.listeners('connection')) {
      this.removeListener('connection', handle);
      this.on('secureConnection', handle);
    }
    if (listener) this.on('secureConnection', listener);
  }

  /** Emits 'connection' with the TLSSocket, before its handshake. */
  emit(event, ...args) {
    return event === 'connection' ? super.emit(event, accept(this, args[0])) : super.emit(event, ...args);
  }

  get requestCert() {
    return this[kSettings].requestCert;
  }

  get rejectUnauthorized() {
    return this[kSettings].rejectUnauthorized;
  }

  /** Replaces certificates, keys and trust. Existing connections continue. */
  setSecureContext(options) {
    if (options === null || typeof options !== 'object') throw invalidArgument('options', 'of type object', options);
    const context = serverContextOf(options);
    const { alpn, requestCert, rejectUnauthorized } = this[kSettings];
    // Invalid settings must fail here, not at the first connection.
    if (context.hasIdentity) context.server({ alpn, requestCert, rejectUnauthorized });
    this[kSettings].context = context;
  }

  /** Uses another context for clients that request `servername`, which may contain `*` for a part of a name. */
  addContext(servername, context) {
    if (!servername) throw codedError(Error, 'ERR_TLS_REQUIRED_SERVER_NAME', '"servername" is required parameter for Server.addContext');
    const pattern = servername.replace(/[.^$+?\-\\[\]{}()|]/g, '\\$&').replaceAll('*', '[^.]*');
    this[kContexts].push({
      pattern: new RegExp(`^${pattern}$`, 'i'),
      context: context instanceof SecureContext ? context : createSecureContext(context),
    });
    this[kSettings].sniCallback ??= (name, answer) => answer(null, contextFor(this, name));
  }

  getTicketKeys() {
    return this[kSettings].context.ticketKeys;
  }

  /** Seals tickets with these 48 bytes, so that servers with the same keys resume each other's sessions. */
  setTicketKeys(keys) {
    this[kSettings].context.ticketKeys = keys;
  }

  // For node:cluster, whose workers share ticket keys.
  _getServerData() {
    return { ticketKeys: this.getTicketKeys().toString('hex') };
  }

  _setServerData({ ticketKeys }) {
    this.setTicketKeys(Buffer.from(ticketKeys, 'hex'));
  }

  setOptions() {
    throw unsupported('setOptions()', 'use setSecureContext()');
  }

  /** Continues an exported connection (`TLSSocket.export()`) as one of this server. */
  restore(state, socket) {
    const secure = continueOn(socket, state, { isClient: false, allowTruncation: this[kSettings].allowTruncation });
    secure.server = this;
    secure._server = this;
    // A connection that was lost on the way here has been closed already.
    if (!secure.destroyed) this._connections++;
    this.emit('secureConnection', secure);
    return secure;
  }

  /** A listener of 'secureConnection' that rejects loses its connection, not the server. */
  [EventEmitter.captureRejectionSymbol](error, event, ...args) {
    if (event === 'secureConnection') args[0].destroy(error);
    else super[EventEmitter.captureRejectionSymbol](error, event, ...args);
  }
};

function settingsOf(server, options) {
  if (options.ALPNCallback && options.ALPNProtocols) {
    throw codedError(TypeError, 'ERR_TLS_ALPN_CALLBACK_WITH_PROTOCOLS', 'The ALPNCallback and ALPNProtocols TLS options are mutually exclusive');
  }
  checkCallbacks(options);
  const handshakeTimeout = options.handshakeTimeout || HANDSHAKE_TIMEOUT_MS;
  if (typeof handshakeTimeout !== 'number') throw invalidArgument('options.handshakeTimeout', 'of type number', handshakeTimeout);
  return {
    server,
    context: null,
    requestCert: options.requestCert === true,
    rejectUnauthorized: options.rejectUnauthorized !== false,
    alpn: protocolsOf(options.ALPNProtocols),
    alpnCallback: options.ALPNCallback,
    sniCallback: options.SNICallback,
    handshakeTimeout,
    allowTruncation: options.allowTruncation === true,
  };
}

function refuseEvents(event) {
  const why = UNSUPPORTED_EVENTS[event];
  if (why) throw unsupported(`the event '${event}'`, why);
}

/** Returns the newest context whose pattern matches. */
function contextFor(server, name) {
  return server[kContexts].findLast(({ pattern }) => pattern.test(name))?.context;
}

/** Begins TLS on a connection. Returns the TLSSocket. */
function accept(server, socket) {
  const settings = server[kSettings];
  const flight = new ServerFlight(settings.context, settings);
  if (!isFresh(socket, server)) return new TLSSocket(socket, { flight });
  const { highWaterMark, keepAlive, keepAliveInitialDelay, noDelay } = server;
  const secure = takeOver(socket, flight, { highWaterMark, keepAlive, keepAliveInitialDelay, noDelay });
  process.nextTick(begin, secure, flight);
  return secure;
}

function begin(socket, flight) {
  if (!socket.destroyed) flight.begin(socket);
}

/** Whether this server has just accepted the connection, and no other code has used it. */
function isFresh(socket, server) {
  return socket.constructor === net.Socket && socket._server === server && socket._handle && socket.readableLength === 0;
}

const Server = callable(class Server extends withTls(net.Server) {});

function createServer(options, listener) {
  return new Server(options, listener);
}

module.exports = { Server, createServer, withTls };
