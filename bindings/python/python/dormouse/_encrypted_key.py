"""Private keys that are encrypted by a password: PKCS #8 (RFC 8018) and OpenSSL's older form, both with AES."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any, Dict, List, NoReturn, Tuple

from . import _native
from ._errors import SettingsError

_PASSWORD_MAX = 1024
_ITERATIONS_MAX = 10_000_000

_SECTION = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----\s*\n(.*?)-----END \1-----", re.DOTALL)
_ENCRYPTED = re.compile(rb"\s*Proc-Type:\s*4,ENCRYPTED\s*\n\s*DEK-Info:\s*([A-Z0-9-]+),([0-9A-Fa-f]+)\s*\n")

_PBES2 = bytes.fromhex("2a864886f70d01050d")
_PBKDF2 = bytes.fromhex("2a864886f70d01050c")
_AES: Dict[bytes, int] = {
    bytes.fromhex("608648016503040102"): 16,
    bytes.fromhex("608648016503040116"): 24,
    bytes.fromhex("60864801650304012a"): 32,
}
_PRF: Dict[bytes, str] = {
    bytes.fromhex("2a864886f70d0207"): "sha1",
    bytes.fromhex("2a864886f70d0209"): "sha256",
    bytes.fromhex("2a864886f70d020a"): "sha384",
    bytes.fromhex("2a864886f70d020b"): "sha512",
}

_INTEGER, _OCTETS, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30

Element = Tuple[int, bytes]


def decrypted(text: bytes, password: Any, name: str) -> bytes:
    """Return a PEM text with its encrypted keys in plain. Without such a key, or a password, it returns the text."""
    if password is None:
        return text

    def replace(found: "re.Match[bytes]") -> bytes:
        label, body = found[1], found[2]
        old = _ENCRYPTED.match(body)
        if label != b"ENCRYPTED PRIVATE KEY" and old is None:
            return found[0]
        try:
            if old is not None:
                plain = _decrypt_old(old, body, _bytes_of(password))
            else:
                label = b"PRIVATE KEY"
                plain = _decrypt_pkcs8(base64.b64decode(body), _bytes_of(password))
        except (ValueError, IndexError, binascii.Error) as error:
            raise SettingsError(f"{name}: the key cannot be decrypted: {error}") from None
        lines = base64.encodebytes(plain)
        return b"-----BEGIN %s-----\n%s-----END %s-----" % (label, lines, label)

    return _SECTION.sub(replace, text)


def _bytes_of(password: Any) -> bytes:
    if callable(password):
        password = password()
    if isinstance(password, str):
        password = password.encode()
    if not isinstance(password, (bytes, bytearray)):
        raise TypeError("password should be a string, bytes, bytearray or a function that returns one")
    if len(password) > _PASSWORD_MAX:
        raise ValueError(f"password cannot be longer than {_PASSWORD_MAX} bytes")
    return bytes(password)


def _decrypt_old(header: "re.Match[bytes]", body: bytes, password: bytes) -> bytes:
    """Decrypt what follows `Proc-Type`: the key comes from MD5 of the password and a part of the IV."""
    cipher = re.fullmatch(rb"AES-(128|192|256)-CBC", header[1])
    if cipher is None:
        _refuse(header[1].decode("ascii"))
    iv = bytes.fromhex(header[2].decode("ascii"))
    length = int(cipher[1]) // 8
    key = block = b""
    while len(key) < length:
        block = hashlib.md5(block + password + iv[:8]).digest()
        key += block
    return _native.decrypt_aes_cbc(key[:length], iv, base64.b64decode(body[header.end() :]))


def _decrypt_pkcs8(der: bytes, password: bytes) -> bytes:
    algorithm, content = _elements(_only(_element(der)[0], _SEQUENCE))
    scheme, parameters = _elements(_only(algorithm, _SEQUENCE))
    if scheme != (_OID, _PBES2):
        _refuse("PBES1")
    kdf, cipher = _elements(_only(parameters, _SEQUENCE))
    function, settings = _elements(_only(kdf, _SEQUENCE))
    if function != (_OID, _PBKDF2):
        _refuse("its key derivation")
    salt, count, *more = _elements(_only(settings, _SEQUENCE))
    iterations = int.from_bytes(_only(count, _INTEGER), "big")
    if not 1 <= iterations <= _ITERATIONS_MAX:
        raise ValueError(f"{iterations} iterations; there may be {_ITERATIONS_MAX}")
    digest = "sha1"
    for tag, value in more:
        if tag == _SEQUENCE:
            digest = _PRF.get(_only(_elements(value)[0], _OID)) or _refuse("its key derivation")
    kind, iv = _elements(_only(cipher, _SEQUENCE))
    length = _AES.get(_only(kind, _OID)) or _refuse("its cipher")
    key = hashlib.pbkdf2_hmac(digest, password, _only(salt, _OCTETS), iterations, length)
    return _native.decrypt_aes_cbc(key, _only(iv, _OCTETS), _only(content, _OCTETS))


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} is not supported; convert it: openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW")


def _element(der: bytes) -> Tuple[Element, bytes]:
    """Return the first element, and what follows it."""
    tag, length, start = der[0], der[1], 2
    if length & 128:
        start += length & 127
        length = int.from_bytes(der[2:start], "big")
    if len(der) < start + length:
        raise ValueError("it is cut off")
    return (tag, der[start : start + length]), der[start + length :]


def _elements(content: bytes) -> List[Element]:
    found = []
    while content:
        one, content = _element(content)
        found.append(one)
    return found


def _only(element: Element, tag: int) -> bytes:
    if element[0] != tag:
        raise ValueError("it is not PKCS #8")
    return element[1]
