"""Private keys that are encrypted by a password: PKCS #8 (RFC 8018) and OpenSSL's older form."""

from __future__ import annotations

import re
from typing import Any

from . import _native
from ._errors import SettingsError

_PASSWORD_MAX = 1024

_ENCRYPTED = re.compile(rb"^(-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED)", re.MULTILINE)


def decrypted(text: bytes, password: Any, name: str) -> bytes:
    """Return the private key of a PEM text in plain. If it is not encrypted, or without a password, return the text."""
    if password is None or not _ENCRYPTED.search(text):
        return text
    try:
        return _native.decrypt_private_key(text, _bytes_of(password))
    except ValueError as error:
        raise SettingsError(f"{name}: the key cannot be decrypted: {error}") from None


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
