"""`wrap_bio`: a connection over two `ssl.MemoryBIO`, for libraries that move the bytes themselves."""

from __future__ import annotations

import ssl
import sys
import time
from types import SimpleNamespace
from typing import Any, NoReturn, Optional

from . import _native
from ._context import SSLContext
from ._errors import End, SSLEOFError, SSLError, error_of
from ._session_setup import choose_context, client_session, server_session
from ._ssl_object import SSLObject

# How long a client keeps memory for tickets that the server may send.
_TICKET_WAIT_S = 1.0
_HEADER_LEN = 5


class BIOObject(SSLObject):
    """A connection with the interface of `ssl.SSLObject`, made by `SSLContext.wrap_bio`.

    A quiet one has its session, this object and what the caller keeps: the two MemoryBIOs.
    """

    __slots__ = (
        "_incoming",
        "_outgoing",
        "_header",
        "_missing",
        "_plaintext",
        "_end",
        "_has_begun",
        "_has_closed",
        "_ticket_deadline_s",
    )

    def __init__(
        self,
        context: SSLContext,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool,
        server_hostname: Optional[str],
    ) -> None:
        if server_side and server_hostname:
            raise ValueError("server_hostname can only be specified in client mode")
        super().__init__(_new_session(context, server_side, server_hostname), context, server_hostname, server_side)
        self._incoming = incoming
        self._outgoing = outgoing
        # The start of a record's header, and how many bytes the record lacks after it.
        self._header = b""
        self._missing = 0
        # Opened data that nobody has read yet.
        self._plaintext = b""
        # How the peer's direction has ended.
        self._end: Optional[End] = None
        self._has_begun = False
        self._has_closed = False
        self._ticket_deadline_s: Optional[float] = None

    @property
    def context(self) -> SSLContext:
        """The context. Another one counts if it is set before the handshake."""
        return self._context

    @context.setter
    def context(self, context: SSLContext) -> None:
        if not self._has_begun:
            self._session = _new_session(context, self.server_side, self.server_hostname)
        self._context = context

    def do_handshake(self) -> None:
        """Continue the handshake. Raise `ssl.SSLWantReadError` if it needs more of the peer's bytes."""
        while self._session.is_handshaking:
            if self._end is not None:
                raise _error_of(self._end)
            if not self._receive():
                self._demand_more()

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read up to `len` bytes, into `buffer` if there is one: then their number is returned."""
        return self._take(len) if buffer is None else self._read_into(memoryview(buffer).cast("B"), len)

    def _read_into(self, buffer: memoryview, count: int) -> int:
        data = self._take(min(count, len(buffer)) if count > 0 else len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _take(self, count: int) -> bytes:
        if count < 0:
            raise ValueError("size should not be negative")
        if count == 0:
            return b""
        self.do_handshake()
        while not self._plaintext and self._end is None:
            if not self._receive():
                self._demand_more()
        if not self._plaintext:
            self._raise_unless_closed()
            if self._has_closed:
                raise ssl.SSLZeroReturnError(ssl.SSL_ERROR_ZERO_RETURN, "TLS/SSL connection has been closed (EOF)")
            return b""
        data, self._plaintext = self._plaintext[:count], self._plaintext[count:]
        return data

    def write(self, data: Any) -> int:
        """Send data, and return its length."""
        self.do_handshake()
        if self._has_closed:
            raise _error("PROTOCOL_IS_SHUTDOWN", "protocol is shutdown")
        data = bytes(data)
        if data:
            self._outgoing.write(self._session.seal(data))
        return len(data)

    def unwrap(self) -> None:
        """End our direction with close_notify, and return when the peer has ended its own."""
        if self._session.is_handshaking:
            raise _error("SHUTDOWN_WHILE_IN_INIT", "shutdown while in init")
        if not self._has_closed:
            self._has_closed = True
            self._outgoing.write(self._session.close())
        while self._end is None:
            if not self._receive():
                self._demand_more()
            if self._plaintext:
                # As in OpenSSL: a program that closes without having read everything would miss it.
                raise _error("APPLICATION_DATA_AFTER_CLOSE_NOTIFY", "application data after close notify")
        self._raise_unless_closed()

    def pending(self) -> int:
        """Return how many opened bytes can be read."""
        return len(self._plaintext)

    def _receive(self) -> bool:
        """Open the next record, and send what answers it. Return False if there is nothing to open."""
        data = self._next_bytes()
        if data or not self._has_begun:
            self._has_begun = True
            plaintext, signals = self._session.receive(data)
            while signals & _native.CLIENT_HELLO:
                self.context = choose_context(self._session, self.context, _report)
                plaintext, signals = self._session.receive(b"")
            if signals & _native.OUTPUT:
                self._outgoing.write(self._session.take_output())
            if signals & _native.ESTABLISHED and self._session.awaits_tickets():
                self._ticket_deadline_s = time.monotonic() + _TICKET_WAIT_S
            self._plaintext += plaintext
            if signals & _native.ENDED:
                self._end = self._session.end
        elif self._incoming.eof:
            self._session.receive_eof()
            self._end = self._session.end
        else:
            return False
        if self._ticket_deadline_s is not None and time.monotonic() > self._ticket_deadline_s:
            self._ticket_deadline_s = None
            self._session.ignore_tickets()
        return True

    def _next_bytes(self) -> bytes:
        """Take the next record, or its part that is there. Callers see by `incoming` whether another one waits."""
        if self._missing == 0:
            self._header += self._incoming.read(_HEADER_LEN - len(self._header))
            if len(self._header) < _HEADER_LEN:
                return b""
            self._missing = int.from_bytes(self._header[3:], "big")
        header, self._header = self._header, b""
        body = self._incoming.read(self._missing) if self._missing else b""
        self._missing -= len(body)
        return header + body

    def _demand_more(self) -> NoReturn:
        raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)")

    def _raise_unless_closed(self) -> None:
        """Raise the error by which the peer's direction has ended, if any."""
        assert self._end is not None
        kind = self._end[0]
        if kind != "closed" and not (kind == "truncated" and self.context.suppress_ragged_eofs):
            raise _error_of(self._end)


def _new_session(context: SSLContext, server_side: bool, server_hostname: Optional[str]) -> _native.Session:
    return server_session(context) if server_side else client_session(context, server_hostname)


def _error_of(end: End) -> Exception:
    # `ssl` has this one also for an end before the handshake is done.
    return SSLEOFError(end[1]) if end[0] in ("truncated", "peer_closed") else error_of(end)


def _error(reason: str, text: str) -> SSLError:
    error = SSLError(text)
    error.reason = reason
    return error


def _report(error: BaseException) -> None:
    """Report an error of an `sni_callback`, as `ssl` does."""
    parts = {"exc_type": type(error), "exc_value": error, "exc_traceback": error.__traceback__}
    sys.unraisablehook(SimpleNamespace(**parts, err_msg="Error in sni_callback", object=None))  # type: ignore[arg-type]


SSLContext.sslobject_class = BIOObject
