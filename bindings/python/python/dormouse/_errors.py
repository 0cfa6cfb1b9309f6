"""Exceptions. All derive from those of `ssl`, or from RuntimeError where the caller is to blame."""

from __future__ import annotations

import ssl
from typing import Optional, Tuple

from . import _native

End = Tuple[str, str, Optional[int], int]


class SSLError(ssl.SSLError):
    """The connection failed."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args if len(args) != 1 else (ssl.SSL_ERROR_SSL, args[0])))
        self.library = "DORMOUSE"
        self.reason: Optional[str] = None

    def __str__(self) -> str:
        # Programs search for OpenSSL's reasons in the text.
        return f"[SSL: {self.reason}] {self.strerror}" if self.reason else str(self.strerror)


class SSLCertVerificationError(SSLError, ssl.SSLCertVerificationError):
    """The peer's certificate was refused."""

    def __init__(self, message: str, verify_code: int) -> None:
        super().__init__(message)
        self.reason = "CERTIFICATE_VERIFY_FAILED"
        self.verify_code = verify_code
        self.verify_message = message


class SSLEOFError(SSLError, ssl.SSLEOFError, ConnectionResetError):
    """The connection ended without close_notify: data may be missing.

    It is a ConnectionResetError too, because programs treat every improper end alike.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ssl.SSL_ERROR_EOF, message)
        self.reason = "UNEXPECTED_EOF_WHILE_READING"


class SettingsError(SSLError):
    """Settings of a context that can't be used."""


class UnsupportedError(SettingsError, NotImplementedError):
    """A part of `ssl.SSLContext` that Dormouse does not support."""


class MisuseError(RuntimeError):
    """A call that is invalid in this state of the object."""


class WrongThreadError(MisuseError):
    """A call by a thread that may not use the object."""


def error_of(end: End) -> Exception:
    """Return the exception for the way in which a connection ended."""
    kind, text, alert, verify_code = end
    if kind == "certificate":
        return SSLCertVerificationError(text, verify_code)
    if kind == "truncated":
        return SSLEOFError(text)
    if kind == "peer_closed":
        return ConnectionResetError(text)
    error = SSLError(text)
    if kind.isupper():
        error.reason = kind
    elif alert is not None:
        error.reason = _native.alert_reason(alert)
    return error
