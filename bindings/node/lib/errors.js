'use strict';

// Errors with Node's own codes.

// Ends of connections by the native half's names, each with its code and OpenSSL's reason.
const ENDS = {
  truncated: ['ERR_SSL_UNEXPECTED_EOF_WHILE_READING', 'unexpected eof while reading'],
  tooLong: ['ERR_SSL_PACKET_LENGTH_TOO_LONG', 'packet length too long'],
  refused: ['ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC', 'decryption failed or bad record mac'],
  plainHttp: ['ERR_SSL_HTTP_REQUEST', 'http request'],
  notTls: ['ERR_SSL_WRONG_VERSION_NUMBER', 'wrong version number'],
  noCommonVersion: ['ERR_SSL_UNSUPPORTED_PROTOCOL', 'unsupported protocol'],
  noCommonSuite: ['ERR_SSL_NO_SHARED_CIPHER', 'no shared cipher'],
  noCommonGroup: ['ERR_SSL_NO_SUITABLE_KEY_SHARE', 'no suitable key share'],
  noCommonSignature: ['ERR_SSL_NO_SHARED_SIGNATURE_ALGORITHMS', 'no shared signature algorithms'],
  noCommonAlpn: ['ERR_SSL_NO_APPLICATION_PROTOCOL', 'no application protocol'],
  unknownName: ['ERR_SSL_TLSV1_UNRECOGNIZED_NAME', 'tlsv1 unrecognized name'],
  refusedByProgram: ['ERR_SSL_CALLBACK_FAILED', 'callback failed'],
  peerIncompatible: ['ERR_SSL_NO_SUITABLE_SIGNATURE_ALGORITHM', 'no suitable signature algorithm'],
  tooLarge: ['ERR_SSL_EXCESSIVE_MESSAGE_SIZE', 'excessive message size'],
  malformed: ['ERR_SSL_LENGTH_MISMATCH', 'length mismatch'],
  misbehaved: ['ERR_SSL_UNEXPECTED_MESSAGE', 'unexpected message'],
  forged: ['ERR_SSL_DECRYPTION_FAILED_OR_BAD_RECORD_MAC', 'decryption failed or bad record mac'],
  noCertificate: ['ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE', 'peer did not return a certificate'],
  internal: ['ERR_DORMOUSE_INTERNAL', 'internal error'],
};

// X509_verify_cert_error_string.
const CERTIFICATES = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'unable to verify the first certificate',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'unable to get local issuer certificate',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'self-signed certificate',
  SELF_SIGNED_CERT_IN_CHAIN: 'self-signed certificate in certificate chain',
  CERT_HAS_EXPIRED: 'certificate has expired',
  CERT_NOT_YET_VALID: 'certificate is not yet valid',
  CERT_SIGNATURE_FAILURE: 'certificate signature failure',
  CERT_REVOKED: 'certificate revoked',
  INVALID_PURPOSE: 'unsuitable certificate purpose',
  CERT_REJECTED: 'certificate rejected',
  UNSPECIFIED: 'unspecified certificate verification error',
};

function withCode(error, code) {
  error.code = code;
  return error;
}

/**
 * Returns an error with stack, name and `code` like Node's own errors.
 */
function codedError(Base, code, message) {
  const error = new Base(message);
  error.code = code;
  // The stack's first line shows the code, as with errors of Node's own.
  error.name = `${error.name} [${code}]`;
  error.stack; // eslint-disable-line no-unused-expressions
  delete error.name;
  return error;
}

/** An error for a feature of node:tls that this package does not support. */
function unsupported(what, why) {
  return codedError(Error, 'ERR_FEATURE_UNAVAILABLE', `dormouse does not support ${what}: ${why}`);
}

function invalidArgument(name, expected, actual) {
  return codedError(TypeError, 'ERR_INVALID_ARG_TYPE',
                    `The "${name}" argument must be ${expected}. Received ${describe(actual)}`);
}

/** An error for a call that the connection's state does not allow. */
function invalidState(what, why) {
  return codedError(Error, 'ERR_TLS_INVALID_STATE', `${what}: ${why}`);
}

function describe(value) {
  if (value == null) return `${value}`;
  if (typeof value === 'function') return `function ${value.name}`;
  if (typeof value === 'object') return `an instance of ${value.constructor?.name ?? 'Object'}`;
  return `type ${typeof value} (${String(value).slice(0, 25)})`;
}

/** An error for a peer that closed before the handshake was done. */
function hangUp(message = 'socket hang up') {
  return withCode(new Error(message), 'ECONNRESET');
}

/** An error for a peer's certificate, by OpenSSL's name for its problem. */
function certificateError(problem) {
  return withCode(new Error(CERTIFICATES[problem] ?? problem), problem);
}

function openssl(code, reason, details) {
  const error = new Error(`error:0A000000:SSL routines::${reason}${details ? ` (${details})` : ''}`);
  error.library = 'SSL routines';
  error.reason = reason;
  return withCode(error, code);
}

/**
 * Returns the error for the end of a connection, as the native half describes it; null for a proper end.
 */
function endError(end, problem) {
  switch (end?.kind) {
    case undefined:
    case 'closed':
      return null;
    case 'peerClosed':
      return hangUp();
    case 'certificate':
      return problem ? certificateError(problem) : openssl('ERR_SSL_CERTIFICATE_VERIFY_FAILED',
                                                           'certificate verify failed', end.reason);
    case 'alert': {
      const code = `ERR_SSL_${end.alertReason.toUpperCase().replaceAll(' ', '_')}`;
      return openssl(code, end.alertReason, `SSL alert number ${end.alert}`);
    }
    default: {
      const [code, reason] = ENDS[end.kind] ?? ENDS.internal;
      return openssl(code, reason, end.reason);
    }
  }
}

/** Lets a class be called without `new`, like Node's own classes. */
function callable(Class) {
  return new Proxy(Class, { apply: (target, self, args) => new target(...args) });
}

module.exports = {
  callable, certificateError, codedError, endError, hangUp, invalidArgument, invalidState, unsupported,
};
