'use strict';

// PKCS #12 files (the option `pfx`): a key, its certificate and the certificates above it.

const crypto = require('node:crypto');
const { chainOf } = require('./chain');
const { codedError } = require('./errors');
const native = require('./native');

/**
 * Reads a PKCS #12 file: `{ cert, key, authorities }`, PEM. The chain begins with the key's certificate; the authorities are
 * the certificates that have issued themselves, without the key's own: who has one key is no authority for others.
 */
function readPkcs12(file, passphrase) {
  const found = native.readPkcs12(file, passphrase || '');
  const certificates = found.certificates.map((der) => new crypto.X509Certificate(der));
  const authorities = certificates.filter((one) => one.checkIssued(one));
  if (!found.key) return { cert: null, key: null, authorities: authorities.map(String) };
  const key = crypto.createPrivateKey({ key: found.key, format: 'der', type: 'pkcs8' });
  found.key.fill(0);
  const own = certificates.find((one) => one.checkPrivateKey(key));
  if (own === undefined) throw codedError(Error, 'ERR_TLS_INVALID_CONTEXT', 'options.pfx: it has no certificate for its key');
  const chain = chainOf(own, certificates.filter((one) => one !== own));
  return {
    cert: chain.join(''),
    key: key.export({ type: 'pkcs8', format: 'pem' }),
    authorities: authorities.filter((one) => !one.checkPrivateKey(key)).map(String),
  };
}

module.exports = { readPkcs12 };
