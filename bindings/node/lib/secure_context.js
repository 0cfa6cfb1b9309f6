'use strict';

// `createSecureContext`: certificates, keys and protocols, prepared once for many connections.

const crypto = require('node:crypto');
const fs = require('node:fs');
const tls = require('node:tls');
const { codedError, invalidArgument, unsupported } = require('./errors');
const { prepareForHttp2 } = require('./http2');
const native = require('./native');
const { readPkcs12 } = require('./pkcs12');

// Options of node:tls that the engine does not support.
const UNSUPPORTED = {
  sigalgs: 'the engine chooses among all signature algorithms that it considers safe',
  dhparam: 'there is no finite-field Diffie-Hellman; ECDHE and ML-KEM are always used',
  clientCertEngine: 'OpenSSL engines cannot be used',
  privateKeyEngine: 'OpenSSL engines cannot be used',
  privateKeyIdentifier: 'OpenSSL engines cannot be used',
  pskCallback: 'there are no external pre-shared keys',
  pskIdentityHint: 'there are no external pre-shared keys',
};

// Those that node:tls takes if they are empty, or false in any form, as if they were missing.
const TAKES_EMPTY = new Set(['dhparam', 'sessionIdContext']);
const TAKES_FALSY = new Set(['privateKeyEngine', 'pskCallback', 'pskIdentityHint']);

const VERSIONS = { 'TLSv1.2': 12, 'TLSv1.3': 13 };
const METHODS = /^(?:SSLv23|TLS|TLSv1_2)(?:_client|_server)?_method$/;
const VARIANTS_MAX = 32;

const {
  SSL_OP_NO_TLSv1_2, SSL_OP_NO_TLSv1_3, SSL_OP_NO_TICKET, SSL_OP_ALL, SSL_OP_NO_SSLv2, SSL_OP_NO_SSLv3, SSL_OP_NO_TLSv1,
  SSL_OP_NO_TLSv1_1, SSL_OP_NO_COMPRESSION, SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_NO_RENEGOTIATION,
  SSL_OP_PRIORITIZE_CHACHA, SSL_OP_NO_SESSION_RESUMPTION_ON_RENEGOTIATION,
} = crypto.constants;
// These are always on, or concern features that the engine does not have.
const HELD_OPTIONS = [
  SSL_OP_ALL, SSL_OP_NO_SSLv2, SSL_OP_NO_SSLv3, SSL_OP_NO_TLSv1, SSL_OP_NO_TLSv1_1, SSL_OP_NO_COMPRESSION,
  SSL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_NO_RENEGOTIATION, SSL_OP_PRIORITIZE_CHACHA,
  SSL_OP_NO_SESSION_RESUMPTION_ON_RENEGOTIATION,
].reduce((all, one) => all | (one ?? 0), 0);

/**
 * Shared settings of connections: certificates, keys, trust, protocols.
 */
class SecureContext {
  #identities;
  #trust;
  #settings;
  #server;
  #variants = new Map();

  constructor(options = {}) {
    if (options === null || typeof options !== 'object') throw invalidArgument('options', 'of type object', options);
    if (options instanceof tls.SecureContext) {
      throw codedError(TypeError, 'ERR_TLS_INVALID_CONTEXT', 'a SecureContext of node:tls is none of dormouse; use dormouse.createSecureContext()');
    }
    refuseUnsupported(options);
    const secureOptions = secureOptionsOf(options.secureOptions);
    const stores = storesOf(options);
    this.#trust = trustOf(options.ca, stores.flatMap(({ authorities }) => authorities));
    this.#identities = identitiesOf(options, stores, this.#trust);
    this.#settings = {
      ...versionsOf(options, secureOptions),
      groups: groupsOf(options.ecdhCurve),
      exportsKeys: options.exportKeyingMaterial === true,
    };
    this.#server = {
      ticketKeys: isMissing(options.ticketKeys) ? undefined : checkedTicketKeys('options.ticketKeys', options.ticketKeys),
      ticketLifetimeS: sessionTimeoutOf(options.sessionTimeout),
      // A session that is valid for no time is none.
      resumes: !(secureOptions & SSL_OP_NO_TICKET) && options.sessionTimeout !== 0,
      suites: suitesOf(options.ciphers),
      crls: crlsOf(options.crl),
    };
  }

  /** For programs that pass the `context` property on, as with node:tls. */
  get context() {
    return this;
  }

  get hasIdentity() {
    return this.#identities.length > 0;
  }

  /** Returns the 48 bytes with which tickets are sealed; creates them if the context has none yet. */
  get ticketKeys() {
    this.#server.ticketKeys ??= crypto.randomBytes(48);
    this.#variants.clear();
    return Buffer.from(this.#server.ticketKeys);
  }

  set ticketKeys(keys) {
    this.#server.ticketKeys = checkedTicketKeys('keys', keys);
    this.#variants.clear();
  }

  /** Returns the engine's context for servers. */
  server({ requestCert = false, rejectUnauthorized = true, alpn = [], logsKeys = false }) {
    return this.#variant(`s|${requestCert}|${rejectUnauthorized}|${logsKeys}|${alpn.join('\0')}`, () =>
      new native.ServerContext(
        this.#identities, requestCert ? this.#trust ?? defaultTrust() : null,
        { ...this.#settings, alpn, logsKeys },
        { ...this.#server, asks: requestCert, rejects: rejectUnauthorized }));
  }

  /** Throws for settings that clients do not have. */
  checkForClients() {
    if (this.#server.suites.length > 0 && this.#server.suites.length < native.suiteNames().length) {
      throw unsupported('options.ciphers for clients', 'a client offers all cipher suites; all are AEAD with forward secrecy');
    }
    if (this.#server.crls.length > 0) throw unsupported('options.crl for clients', 'servers staple OCSP responses instead');
  }

  /** Returns the engine's context for clients. */
  client({ rejectUnauthorized = true, resumes = false, alpn = [], logsKeys = false }) {
    return this.#variant(`c|${rejectUnauthorized}|${resumes}|${logsKeys}|${alpn.join('\0')}`, () =>
      new native.ClientContext(
        this.#identities.at(-1), this.#trust ?? defaultTrust(),
        { ...this.#settings, alpn, logsKeys },
        { rejects: rejectUnauthorized, resumes }));
  }

  #variant(key, make) {
    let found = this.#variants.get(key);
    if (found === undefined) {
      if (this.#variants.size >= VARIANTS_MAX) this.#variants.clear();
      found = make();
      this.#variants.set(key, found);
    }
    return found;
  }
}

function refuseUnsupported(options) {
  for (const [name, why] of Object.entries(UNSUPPORTED)) {
    const value = options[name];
    if (value) throw unsupported(`options.${name}`, why);
    if (isMissing(value) || TAKES_FALSY.has(name) || (value === '' && TAKES_EMPTY.has(name))) continue;
    throw invalidArgument(`options.${name}`, 'of type string', value);
  }
  const { sessionIdContext, ticketKeys } = options;
  if (isMissing(sessionIdContext)) return;
  if (typeof sessionIdContext !== 'string') throw invalidArgument('options.sessionIdContext', 'of type string', sessionIdContext);
  // Otherwise each context has ticket keys of its own, and resumes only its own sessions.
  if (ticketKeys && sessionIdContext) {
    throw unsupported('options.sessionIdContext with ticketKeys', 'contexts with the same ticketKeys resume the same sessions');
  }
}

function isMissing(value) {
  return value === undefined || value === null;
}

/** As in node:tls, a certificate or a key alone is no identity: a server refuses each client then. */
function identitiesOf({ cert, key, passphrase }, stores, trust) {
  const certs = list(cert || null);
  const keys = list(key || null);
  if (key && !isMissing(passphrase) && typeof passphrase !== 'string') {
    throw invalidArgument('options.passphrase', 'of type string', passphrase);
  }
  const stored = stores.filter((one) => one.key !== null).map((one) => new native.Identity(Buffer.from(one.cert), Buffer.from(one.key), trust));
  if (certs.length === 0 || keys.length === 0) return stored;
  if (certs.length !== keys.length) {
    throw codedError(Error, 'ERR_TLS_INVALID_CONTEXT',
                     `options.cert has ${certs.length} certificate chains and options.key ${keys.length} keys; each chain needs its key`);
  }
  const given = certs.map((chain, i) => new native.Identity(pemOf('options.cert', chain), keyOf(keys[i], passphrase), trust));
  return [...given, ...stored];
}

/** The contents of PKCS #12 files. */
function storesOf({ pfx, passphrase }) {
  return list(pfx).map((one) => {
    const bytes = one?.buf || one;
    if (typeof bytes !== 'string' && !isBytes(bytes)) throw invalidArgument('options.pfx', 'a string, a Buffer, a TypedArray or a DataView', bytes);
    const file = typeof bytes === 'string' ? Buffer.from(bytes) : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return readPkcs12(file, one.passphrase || passphrase);
  });
}

/** As in node:tls, authorities of PKCS #12 files are trusted besides the others. null: those that Node.js trusts. */
function trustOf(ca, stored) {
  if (ca) return new native.Trust(pemOf('options.ca', [...list(ca), ...stored]));
  return stored.length === 0 ? null : new native.Trust(pemOf('roots', [...defaultRoots(), ...stored]));
}

function keyOf(key, passphrase) {
  if (key instanceof crypto.KeyObject) return Buffer.from(key.export({ type: 'pkcs8', format: 'pem' }));
  if (typeof key === 'object' && !isBytes(key) && key !== null) {
    passphrase = key.passphrase ?? passphrase;
    key = key.pem;
  }
  const pem = pemOf('options.key', key);
  if (!/^(?:Proc-Type: 4,ENCRYPTED|(?:\xef\xbb\xbf)*-----BEGIN ENCRYPTED )/m.test(pem.toString('latin1'))) return pem;
  if (isMissing(passphrase)) {
    throw codedError(Error, 'ERR_OSSL_BAD_DECRYPT', 'options.key: bad decrypt: the key is encrypted, and options.passphrase is missing');
  }
  return native.decryptPrivateKey(pem, Buffer.from(passphrase));
}

function list(value) {
  if (isMissing(value)) return [];
  return Array.isArray(value) ? value : [value];
}

function isBytes(value) {
  return ArrayBuffer.isView(value);
}

/** Joins PEM texts. */
function pemOf(name, value) {
  const parts = list(value).map((part) => {
    if (typeof part === 'string') return Buffer.from(part);
    if (isBytes(part)) return Buffer.from(part.buffer, part.byteOffset, part.byteLength);
    throw invalidArgument(name, 'a string, a Buffer, a TypedArray or a DataView', part);
  });
  return Buffer.concat(parts.flatMap((part) => [part, Buffer.from('\n')]));
}

function crlsOf(crl) {
  if (isMissing(crl)) return [];
  const pem = pemOf('options.crl', crl).toString('latin1');
  if (pem.trim() === '') throw codedError(Error, 'ERR_TLS_INVALID_CONTEXT', 'options.crl is empty');
  return [pem];
}

function versionsOf(options, secureOptions) {
  let oldest = versionOf('minVersion', options.minVersion) ?? versionOf('minVersion', atLeast12(tls.DEFAULT_MIN_VERSION));
  let newest = versionOf('maxVersion', options.maxVersion) ?? versionOf('maxVersion', tls.DEFAULT_MAX_VERSION);
  const method = options.secureProtocol;
  if (method || method === '') {
    if (options.minVersion || options.maxVersion) {
      const set = options.minVersion ? 'minVersion' : 'maxVersion';
      throw codedError(TypeError, 'ERR_TLS_PROTOCOL_VERSION_CONFLICT',
                       `TLS protocol version ${JSON.stringify(options[set])} conflicts with secureProtocol ${JSON.stringify(method)}`);
    }
    if (typeof method !== 'string') throw invalidArgument('options.secureProtocol', 'of type string', method);
    if (!METHODS.test(method)) {
      throw codedError(TypeError, 'ERR_TLS_INVALID_PROTOCOL_METHOD',
                       `${method}: dormouse has TLS 1.2 and 1.3; use TLS_method or TLSv1_2_method`);
    }
    if (method.startsWith('TLSv1_2')) newest = 12;
  }
  if (secureOptions & SSL_OP_NO_TLSv1_3) newest = Math.min(newest, 12);
  // As with OpenSSL, an empty list of ciphers leaves those of TLS 1.3.
  if (secureOptions & SSL_OP_NO_TLSv1_2 || options.ciphers === '') oldest = Math.max(oldest, 13);
  if (oldest > newest) {
    throw codedError(TypeError, 'ERR_TLS_INVALID_CONTEXT', 'the options allow no version of TLS: minVersion is above maxVersion');
  }
  return { oldest, newest };
}

function atLeast12(version) {
  return version === 'TLSv1.3' ? version : 'TLSv1.2';
}

function versionOf(name, value) {
  if (isMissing(value)) return undefined;
  const version = VERSIONS[value];
  if (version !== undefined) return version;
  if (value === 'TLSv1' || value === 'TLSv1.1') {
    // Older versions are allowed, not demanded.
    if (name === 'minVersion') return VERSIONS['TLSv1.2'];
    throw unsupported(`options.${name} ${value}`, 'RFC 8996 forbids TLS 1.0 and 1.1; there are TLSv1.2 and TLSv1.3');
  }
  throw codedError(TypeError, 'ERR_TLS_INVALID_PROTOCOL_VERSION',
                   `${JSON.stringify(value)} is not a valid ${name === 'minVersion' ? 'minimum' : 'maximum'} TLS protocol version`);
}

function secureOptionsOf(value) {
  if (!value) return 0;
  if (!Number.isInteger(value)) throw invalidArgument('options.secureOptions', 'an integer', value);
  const unknown = value & ~(HELD_OPTIONS | SSL_OP_NO_TLSv1_2 | SSL_OP_NO_TLSv1_3 | SSL_OP_NO_TICKET);
  if (unknown) {
    throw unsupported(`options.secureOptions 0x${(unknown >>> 0).toString(16)}`, 'the engine has no such behaviour');
  }
  return value;
}

function groupsOf(curves) {
  if (curves === undefined || curves === 'auto') return [];
  if (typeof curves !== 'string') throw invalidArgument('options.ecdhCurve', 'of type string', curves);
  const names = curves.split(':');
  native.checkGroups(names);
  return names;
}

function checkedTicketKeys(name, keys) {
  if (!isBytes(keys)) throw invalidArgument(name, 'a Buffer, a TypedArray or a DataView', keys);
  if (keys.byteLength !== 48 && keys.byteLength !== 80) {
    throw codedError(TypeError, 'ERR_INVALID_ARG_VALUE', `Session ticket keys must be a 48-byte buffer, or one of 80 bytes; ${name} has ${keys.byteLength}`);
  }
  return Buffer.from(Buffer.from(keys.buffer, keys.byteOffset, keys.byteLength));
}

function sessionTimeoutOf(seconds) {
  if (isMissing(seconds) || seconds === 0) return undefined;
  if (!Number.isInteger(seconds)) throw invalidArgument('options.sessionTimeout', 'an integer', seconds);
  return seconds;
}

/** The suites in an OpenSSL cipher list; empty means all. Names and exclusions of other suites have no effect. */
function suitesOf(ciphers) {
  if (isMissing(ciphers) || ciphers === '' || ciphers === tls.DEFAULT_CIPHERS) return [];
  if (typeof ciphers !== 'string') throw invalidArgument('options.ciphers', 'of type string', ciphers);
  const ours = native.suiteNames();
  const words = ciphers.split(/[:, ]+/).filter(Boolean);
  const refuseIf = (isWrong) => {
    const word = words.find(isWrong);
    if (word !== undefined) throw unsupported(`${JSON.stringify(word)} in options.ciphers`, `name suites, of ${ours.join(', ')}`);
  };
  refuseIf((word) => /^[!-]/.test(word) && isOurs(word.slice(1), ours));
  if (words.some((word) => /^(?:DEFAULT|HIGH|ALL)$/.test(word))) return [];
  refuseIf((word) => !/^(?:[!-]|TLS_|(?:ECDHE|DHE|AES|PSK|RSA|DES|RC4|NULL|CAMELLIA|ARIA|ADH|AECDH)[0-9A-Z-]*$)/.test(word));
  const named = ours.filter((name) => words.includes(name));
  if (named.length === 0) {
    throw codedError(Error, 'ERR_SSL_NO_CIPHER_MATCH',
                     `no cipher match: options.ciphers ${JSON.stringify(ciphers)} names no cipher suite that dormouse has: ${ours.join(', ')}`);
  }
  // As with OpenSSL, all TLS 1.3 suites stay enabled if the list names none of them.
  const all13 = ours.filter((name) => name.startsWith('TLS_'));
  return named.some((name) => name.startsWith('TLS_')) ? named : [...all13, ...named];
}

function isOurs(word, ours) {
  return ours.includes(word) || /^(?:AES|AESGCM|CHACHA20|ECDH|ECDHE|EECDH|ECDSA|aRSA|aECDSA|kECDHE|kEECDH|TLSv1\.2|SHA256|SHA384|AES128|AES256)$/.test(word);
}

let roots;

/** The certificates that Node.js trusts: the bundled ones, and those of NODE_EXTRA_CA_CERTS. */
function defaultTrust() {
  roots ??= new native.Trust(pemOf('roots', defaultRoots()));
  return roots;
}

function defaultRoots() {
  return [...tls.rootCertificates.filter(isUsable), ...extraRoots()];
}

/** The certificates of NODE_EXTRA_CA_CERTS. As with Node.js, a file that cannot be used leads to a warning. */
function extraRoots() {
  const file = process.env.NODE_EXTRA_CA_CERTS;
  if (!file) return [];
  try {
    const pem = fs.readFileSync(file);
    return new native.Trust(pem) && [pem];
  } catch (error) {
    process.emitWarning(`Ignoring extra certs from \`${file}\`, load failed: ${error.message}`);
    return [];
  }
}

function isUsable(pem) {
  try {
    return Boolean(new native.Trust(Buffer.from(pem)));
  } catch {
    return false;
  }
}

/** Converts application protocols to strings with a character for each byte. */
function protocolsOf(value) {
  const names = namesOf(value, 'options.ALPNProtocols');
  if (names.includes('h2')) prepareForHttp2();
  return names;
}

function namesOf(value, name) {
  if (!value) return [];
  if (isBytes(value)) return protocolsOfWire(Buffer.from(value.buffer, value.byteOffset, value.byteLength), name);
  if (!Array.isArray(value)) throw invalidArgument(name, 'an Array, a TypedArray or a DataView', value);
  return value.map((one, i) => {
    const text = isBytes(one) ? Buffer.from(one.buffer, one.byteOffset, one.byteLength).toString('latin1') : Buffer.from(String(one)).toString('latin1');
    if (text.length === 0 || text.length > 255) {
      throw codedError(RangeError, 'ERR_OUT_OF_RANGE',
                       `The byte length of the protocol at index ${i} exceeds the maximum length. It must be >= 1 && <= 255. Received ${text.length}`);
    }
    return text;
  });
}

function protocolsOfWire(bytes, name) {
  const names = [];
  for (let at = 0; at < bytes.length; at += 1 + bytes[at]) {
    if (bytes[at] === 0 || at + 1 + bytes[at] > bytes.length) {
      throw codedError(TypeError, 'ERR_INVALID_ARG_VALUE', `${name} is not a list of names, each after its length`);
    }
    names.push(bytes.toString('latin1', at + 1, at + 1 + bytes[at]));
  }
  return names;
}

const CONTEXT_OPTIONS = [
  'ca', 'cert', 'key', 'pfx', 'passphrase', 'ciphers', 'ecdhCurve', 'minVersion', 'maxVersion', 'secureProtocol', 'secureOptions',
  'crl', 'ticketKeys', 'sessionTimeout', 'sessionIdContext', 'exportKeyingMaterial', ...Object.keys(UNSUPPORTED),
];
let plain;

/** Returns the context for a connection: the given one, a new one, or a shared one if no option matters. */
function contextOf(options) {
  const given = options.secureContext || options.credentials;
  if (given) return checkContext(given, 'options.secureContext');
  // Only this one cannot be null.
  if (options.ecdhCurve === null || CONTEXT_OPTIONS.some((name) => !isMissing(options[name]))) return new SecureContext(options);
  plain ??= new SecureContext({});
  return plain;
}

function checkContext(context, name) {
  if (context instanceof SecureContext) return context;
  throw codedError(TypeError, 'ERR_TLS_INVALID_CONTEXT', `${name} must be a SecureContext of dormouse.createSecureContext()`);
}

// Options of a server that count as missing if they are false in any form.
const OPTIONAL = [
  'pfx', 'key', 'passphrase', 'cert', 'clientCertEngine', 'ca', 'minVersion', 'maxVersion', 'secureProtocol', 'crl', 'ciphers',
  'dhparam', 'secureOptions', 'sessionIdContext', 'sessionTimeout', 'ticketKeys',
];

/** Returns the context for a server's options. */
function serverContextOf(options) {
  if (options.secureContext) return checkContext(options.secureContext, 'options.secureContext');
  const given = { ...options };
  for (const name of OPTIONAL) {
    if (!given[name]) given[name] = undefined;
  }
  return createSecureContext(given);
}

function createSecureContext(options) {
  return new SecureContext(options);
}

module.exports = { SecureContext, checkContext, contextOf, createSecureContext, protocolsOf, serverContextOf };
