"""TLS connections of 128 bytes, for asyncio, uvloop and Twisted.

`SSLContext` has the shape of `ssl.SSLContext`. `dormouse.asyncio`, `dormouse.uvloop` and `dormouse.twisted`
use it.
"""

from __future__ import annotations

import os
from ssl import (
    CERT_NONE,
    CERT_OPTIONAL,
    CERT_REQUIRED,
    PROTOCOL_TLS_CLIENT,
    PROTOCOL_TLS_SERVER,
    Purpose,
    TLSVersion,
)

from . import _bio, _native  # noqa: F401
from ._context import SSLContext, create_default_context
from ._errors import (
    MisuseError,
    SettingsError,
    SSLCertVerificationError,
    SSLEOFError,
    SSLError,
    UnsupportedError,
    WrongThreadError,
)
from ._ssl_object import SSLObject

__all__ = [
    "CERT_NONE",
    "CERT_OPTIONAL",
    "CERT_REQUIRED",
    "MisuseError",
    "PROTOCOL_TLS_CLIENT",
    "PROTOCOL_TLS_SERVER",
    "Purpose",
    "SSLCertVerificationError",
    "SSLContext",
    "SSLEOFError",
    "SSLError",
    "SSLObject",
    "SettingsError",
    "TLSVersion",
    "UnsupportedError",
    "WrongThreadError",
    "create_default_context",
]

# A child that used its parent's connections would use a key twice for the same record number.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.note_fork)
