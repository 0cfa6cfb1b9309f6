'use strict';

// Reads PKCS #12 files (the option `pfx`): a key, its certificate and the certificates above it (RFC 7292).
//
// Keys are decrypted by node:crypto. Certificates are encrypted in a form that it does not read, so their decryption is here.

const crypto = require('node:crypto');
const { chainOf } = require('./chain');
const { codedError } = require('./errors');

const ITERATIONS_MAX = 10_000_000;

// Object identifiers in hexadecimal.
const DATA = '2a864886f70d010701';
const ENCRYPTED_DATA = '2a864886f70d010706';
const KEY_BAG = '2a864886f70d010c0a0101';
const SHROUDED_KEY_BAG = '2a864886f70d010c0a0102';
const CERTIFICATE_BAG = '2a864886f70d010c0a0103';
const X509 = '2a864886f70d01091601';
const PBES2 = '2a864886f70d01050d';
const PBKDF2 = '2a864886f70d01050c';
const PBE_SHA1_3DES = '2a864886f70d010c0103';
const PBE_SHA1_RC2_40 = '2a864886f70d010c0106';
const CIPHERS = {
  '608648016503040102': ['aes-128-cbc', 16],
  '608648016503040116': ['aes-192-cbc', 24],
  '60864801650304012a': ['aes-256-cbc', 32],
  '2a864886f70d0307': ['des-ede3-cbc', 24],
};
const DIGESTS = {
  '2b0e03021a': ['sha1', 20, 64],
  '608648016503040201': ['sha256', 32, 64],
  '608648016503040202': ['sha384', 48, 128],
  '608648016503040203': ['sha512', 64, 128],
};
const PRFS = {
  '2a864886f70d0207': 'sha1',
  '2a864886f70d0209': 'sha256',
  '2a864886f70d020a': 'sha384',
  '2a864886f70d020b': 'sha512',
};

// Purposes of derived bytes (RFC 7292 appendix B.3).
const FOR_KEY = 1;
const FOR_IV = 2;
const FOR_MAC = 3;

function refuse(why) {
  throw codedError(Error, 'ERR_TLS_INVALID_CONTEXT', `options.pfx: ${why}`);
}

// DER

/** The value of tag `tag` at the start of `der`, and what follows it. */
function take(der, tag) {
  if (der.length < 2 || der[0] !== tag) refuse('not a PKCS #12 file in DER');
  let length = der[1];
  let at = 2;
  if (length > 128) {
    const bytes = length - 128;
    if (bytes > 4 || der.length < 2 + bytes) refuse('not a PKCS #12 file in DER');
    length = der.readUIntBE(2, bytes);
    at += bytes;
  } else if (length === 128) {
    refuse('its lengths are indefinite; convert it with "openssl pkcs12 -in FILE -nodes" and "openssl pkcs12 -export"');
  }
  if (der.length < at + length) refuse('the file is cut off');
  return { value: der.subarray(at, at + length), rest: der.subarray(at + length), whole: der.subarray(0, at + length) };
}

const SEQUENCE = 0x30;
const INTEGER = 0x02;
const OCTETS = 0x04;
const OID = 0x06;
const EXPLICIT = 0xa0;
const IMPLICIT = 0x80;

/** The elements of a sequence, each with its tag and its encoding. */
function elements(der) {
  const found = [];
  for (let { value } = take(der, SEQUENCE); value.length > 0;) {
    const one = take(value, value[0]);
    found.push({ tag: value[0], value: one.value, whole: one.whole });
    value = one.rest;
  }
  return found;
}

function only(element, tag) {
  if (element?.tag !== tag) refuse('not a PKCS #12 file in DER');
  return element.value;
}

function number(element) {
  const bytes = only(element, INTEGER);
  if (bytes.length === 0 || bytes.length > 5) refuse('a number is too large');
  return bytes.readUIntBE(0, bytes.length);
}

function identifier(element) {
  return only(element, OID).toString('hex');
}

function iterations(element) {
  const count = number(element);
  if (count < 1 || count > ITERATIONS_MAX) refuse(`${count} iterations; there may be ${ITERATIONS_MAX}`);
  return count;
}

// Passwords

/** The password as PKCS #12 hashes it: UTF-16 with an end. null: no password at all. */
function wide(password) {
  return password === null ? Buffer.alloc(0) : Buffer.from(`${password}\0`, 'utf16le').swap16();
}

/** Derives bytes from a password (RFC 7292 appendix B.2). */
function derive(password, salt, count, purpose, length, [digest, digestLength, blockLength]) {
  const filled = (bytes) => {
    const room = Buffer.alloc(Math.ceil(bytes.length / blockLength) * blockLength);
    return room.map((_, i) => bytes[i % bytes.length]);
  };
  const diversifier = Buffer.alloc(blockLength, purpose);
  let input = Buffer.concat([filled(salt), filled(wide(password))]);
  let derived = Buffer.alloc(0);
  for (;;) {
    let block = Buffer.concat([diversifier, input]);
    for (let i = 0; i < count; i++) block = crypto.createHash(digest).update(block).digest();
    derived = Buffer.concat([derived, block]);
    if (derived.length >= length) return derived.subarray(0, length);
    const added = Buffer.alloc(blockLength).map((_, i) => block[i % digestLength]);
    // Each block of the input plus `added` plus 1.
    input = Buffer.from(input);
    for (let start = 0; start < input.length; start += blockLength) {
      let carry = 1;
      for (let i = blockLength - 1; i >= 0; i--) {
        carry += input[start + i] + added[i];
        input[start + i] = carry & 255;
        carry >>= 8;
      }
    }
  }
}

/** Whether the file's MAC belongs to the password. */
function isRight(content, [mac, salt, count], password) {
  const [algorithm, expected] = elements(mac.whole);
  const digest = DIGESTS[identifier(elements(algorithm.whole)[0])] ?? refuse('the algorithm of its MAC is not supported');
  const key = derive(password, only(salt, OCTETS), count ? iterations(count) : 1, FOR_MAC, digest[1], digest);
  const found = crypto.createHmac(digest[0], key).update(content).digest();
  return found.length === expected.value.length && crypto.timingSafeEqual(found, expected.value);
}

/** Decrypts the content of an EncryptedData. */
function decrypted(algorithm, content, password) {
  const [id, parameters] = elements(algorithm);
  const decipher = cipherOf(identifier(id), parameters.whole, password);
  return Buffer.concat([decipher.update(content), decipher.final()]);
}

function cipherOf(id, parameters, password) {
  if (id === PBE_SHA1_3DES) {
    const [salt, count] = elements(parameters);
    const part = (purpose, length) =>
      derive(password, only(salt, OCTETS), iterations(count), purpose, length, DIGESTS['2b0e03021a']);
    return crypto.createDecipheriv('des-ede3-cbc', part(FOR_KEY, 24), part(FOR_IV, 8));
  }
  if (id === PBE_SHA1_RC2_40) refuse('its certificates are encrypted by RC2; export it again, without -legacy');
  if (id !== PBES2) refuse('its encryption is not supported; export it again with AES');
  const [kdf, encryption] = elements(parameters);
  const [kdfId, kdfParameters] = elements(kdf.whole);
  const [cipherId, iv] = elements(encryption.whole);
  const [name, keyLength] = CIPHERS[identifier(cipherId)] ?? refuse('its cipher is not supported');
  if (identifier(kdfId) !== PBKDF2) refuse('its key derivation is not supported');
  const [salt, count, ...more] = elements(kdfParameters.whole);
  const prf = more.find(({ tag }) => tag === SEQUENCE);
  const digest = prf ? PRFS[identifier(elements(prf.whole)[0])] ?? refuse('its key derivation is not supported') : 'sha1';
  const key = crypto.pbkdf2Sync(password ?? '', only(salt, OCTETS), iterations(count), keyLength, digest);
  return crypto.createDecipheriv(name, key, only(iv, OCTETS));
}

// Contents

/** The bags of all parts of a file. */
function* bagsOf(safe, password) {
  for (const part of elements(safe)) {
    const [type, content] = elements(part.whole);
    const inner = only(content, EXPLICIT);
    let bags;
    switch (identifier(type)) {
      case DATA:
        bags = take(inner, OCTETS).value;
        break;
      case ENCRYPTED_DATA: {
        const [, info] = elements(inner);
        const [, algorithm, encrypted] = elements(info.whole);
        bags = decrypted(algorithm.whole, only(encrypted, IMPLICIT), password);
        break;
      }
      default:
        refuse('it is encrypted for a public key');
    }
    for (const bag of elements(bags)) {
      const [id, value] = elements(bag.whole);
      yield [identifier(id), only(value, EXPLICIT)];
    }
  }
}

function keyOf(der, passphrase) {
  return crypto.createPrivateKey({ key: der, format: 'der', type: 'pkcs8', passphrase });
}

function certificateOf(value) {
  const [id, certificate] = elements(value);
  if (identifier(id) !== X509) return [];
  return [new crypto.X509Certificate(take(only(certificate, EXPLICIT), OCTETS).value)];
}

/**
 * Reads a PKCS #12 file: `{ cert, key, authorities }`, PEM. The chain begins with the key's certificate; the authorities are
 * the certificates that have issued themselves.
 */
function readPkcs12(file, passphrase) {
  const [, authenticated, mac] = elements(file);
  const [type, content] = elements(only(authenticated, SEQUENCE) && authenticated.whole);
  if (identifier(type) !== DATA) refuse('it is signed by a public key');
  const safe = take(only(content, EXPLICIT), OCTETS).value;
  if (mac === undefined) refuse('it has no MAC');
  const candidates = passphrase ? [passphrase] : ['', null];
  const password = candidates.find((one) => isRight(safe, elements(mac.whole), one));
  if (password === undefined) refuse('mac verify failure: the passphrase is wrong');
  const keys = [];
  const certificates = [];
  for (const [id, value] of bagsOf(safe, password)) {
    if (id === KEY_BAG) keys.push(keyOf(value));
    else if (id === SHROUDED_KEY_BAG) keys.push(keyOf(value, password ?? ''));
    else if (id === CERTIFICATE_BAG) certificates.push(...certificateOf(value));
  }
  const authorities = certificates.filter((one) => one.checkIssued(one)).map(String);
  for (const key of keys) {
    const own = certificates.find((one) => one.checkPrivateKey(key));
    if (own === undefined) continue;
    const chain = chainOf(own, certificates.filter((one) => one !== own));
    return { cert: chain.join(''), key: key.export({ type: 'pkcs8', format: 'pem' }), authorities };
  }
  return keys.length === 0 ? { cert: null, key: null, authorities } : refuse('it has no certificate for its key');
}

module.exports = { readPkcs12 };
