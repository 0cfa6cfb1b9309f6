'use strict';

// A TLSSocket's data during its handshake, and the program's callbacks that the handshake calls.

const tls = require('node:tls');
const { certificateError, codedError, hangUp, invalidArgument, unsupported } = require('./errors');
const { prepareForHttp2 } = require('./http2');
const native = require('./native');
const { fail, proceed, start } = require('./pump');
const { contextOf, checkContext, protocolsOf } = require('./secure_context');
const { AUTHORIZED, CLIENT, REQUESTS_CERT, TRUNCATABLE, kFlags, kNumber } = require('./state');

const HANDSHAKE_TIMEOUT_MS = 120_000;
// A timer with more would end at once.
const TIMER_MAX_MS = 2 ** 31 - 1;
const WRONG_NAME = 'ERR_TLS_CERT_ALTNAME_INVALID';
const NO_CERTIFICATE = 'UNABLE_TO_GET_ISSUER_CERT';

// Alerts (RFC 8446 §6.2).
const HANDSHAKE_FAILURE = 40;
const INTERNAL_ERROR = 80;
const NO_APPLICATION_PROTOCOL = 120;

class Flight {
  /** A pending write: its data and its callback. */
  held = null;
  /** The callback of a pending end. */
  final = null;
  server = null;
  timer = undefined;

  constructor(context, { handshakeTimeout, allowTruncation }) {
    this.context = context;
    this.handshakeTimeout = handshakeTimeout;
    this.allowTruncation = allowTruncation === true;
  }

  begin(socket) {
    if (this.allowTruncation) socket[kFlags] |= TRUNCATABLE;
    if (this.handshakeTimeout > 0) this.timer = setTimeout(giveUp, Math.min(this.handshakeTimeout, TIMER_MAX_MS), socket).unref();
    try {
      start(socket, this.open(socket));
    } catch (error) {
      fail(socket, error);
      return;
    }
    proceed(socket);
  }

  stop() {
    clearTimeout(this.timer);
  }

  /** The socket is destroyed before the handshake is done. Returns the error for its listeners. */
  abandon(socket, error) {
    this.stop();
    this.held?.callback(error ?? codedError(Error, 'ERR_SOCKET_CLOSED', 'Socket is closed'));
    return error;
  }

  hangUp() {
    return hangUp();
  }
}

function giveUp(socket) {
  fail(socket, codedError(Error, 'ERR_TLS_HANDSHAKE_TIMEOUT', 'TLS handshake timeout'));
}

class ServerFlight extends Flight {
  /** The program's reason for refusing the client. */
  refusal = undefined;

  constructor(context, settings) {
    super(context, settings);
    this.server = settings.server ?? null;
    this.settings = settings;
  }

  open() {
    const { alpnCallback, sniCallback } = this.settings;
    if (sniCallback || alpnCallback) return native.listen();
    return native.accept(this.native(this.context, this.settings.alpn));
  }

  native(context, alpn) {
    if (!context.hasIdentity) {
      throw codedError(Error, 'ERR_SSL_NO_SHARED_CIPHER', 'no shared cipher: the context has no certificate; pass cert and key');
    }
    const { requestCert, rejectUnauthorized } = this.settings;
    const logsKeys = this.server !== null && this.server.listenerCount('keylog') > 0;
    return context.server({ requestCert, rejectUnauthorized, alpn, logsKeys });
  }

  /** Asks the program for the context and protocol for this client. */
  choose(socket, { servername, protocols }) {
    const { sniCallback } = this.settings;
    if (!servername || !sniCallback) return this.decide(socket, this.context, servername, protocols);
    let isAnswered = false;
    const answer = (error, context) => {
      if (isAnswered) return fail(socket, codedError(Error, 'ERR_MULTIPLE_CALLBACK', 'Callback called multiple times'));
      isAnswered = true;
      if (socket.destroyed) return;
      if (error) return this.refuse(socket, HANDSHAKE_FAILURE, error);
      this.decide(socket, context ?? this.context, servername, protocols);
    };
    try {
      sniCallback.call(socket, servername, answer);
    } catch (error) {
      this.refuse(socket, INTERNAL_ERROR, error);
    }
  }

  decide(socket, context, servername, protocols) {
    try {
      checkContext(context, "SNICallback's context");
      const chosen = this.protocol(servername, protocols);
      if (chosen === undefined) return this.refuse(socket, NO_APPLICATION_PROTOCOL, null);
      const decided = this.native(context, this.settings.alpn);
      native.decide(socket[kNumber], chosen === null ? decided : decided.withProtocol(chosen));
    } catch (error) {
      this.refuse(socket, INTERNAL_ERROR, error);
      return;
    }
    proceed(socket);
  }

  /** The protocol that ALPNCallback chooses; null: it is not asked; undefined: none. */
  protocol(servername, protocols) {
    const { alpnCallback } = this.settings;
    if (!alpnCallback || protocols.length === 0) return null;
    const chosen = alpnCallback({ servername, protocols });
    if (chosen === 'h2') prepareForHttp2();
    if (chosen === undefined || protocols.includes(chosen)) return chosen;
    throw codedError(TypeError, 'ERR_TLS_ALPN_CALLBACK_INVALID_RESULT',
                     `ALPN callback returned a value (${chosen}) that did not match any of the client's offered protocols (${protocols.join(', ')})`);
  }

  /** Refuses the client with an alert. Without an error of the program, the alert is the error. */
  refuse(socket, alert, error) {
    try {
      native.refuse(socket[kNumber], alert);
    } catch {
      // The program has decided already.
    }
    this.refusal = error ?? undefined;
    proceed(socket);
    if (error !== null && !socket.destroyed) fail(socket, error);
  }

  verify(socket) {
    if (!this.settings.requestCert) return;
    socket[kFlags] |= REQUESTS_CERT;
    const number = socket[kNumber];
    const problem = native.problem(number) ?? (native.peerCertificates(number).length > 0 ? null : NO_CERTIFICATE);
    if (problem === null) socket[kFlags] |= AUTHORIZED;
    else socket.authorizationError = problem;
  }

  announce(socket) {
    socket.emit('secure');
    if (this.server !== null && !socket.destroyed) this.server.emit('secureConnection', socket);
  }

  abandon(socket, error) {
    error = super.abandon(socket, this.refusal ?? error);
    if (this.server === null) return error;
    this.server.emit('tlsClientError', error ?? hangUp(), socket);
    return null;
  }
}

class ClientFlight extends Flight {
  constructor(context, options) {
    super(context, options);
    context.checkForClients();
    this.connect = options;
  }

  open(socket) {
    socket[kFlags] |= CLIENT;
    const { keepSession, rejectUnauthorized, session } = this.connect;
    const resumes = Boolean(session) || keepSession === true || socket.listenerCount('session') > 0;
    const context = this.context.client({
      rejectUnauthorized,
      resumes,
      alpn: this.connect.alpn,
      logsKeys: socket.listenerCount('keylog') > 0,
    });
    this.host = hostOf(this.connect);
    return native.connect(context, this.host.replace(/%.*/, ''), resumes ? sessionOf(session) : undefined);
  }

  verify(socket) {
    const problem = native.problem(socket[kNumber]);
    const error = problem === null || problem === WRONG_NAME ? this.checkName(socket, problem) : certificateError(problem);
    if (!error) {
      socket[kFlags] |= AUTHORIZED;
      return;
    }
    socket.authorizationError = error.code || error.message;
    if (this.connect.rejectUnauthorized) fail(socket, error);
  }

  checkName(socket, problem) {
    // A resumed server shows no certificate; its name was checked when the session began.
    if (socket.isSessionReused()) return undefined;
    const check = this.connect.checkServerIdentity;
    if (check !== tls.checkServerIdentity) return check(this.host, socket.getPeerCertificate(true));
    if (problem === null) return undefined;
    // Node.js also accepts the common name of a certificate without other names.
    return tls.checkServerIdentity(this.host, socket.getPeerCertificate());
  }

  announce(socket) {
    socket.emit('secure');
    if (!socket.destroyed) socket.emit('secureConnect');
  }

  hangUp() {
    const error = hangUp('Client network socket disconnected before secure TLS connection was established');
    const { path, host, port, localAddress } = this.connect;
    return Object.assign(error, { path, host, port, localAddress });
  }
}

function hostOf({ servername, host, socket, transport }) {
  return servername || host || socket?._host || transport?._host || transport?.remoteAddress || 'localhost';
}

function sessionOf(session) {
  if (session === undefined || session === null) return Buffer.alloc(0);
  return typeof session === 'string' ? Buffer.from(session, 'latin1') : session;
}

/** The flight of a TLSSocket that a program creates over its own stream. */
function flightOf(options, transport) {
  if (options.flight instanceof Flight) return options.flight;
  refuseOptions(options);
  const context = contextOf(options);
  if (!options.isServer) {
    return new ClientFlight(context, {
      ...options,
      transport,
      alpn: protocolsOf(options.ALPNProtocols),
      rejectUnauthorized: options.rejectUnauthorized !== false,
      checkServerIdentity: options.checkServerIdentity ?? tls.checkServerIdentity,
    });
  }
  checkCallbacks(options);
  return new ServerFlight(context, {
    requestCert: Boolean(options.requestCert),
    rejectUnauthorized: options.rejectUnauthorized !== false,
    alpn: protocolsOf(options.ALPNProtocols),
    alpnCallback: options.ALPNCallback,
    sniCallback: options.SNICallback,
    handshakeTimeout: options.handshakeTimeout ?? HANDSHAKE_TIMEOUT_MS,
    allowTruncation: options.allowTruncation,
  });
}

function checkCallbacks(options) {
  for (const name of ['ALPNCallback', 'SNICallback']) {
    if (options[name] && typeof options[name] !== 'function') throw invalidArgument(`options.${name}`, 'of type function', options[name]);
  }
}

const UNSUPPORTED = {
  requestOCSP: 'OCSP responses of servers are not shown',
  enableTrace: "listen to 'keylog' and use Wireshark",
  pskCallback: 'there are no external pre-shared keys',
  pskIdentityHint: 'there are no external pre-shared keys',
  pauseOnConnect: 'the handshake needs to read',
};

/** Throws for connection options that the engine does not support. */
function refuseOptions(options) {
  for (const [name, why] of Object.entries(UNSUPPORTED)) {
    if (options[name]) throw unsupported(`options.${name}`, why);
  }
  const { enableTrace } = options;
  if (![undefined, null, false].includes(enableTrace)) throw invalidArgument('options.enableTrace', 'of type boolean', enableTrace);
}

module.exports = { ClientFlight, HANDSHAKE_TIMEOUT_MS, NO_CERTIFICATE, ServerFlight, checkCallbacks, flightOf, refuseOptions };
