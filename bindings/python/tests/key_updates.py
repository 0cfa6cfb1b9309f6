"""A client of OpenSSL that requests new keys (RFC 8446 section 4.6.3), for which `ssl` has no function."""

from __future__ import annotations

import _ssl
import ctypes
import ssl

_UPDATE_REQUESTED = 1


class Requester:
    """Bytes in, bytes out."""

    def __init__(self, cafile: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=cafile)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._update = ctypes.CDLL(_ssl.__file__).SSL_key_update
        self._update.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def shake(self, data: bytes = b"") -> bool:
        """Continue the handshake. Return whether it is done."""
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def output(self) -> bytes:
        """Return the bytes for the server."""
        return self._outgoing.read()

    def request(self) -> bytes:
        """Return a request for a new key, and one byte of data."""
        # The second field of CPython's object is the connection of OpenSSL.
        field = id(self._tls._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
        assert self._update(ctypes.c_void_p.from_address(field).value, _UPDATE_REQUESTED) == 1
        self._tls.write(b"x")
        return self.output()

    def open(self, data: bytes) -> bytes:
        """Return the plaintext of the server's bytes."""
        self._incoming.write(data)
        opened = []
        while True:
            try:
                opened.append(self._tls.read(65_536))
            except ssl.SSLWantReadError:
                return b"".join(opened)
