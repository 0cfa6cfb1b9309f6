"""The transport of asyncio and uvloop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from asyncio import events
from typing import Any, Callable, Iterable, Optional, Tuple, TypeVar, Union

from . import _native
from ._errors import MisuseError, WrongThreadError, error_of
from ._flight import Flight, fail_future
from ._session_setup import choose_context, client_session, server_session
from ._settings import Settings
from ._ssl_object import SSLObject

logger = logging.getLogger("dormouse.asyncio")

_OUTPUT = _native.OUTPUT
_ESTABLISHED = _native.ESTABLISHED
_CLIENT_HELLO = _native.CLIENT_HELLO
_ENDED = _native.ENDED

# Flags of a transport. None is set while it is open in both directions and quiet.
_NEW = 1  # there is no connection below it yet
_HANDSHAKING = 2
_EOF_SENT = 4  # close_notify was sent
_EOF_RECEIVED = 8  # close_notify has come
_CLOSING = 16  # the program has closed it; what comes is dropped
_LOST = 32  # the connection below it is gone
_EXPORTING = 64
_CONNECTED = 128  # the protocol was told of the connection
_BUFFERED = 256  # the protocol is a BufferedProtocol
_PAUSED = 512  # the program wants no data at the moment
_FULL = 1024  # the transport below has more to send than it wants to keep
_NOT_WRITABLE = _NEW | _HANDSHAKING | _EOF_SENT | _CLOSING | _LOST | _EXPORTING

_TICKET_WAIT_S = 1.0
# As asyncio reads a file that the operating system cannot send.
_FILE_BLOCK = 256 * 1024

Data = Union[bytes, bytearray, memoryview]
T = TypeVar("T")


class TLSTransport(asyncio.Transport, asyncio.Protocol):
    """A TLS connection over any transport.

    It is one object in two roles, because each object costs memory for each connection: the transport of the
    program's protocol, and the protocol of the underlying transport. A quiet connection consists of this object and its
    session.

    Only the thread of its event loop may use it.
    """

    __slots__ = (
        "_loop",
        "_below",
        "_protocol",
        "_session",
        "_settings",
        "_flight",
        "_flags",
        "__weakref__",
    )

    # For `loop.start_tls()`: TLS inside TLS.
    _start_tls_compatible = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        settings: Settings,
        waiter: Optional[asyncio.Future[None]] = None,
        session: Optional[_native.Session] = None,
    ) -> None:
        self._loop = loop
        self._below: Any = None
        self._protocol: Any = None
        self._session: Any = session
        self._settings = settings
        self._flags = _NEW
        self._flight: Optional[Flight] = None
        if waiter is not None:
            self._in_flight().waiter = waiter
        if not settings.announces:
            self._flags |= _CONNECTED
        self.set_protocol(protocol)

    def _in_flight(self) -> Flight:
        if self._flight is None:
            self._flight = Flight()
        return self._flight

    # The protocol of the underlying transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._below = transport
        settings = self._settings
        self._flags &= ~_NEW
        if self._session is not None:
            # It was established elsewhere.
            self._session.pin()
            try:
                self._established()
                self._receive(b"")
            except BaseException as error:
                self._fail(error, at_once=True)
                raise
            return
        self._flags |= _HANDSHAKING
        flight = self._in_flight()
        try:
            if settings.server_side:
                self._session = server_session(settings.context)
            else:
                self._session = client_session(settings.context, settings.server_hostname)
        except Exception as error:
            self._fail(error)
            return
        self._session.pin()
        flight.timer = self._loop.call_later(settings.handshake_timeout_s, self._handshake_timed_out)
        if not settings.server_side:
            self._receive(b"")

    def data_received(self, data: bytes) -> None:
        """Open received bytes, and pass the plaintext to the protocol."""
        try:
            plaintext, signals = self._session.receive(data)
        except Exception as error:
            self._retry(error, self.data_received, data)
            return
        if signals:
            self._handle(plaintext, signals)
        elif plaintext:
            self._deliver(plaintext)

    _receive = data_received

    def eof_received(self) -> bool:
        """Distinguish a proper end from a truncation."""
        flags = self._flags
        if flags & (_CLOSING | _LOST) or self._session is None:
            return False
        if self._flight is not None and self._flight.holds_end:
            return True
        if flags & _EOF_RECEIVED:
            # The protocol wanted to continue sending.
            return True
        self._ask(self._session.receive_eof)
        if self._flags & _HANDSHAKING or not self._settings.context.suppress_ragged_eofs:
            self._fail(error_of(self._session.end))
        else:
            self._peer_closed()
        return bool(self._flags & _EOF_RECEIVED and not self._flags & _CLOSING)

    def connection_lost(self, exc: Optional[BaseException]) -> None:
        """Tell the protocol that the connection is gone, and why."""
        flags = self._flags
        self._flags = flags | _LOST | _CLOSING
        flight, self._flight = self._flight, None
        # The secrets are wiped with it.
        self._session = None
        if flight is not None:
            flight.cancel_timer()
            if exc is not None and flight.error is None:
                self._report_handshake(exc)
            exc = flight.error or exc
            fail_future(flight.drained, exc or ConnectionResetError("the connection was lost"))
            reason = exc or ConnectionAbortedError("the connection was closed during the TLS handshake")
            fail_future(flight.waiter, reason)
        # Protocols keep their transport: a reference cycle would keep both alive.
        protocol, self._protocol = self._protocol, None
        if flags & _CONNECTED and not flags & _LOST:
            protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass backpressure on to the protocol."""
        self._flags |= _FULL
        if self._flags & _CONNECTED:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol that there is room again."""
        self._flags &= ~_FULL
        flight = self._flight
        if flight is not None and flight.drained is not None and not flight.drained.done():
            flight.drained.set_result(None)
        if self._flags & _CONNECTED:
            self._protocol.resume_writing()
        # An export takes along the answer that waits.
        if self._session is not None and not self._flags & (_EXPORTING | _FULL):
            self._write_below(self._ask(self._session.take_output))

    # Events of received bytes

    def _handle(self, plaintext: bytes, signals: int) -> None:
        while signals & _CLIENT_HELLO:
            context = choose_context(self._session, self._settings.context, self._report)
            if context is not self._settings.context:
                self._settings = self._settings.with_context(context)
            plaintext, signals = self._session.receive(b"")
        # The session has one answer at a time, which waits for room: a peer that requests keys without end, and reads
        # nothing, must not make the queue below grow.
        if signals & _OUTPUT and (signals & _ENDED or not self._flags & _FULL):
            self._write_below(self._session.take_output())
        if signals & _ESTABLISHED:
            self._established()
        if plaintext:
            self._deliver(plaintext)
        if signals & _ENDED:
            self._ended()

    def _deliver(self, plaintext: bytes) -> None:
        flags = self._flags
        if flags & _CLOSING:
            return
        if flags & _PAUSED:
            self._in_flight().held.append(plaintext)
        elif flags & _BUFFERED:
            self._fill(plaintext)
        else:
            self._protocol.data_received(plaintext)

    def _fill(self, plaintext: bytes) -> None:
        """Copy plaintext into the buffers of a BufferedProtocol. After each it may pause, close or be replaced."""
        rest = memoryview(plaintext)
        while rest and self._flags & (_BUFFERED | _PAUSED | _CLOSING) == _BUFFERED:
            protocol = self._protocol
            room = protocol.get_buffer(len(rest))
            if not len(room):
                raise RuntimeError("get_buffer() returned an empty buffer")
            count = min(len(rest), len(room))
            room[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]
        if rest:
            self._deliver(bytes(rest))

    def _ended(self) -> None:
        flags = self._flags
        if flags & _LOST:
            return
        if flags & _PAUSED and not flags & _CLOSING:
            self._in_flight().holds_end = True
            return
        end = self._session.end
        if end[0] == "closed":
            self._peer_closed()
        else:
            self._fail(error_of(end))

    def _deliver_held(self) -> None:
        """Continue where `pause_reading()` has stopped."""
        # What arrives during an export is for the process that continues. If the export fails, it resumes by itself.
        if self._flags & (_PAUSED | _EXPORTING) or self.is_closing():
            return
        if self._flight is not None:
            try:
                self._empty(self._flight)
            except BaseException as error:
                # In data_received() the underlying transport would end the connection; here nothing else does.
                self._fail(error, at_once=True)
                raise
        if not self._flags & _PAUSED and not self.is_closing():
            self._below.resume_reading()

    def _empty(self, flight: Flight) -> None:
        """Deliver what a flight holds."""
        held, flight.held = flight.held, []
        for plaintext in held:
            # It may pause again: then the rest is held again.
            self._deliver(plaintext)
        if flight.holds_end and not self._flags & _PAUSED:
            flight.holds_end = False
            self._ended()
        self._settle()

    def _settle(self) -> None:
        """Drop the flight if nothing is in flight any more."""
        flight = self._flight
        if flight is not None and flight.is_empty():
            self._flight = None

    def _established(self) -> None:
        self._flags &= ~_HANDSHAKING
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.cancel_timer()
        if self._session.awaits_tickets():
            # At rest a connection keeps nothing for tickets.
            self._in_flight().timer = self._loop.call_later(_TICKET_WAIT_S, self._ignore_tickets)
        if not self._flags & _CONNECTED:
            self._flags |= _CONNECTED
            try:
                self._protocol.connection_made(self)
            except BaseException as error:
                if flight is not None:
                    fail_future(flight.waiter, error)
                raise
        if flight is None:
            return
        if flight.waiter is not None and not flight.waiter.done():
            flight.waiter.set_result(None)
        for data in flight.backlog:
            self.write(data)

    def _ignore_tickets(self) -> None:
        if self._session is not None and self._flight is not None:
            self._ask(self._session.ignore_tickets)
            self._flight.timer = None
            self._settle()

    def _peer_closed(self) -> None:
        """Handle the end of the peer's direction. The protocol decides whether ours stays open."""
        if self._flags & _EOF_RECEIVED:
            return
        self._flags |= _EOF_RECEIVED
        if self._flags & _CLOSING:
            self._below.close()
            return
        if not self._protocol.eof_received():
            self.close()
        elif self._flags & _EOF_SENT:
            # Both directions have ended.
            self.close()

    def _handshake_timed_out(self) -> None:
        if self._flags & _HANDSHAKING:
            seconds = self._settings.handshake_timeout_s
            self._fail(
                ConnectionAbortedError(
                    f"SSL handshake is taking longer than {seconds} seconds: aborting the connection"
                ),
                at_once=True,
            )

    def _shutdown_timed_out(self) -> None:
        if not self._flags & _LOST:
            self._fail(TimeoutError("SSL shutdown timed out"), at_once=True)

    def _fail(self, error: BaseException, at_once: bool = False) -> None:
        """End the connection because of an error, and report it to the protocol."""
        if self._flags & _LOST:
            return
        if self._loop.get_debug():
            logger.debug("%r: %s", self, error)
            self._report_handshake(error)
        flight = self._in_flight()
        flight.cancel_timer()
        if flight.error is None:
            flight.error = error
        self._flags |= _CLOSING
        # Report the error to the handshake's waiter now: the connection may take a while to close.
        fail_future(flight.waiter, error)
        if at_once:
            self._below.abort()
        else:
            # There may be an alert to be sent, behind data that the peer does not read.
            flight.timer = self._loop.call_later(self._settings.shutdown_timeout_s, self._below.abort)
            self._below.close()

    def _retry(self, error: BaseException, call: Any, *args: Any) -> None:
        """Handle an error of the session."""
        if isinstance(error, WrongThreadError) and events._get_running_loop() is self._loop:
            # The loop itself has moved to another thread.
            self._session.pin()
            call(*args)
        elif isinstance(error, MisuseError):
            raise error
        else:
            self._fail(error)

    def _ask(self, call: Callable[[], T]) -> T:
        """Call a method of the session. If the loop has moved to another thread, the session moves too."""
        try:
            return call()
        except WrongThreadError:
            if events._get_running_loop() is not self._loop:
                raise
            self._session.pin()
            return call()

    def _report_handshake(self, error: BaseException) -> None:
        """Report what a server's handshake has failed of, in debug mode only, as asyncio does."""
        if self._flags & _HANDSHAKING and self._settings.server_side and self._loop.get_debug():
            self._report(error, "Error on transport creation for incoming connection")

    def _report(self, error: BaseException, what: str = "Error in sni_callback") -> None:
        self._loop.call_exception_handler(
            {
                "message": what,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _write_below(self, data: bytes) -> None:
        # After the end of our direction the underlying transport takes nothing more.
        if data and not self._below.is_closing() and not self._flags & _EOF_SENT:
            self._below.write(data)

    # The transport of the program's protocol

    def write(self, data: Data) -> None:
        """Send data."""
        if type(data) is not bytes:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
            data = bytes(data)
        if self._flags & _NOT_WRITABLE:
            self._write_later(data)
        elif data:
            try:
                sealed = self._session.seal(data)
            except Exception as error:
                if self._session.is_closed:
                    # The peer has ended both directions, and the protocol is about to hear of it.
                    logger.debug("%r is ended by the peer; %d bytes are not sent", self, len(data))
                else:
                    self._retry(error, self.write, data)
            else:
                self._below.write(sealed)

    def _write_later(self, data: bytes) -> None:
        flags = self._flags
        if flags & _EXPORTING:
            raise MisuseError("the connection is being exported")
        if flags & (_CLOSING | _LOST):
            logger.debug("%r is closed; %d bytes are not sent", self, len(data))
        elif flags & _EOF_SENT:
            raise RuntimeError("Cannot call write() after write_eof()")
        elif data:
            self._in_flight().backlog.append(data)

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Send all data."""
        self.write(b"".join(list_of_data))

    async def send_file(self, file: Any, offset: int, count: Optional[int]) -> int:
        """Send `count` bytes of a file, or all of it, from `offset`. Return how many were sent."""
        if self.is_closing():
            raise RuntimeError("Transport is closing")
        if "b" not in getattr(file, "mode", "b"):
            raise ValueError("file should be opened in binary mode")
        if offset < 0 or (count is not None and count <= 0):
            raise ValueError(f"offset must be non-negative and count positive, got {offset} and {count}")
        if hasattr(file, "seek"):
            file.seek(offset)
        sent = 0
        try:
            while count is None or sent < count:
                size = _FILE_BLOCK if count is None else min(_FILE_BLOCK, count - sent)
                block = await self._loop.run_in_executor(None, file.read, size)
                if not block:
                    break
                if self.is_closing():
                    raise ConnectionError("Connection closed by peer")
                self.write(block)
                sent += len(block)
                await self._drained()
        finally:
            if sent and hasattr(file, "seek"):
                file.seek(offset + sent)
        return sent

    async def _drained(self) -> None:
        """Wait until the transport below has room."""
        if not self._flags & _FULL:
            return
        flight = self._in_flight()
        if flight.drained is not None:
            raise MisuseError("another task sends a file or exports the connection")
        flight.drained = self._loop.create_future()
        try:
            await flight.drained
        finally:
            flight.drained = None
            self._settle()

    def write_eof(self) -> None:
        """End our direction with close_notify. The peer's stays open."""
        if self._flags & (_EOF_SENT | _CLOSING | _LOST):
            return
        if self._flags & (_NEW | _HANDSHAKING):
            raise MisuseError("the TLS handshake is not done yet")
        self._send_close()

    def can_write_eof(self) -> bool:
        """Return whether the peer can still send after `write_eof()`. In TLS 1.2 it must close at once."""
        return self._session is not None and self._session.version == "TLSv1.3"

    def _send_close(self) -> None:
        self._write_below(self._ask(self._session.close))
        self._flags |= _EOF_SENT
        if self._below.can_write_eof() and not self._below.is_closing():
            try:
                self._below.write_eof()
            except OSError:
                # The peer has reset the connection; the underlying transport is about to notice.
                pass

    def close(self) -> None:
        """End the connection, after all data was sent.

        The protocol hears of it when the peer has ended its direction too, or after `ssl_shutdown_timeout`. What
        comes until then is dropped.
        """
        flags = self._flags
        if flags & (_CLOSING | _LOST):
            return
        if flags & (_NEW | _HANDSHAKING):
            self.abort()
            return
        try:
            if not flags & _EOF_SENT:
                self._send_close()
        except WrongThreadError:
            raise
        except Exception as error:
            self._fail(error, at_once=True)
            return
        self._flags |= _CLOSING
        flight = self._in_flight()
        flight.cancel_timer()
        # A peer that has ended its direction may still not read what is to be sent.
        flight.timer = self._loop.call_later(self._settings.shutdown_timeout_s, self._shutdown_timed_out)
        if flags & _EOF_RECEIVED or self._below.is_closing():
            self._below.close()
            return
        # Paused, it would not see the end.
        self._below.resume_reading()

    def abort(self) -> None:
        """End the connection at once."""
        self._flags |= _CLOSING
        if self._below is not None and not self._flags & _LOST:
            self._below.abort()

    def _force_close(self, exc: Optional[BaseException]) -> None:
        """Close after an error of a protocol; asyncio calls this."""
        if exc is not None and not self._flags & _LOST:
            self._fail(exc, at_once=True)
        else:
            self.abort()

    def is_closing(self) -> bool:
        """Return whether it is closed, or about to be."""
        return bool(self._flags & _CLOSING) or (self._below is not None and self._below.is_closing())

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that gets the data."""
        self._protocol = protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            self._flags |= _BUFFERED
        else:
            self._flags &= ~_BUFFERED

    def get_protocol(self) -> Any:
        """Return the protocol that gets the data; None after its connection is lost."""
        return self._protocol

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading()`."""
        if not self.is_closing():
            self._flags |= _PAUSED
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        if self.is_closing() or not self._flags & _PAUSED:
            return
        self._flags &= ~_PAUSED
        if self._flight is not None:
            # Not out of this call: programs do not expect data before it returns.
            self._loop.call_soon(self._deliver_held)
        else:
            self._below.resume_reading()

    def is_reading(self) -> bool:
        """Return whether it receives."""
        return not self._flags & _PAUSED and not self.is_closing()

    def set_write_buffer_limits(self, high: Optional[int] = None, low: Optional[int] = None) -> None:
        """Set how many sealed bytes may wait before the protocol is told to pause."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> Tuple[int, int]:
        """Return the limits, low and high."""
        return self._below.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Return how many sealed bytes wait."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the connection: of its TLS, or of the underlying transport."""
        if name == "sslcontext":
            return self._settings.context
        if name in ("ssl_object", "peercert", "cipher", "compression"):
            if self._session is None or self._flags & _HANDSHAKING:
                return default
            view = self.ssl_object()
            if name == "ssl_object":
                return view
            if name == "peercert":
                return view.getpeercert()
            return view.cipher() if name == "cipher" else None
        return default if self._below is None else self._below.get_extra_info(name, default)

    def ssl_object(self) -> SSLObject:
        """Return a view of the connection's TLS."""
        settings = self._settings
        return SSLObject(self._session, settings.context, settings.server_hostname, settings.server_side)

    # To another process

    async def export(self, timeout_s: float = 5.0) -> Tuple[bytes, socket.socket]:
        """End the connection here, and return its bytes and its socket, with which it continues elsewhere.

        The bytes are secrets. They may be used once, by one process: `dormouse.asyncio.restore()`. First it waits
        until what was written is sent. If that takes too long it raises TimeoutError, and nothing has changed.
        """
        if self._flags & _NOT_WRITABLE or self.is_closing():
            raise MisuseError("only a connection that is established and open can be exported")
        if self.get_extra_info("socket") is None:
            raise MisuseError("the transport below has no socket")
        if self._below.get_extra_info("sslcontext") is not None:
            raise MisuseError("TLS inside TLS can't be exported: the other TLS would stay here")
        if self._flight is not None and (self._flight.held or self._flight.holds_end):
            raise MisuseError("received data is waiting; call resume_reading() first")
        self._flags |= _EXPORTING
        self._below.pause_reading()
        try:
            await self._drain_for_export(timeout_s)
            if self._flags & _NOT_WRITABLE & ~_EXPORTING or self.is_closing():
                raise MisuseError("the connection was closed before it could be exported")
            # A second descriptor: closing the first one does not end the connection.
            moved = socket.socket(fileno=os.dup(self.get_extra_info("socket").fileno()))
            exported = self._ask(self._session.export)
        except BaseException:
            self._flags &= ~_EXPORTING
            if not self._flags & _PAUSED and not self.is_closing():
                self._below.resume_reading()
            raise
        self.abort()
        return exported, moved

    async def _drain_for_export(self, timeout_s: float) -> None:
        limits = self._below.get_write_buffer_limits()
        self._below.set_write_buffer_limits(0)
        try:
            if self._below.get_write_buffer_size():
                await asyncio.wait_for(self._drained(), timeout_s)
        finally:
            if not self._flags & _LOST:
                self._below.set_write_buffer_limits(limits[1], limits[0])

    def __repr__(self) -> str:
        flags = self._flags
        if flags & _LOST:
            state = "closed"
        elif flags & _CLOSING:
            state = "closing"
        else:
            state = "handshaking" if flags & (_NEW | _HANDSHAKING) else "open"
        return f"<dormouse TLSTransport {state} over {self._below!r}>"
