"""Private keys that are encrypted by a password: PKCS #8 (RFC 8018) and OpenSSL's older form."""

from __future__ import annotations

import base64
import re
from typing import Any

from . import _native
from ._errors import SettingsError

_PASSWORD_MAX = 1024

_SECTION = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----\s*\n(.*?)-----END \1-----", re.DOTALL)


def decrypted(text: bytes, password: Any, name: str) -> bytes:
    """Return a PEM text with its encrypted keys in plain. Without such a key, or a password, it returns the text."""
    if password is None:
        return text

    def replace(found: "re.Match[bytes]") -> bytes:
        if found[1] != b"ENCRYPTED PRIVATE KEY" and b"Proc-Type: 4,ENCRYPTED" not in found[2]:
            return found[0]
        try:
            plain = _native.decrypt_private_key(found[0] + b"\n", _bytes_of(password))
        except ValueError as error:
            raise SettingsError(f"{name}: the key cannot be decrypted: {error}") from None
        return b"-----BEGIN PRIVATE KEY-----\n%s-----END PRIVATE KEY-----" % base64.encodebytes(plain)

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
