"""TLS for Twisted, in place of its own, which needs pyOpenSSL.

| Twisted | here |
|---|---|
| `twisted.protocols.tls.TLSMemoryBIOFactory` | `TLSFactory` |
| `endpoints.wrapServerTLS`, `SSL4ServerEndpoint` | `wrap_server_tls`, `TLSServerEndpoint` |
| `endpoints.wrapClientTLS`, `SSL4ClientEndpoint` | `wrap_client_tls`, `TLSClientEndpoint` |
| `transport.startTLS(…)` | `start_tls(protocol, …)` |
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional

from twisted.internet import endpoints, interfaces
from twisted.internet._producer_helpers import _PullToPush
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from twisted.python import log
from zope.interface import implementer

from . import _native
from ._context import SSLContext
from ._errors import error_of
from ._session_setup import choose_context, client_session, server_session
from ._ssl_object import SSLObject

__all__ = [
    "TLSClientEndpoint",
    "TLSFactory",
    "TLSProtocol",
    "TLSServerEndpoint",
    "start_tls",
    "wrap_client_tls",
    "wrap_server_tls",
]

_HANDSHAKING = 1
_CLOSING = 2  # loseConnection() was called
_CLOSED = 4  # close_notify was sent
_ABORTED = 8
_LOST = 16

# After our end a peer has this long for its own.
_PEER_END_S = 30


@implementer(
    interfaces.IProtocol,
    interfaces.ITransport,
    interfaces.IConsumer,
    interfaces.IPushProducer,
    interfaces.INegotiated,
    interfaces.ISSLTransport,
    interfaces.ISystemHandle,
    interfaces.ILoggingContext,
    interfaces.ITCPTransport,
)
class TLSProtocol:
    """A TLS connection: the protocol of a transport, and the transport of the program's protocol.

    A quiet connection consists of this object and its session. Only the reactor's thread may use it.
    """

    __slots__ = (
        "factory",
        "transport",
        "wrappedProtocol",
        "_session",
        "_flags",
        "_flight",
        "_producer",
        "__weakref__",
    )

    def __init__(self, factory: TLSFactory, wrappedProtocol: Any, _connectWrapped: bool = True) -> None:
        self.factory = factory
        self.wrappedProtocol = wrappedProtocol
        self.transport: Any = None
        self._session: Any = None
        self._flags = _HANDSHAKING
        self._flight: Optional[_Flight] = _Flight(_connectWrapped)
        self._producer: Any = None

    # The protocol of the underlying transport

    def makeConnection(self, transport: Any) -> None:
        """Begin the handshake. The program's protocol is told at once, as in Twisted."""
        self.transport = transport
        factory = self.factory
        if factory.isClient:
            self._session = client_session(factory.context, factory.server_hostname)
        else:
            self._session = server_session(factory.context)
        self._session.pin()
        if self._flight is not None and self._flight.connects:
            self.wrappedProtocol.makeConnection(self)
        if factory.isClient and not self._flags & (_ABORTED | _LOST):
            self.dataReceived(b"")

    def dataReceived(self, data: bytes) -> None:
        """Open received bytes, and pass the plaintext to the protocol."""
        if self._flags & (_ABORTED | _LOST):
            return
        try:
            plaintext, signals = self._session.receive(data)
            while signals & _native.CLIENT_HELLO:
                choose_context(self._session, self.factory.context, log.err)
                plaintext, signals = self._session.receive(b"")
        except Exception:
            self._fail(Failure())
            return
        if signals & _native.OUTPUT:
            waits = not self._flags & _HANDSHAKING and not signals & _native.ENDED and self._is_full()
            if not waits:
                self.transport.write(self._session.take_output())
        if signals & _native.ESTABLISHED:
            self._established()
        if plaintext and not self._flags & (_ABORTED | _CLOSED):
            self.wrappedProtocol.dataReceived(plaintext)
        if signals & _native.ENDED and not self._flags & _LOST:
            self._ended()

    def _is_full(self) -> bool:
        """Return whether the transport below has more to send than it would take from a producer.

        Then an answer waits in the session, which has one at a time, for the next data: a peer that requests keys
        without end, and reads nothing, must not make the transport's queue grow.
        """
        below = self.transport
        # Only producers are told. Transports without these fields have no such queue.
        unsent = len(getattr(below, "dataBuffer", b"")) + getattr(below, "_tempDataLen", 0)
        return unsent > getattr(below, "bufferSize", unsent)

    def _established(self) -> None:
        self._flags &= ~_HANDSHAKING
        self._session.ignore_tickets()
        # Before anything is sent, because the protocol may refuse the peer. What it writes goes behind the backlog.
        if interfaces.IHandshakeListener.providedBy(self.wrappedProtocol):
            self.wrappedProtocol.handshakeCompleted()
        flight = self._flight
        if flight is not None:
            backlog, flight.backlog = flight.backlog, []
            # The protocol may have ended the connection: then the flight has the reason, or the limit.
            if flight.reason is None and flight.limit is None:
                self._flight = None
            if backlog and not self._flags & (_CLOSED | _ABORTED | _LOST):
                self._seal(b"".join(backlog))
        if self._producer is not None:
            self._producer.resumeProducing()
        if self._flags & _CLOSING and self._producer is None:
            self._shut_down()

    def _ended(self) -> None:
        end = self._session.end
        if end[0] == "closed":
            # Twisted has no half-closed TLS connections: our direction ends too.
            self._send_close()
            self._close_below()
        else:
            self._fail(Failure(error_of(end)))

    def _fail(self, reason: Failure) -> None:
        self._keep_reason(reason)
        self._flags |= _CLOSING | _CLOSED
        self._close_below()

    def _close_below(self) -> None:
        """Close the underlying transport when it has sent what was written."""
        producer, self._producer = self._producer, None
        if producer is not None:
            # A producer that waits for room would keep the transport open, and nothing of it is sent any more.
            self.transport.unregisterProducer()
            producer.stopProducing()
        self.transport.loseConnection()

    def _keep_reason(self, reason: Failure) -> None:
        flight = self._in_flight()
        if flight.reason is None:
            flight.reason = reason

    def _in_flight(self) -> _Flight:
        if self._flight is None:
            self._flight = _Flight(False)
        return self._flight

    def connectionLost(self, reason: Failure) -> None:
        """Tell the protocol that the connection is gone, and why."""
        if self._flags & _LOST:
            return
        if not self._flags & (_CLOSED | _ABORTED) and reason.check(ConnectionDone):
            # The peer has not sent close_notify.
            self._session.receive_eof()
            if self._session.end[0] == "closed":
                pass
            elif self._flags & _HANDSHAKING:
                reason = Failure(ConnectionLost(self._session.end[1]))
            elif not self.factory.context.suppress_ragged_eofs:
                reason = Failure(ConnectionLost(self._session.end[1]))
        self._flags |= _LOST | _CLOSING
        flight, self._flight = self._flight, None
        if flight is not None:
            reason = flight.reason or reason
            flight.cancel_limit()
        # The secrets are wiped with it.
        self._session = None
        protocol, self.wrappedProtocol = self.wrappedProtocol, None
        protocol.connectionLost(reason)

    # The transport of the program's protocol

    def write(self, data: bytes) -> None:
        """Send data."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"write() takes bytes, not {type(data).__name__}")
        if self._flags & (_CLOSED | _ABORTED | _LOST) or (self._flags & _CLOSING and self._producer is None):
            return
        if not data:
            return
        if self._waits():
            if self._flight is not None:
                self._flight.backlog.append(bytes(data))
            if self._producer is not None:
                # A peer that does not finish its handshake must not make the backlog grow.
                self._producer.pauseProducing()
        else:
            self._seal(bytes(data))

    def _waits(self) -> bool:
        """Return whether data can't be sent yet: during the handshake, and behind what was written before its end."""
        return bool(self._flags & _HANDSHAKING) or bool(self._flight is not None and self._flight.backlog)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send all data."""
        self.write(b"".join(iovec))

    def _seal(self, data: bytes) -> None:
        try:
            sealed = self._session.seal(data)
        except RuntimeError:
            # The peer has ended both directions, and the protocol is about to hear of it; or a mistake of the caller's.
            if not self._session.is_closed:
                raise
        except Exception:
            self._fail(Failure())
        else:
            self.transport.write(sealed)

    def loseConnection(self) -> None:
        """End the connection, after all data was sent."""
        if self._flags & (_CLOSING | _LOST):
            return
        if self._flags & _HANDSHAKING and not (self._flight is not None and self._flight.backlog):
            self.abortConnection()
            return
        self._flags |= _CLOSING
        if self._producer is None and not self._waits():
            self._shut_down()

    def _shut_down(self) -> None:
        """End our direction, and wait for the peer's end.

        If TCP were closed now, bytes of the peer that nobody reads would make the kernel reset the connection, and drop
        what it is still sending.
        """
        if self._flags & (_CLOSED | _LOST):
            return
        self._send_close()
        # Not an abort: the peer may still be reading what was written.
        self._in_flight().limit = _reactor().callLater(_PEER_END_S, self.transport.loseConnection)
        # Paused, we would not see the peer's end.
        self.transport.resumeProducing()

    def _send_close(self) -> None:
        if self._flags & (_CLOSED | _LOST):
            return
        self._flags |= _CLOSING | _CLOSED
        self.transport.write(self._session.close())

    def abortConnection(self) -> None:
        """End the connection at once."""
        if self._flags & (_ABORTED | _LOST):
            return
        self._flags |= _ABORTED | _CLOSING
        self.transport.abortConnection()

    def failVerification(self, reason: Failure) -> None:
        """End the connection, and give this reason to the protocol."""
        self._keep_reason(reason)
        self.abortConnection()

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.transport is not None and not self._flags & _LOST

    @property
    def disconnecting(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return bool(self._flags & _CLOSING)

    def getHandle(self) -> Optional[SSLObject]:
        """Return a view of the connection's TLS."""
        if self._session is None:
            return None
        factory = self.factory
        return SSLObject(self._session, factory.context, factory.server_hostname, not factory.isClient)

    def getPeerCertificate(self) -> Optional[bytes]:
        """Return the peer's certificate, DER; `twisted.internet.ssl.Certificate.load()` reads it."""
        chain = self._session.peer_certificates if self._session is not None else ()
        return chain[0] if chain else None

    @property
    def negotiatedProtocol(self) -> Optional[bytes]:
        """The application protocol."""
        alpn = self._session.alpn if self._session is not None else None
        return None if alpn is None else alpn.encode()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Let a producer write as long as there is room."""
        if self._flags & _LOST:
            producer.stopProducing()
            return
        pulled = None if streaming else _PullToPush(producer, self)
        paced = _Paced(pulled or producer)
        self.transport.registerProducer(paced, True)
        self._producer = paced
        if pulled is not None:
            pulled.startStreaming()

    def unregisterProducer(self) -> None:
        """Remove the producer."""
        paced, self._producer = self._producer, None
        if paced is None:
            return
        if isinstance(paced.producer, _PullToPush):
            paced.producer.stopStreaming()
        self.transport.unregisterProducer()
        if self._flags & _CLOSING and not self._waits():
            self._shut_down()

    def stopConsuming(self) -> None:
        """End, because a producer has failed."""
        self.unregisterProducer()
        self.loseConnection()

    def logPrefix(self) -> str:
        """Return a prefix for log lines."""
        return _prefix(self.wrappedProtocol)

    # Methods about TCP belong to the underlying transport: getPeer, getHost, pauseProducing, setTcpNoDelay …
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in TLSProtocol.__slots__:
            raise AttributeError(name)
        return getattr(self.transport, name)

    # Defined here, because their interfaces are declared.
    def getPeer(self) -> Any:
        """Return the peer's address."""
        return self.transport.getPeer()

    def getHost(self) -> Any:
        """Return our address."""
        return self.transport.getHost()

    def pauseProducing(self) -> None:
        """Receive nothing until `resumeProducing()`."""
        # After our end nothing is delivered, and paused, we would not see the peer's end.
        if not self._flags & _CLOSED:
            self.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """Receive again."""
        self.transport.resumeProducing()

    def stopProducing(self) -> None:
        """End the connection."""
        self.loseConnection()

    def loseWriteConnection(self) -> None:
        """End the connection: Twisted has no half-closed TLS connections."""
        self.loseConnection()

    def getTcpNoDelay(self) -> Any:
        """Return whether small segments are sent at once."""
        return self.transport.getTcpNoDelay()

    def setTcpNoDelay(self, enabled: Any) -> None:
        """Set whether small segments are sent at once."""
        self.transport.setTcpNoDelay(enabled)

    def getTcpKeepAlive(self) -> Any:
        """Return whether keep-alive probes are enabled."""
        return self.transport.getTcpKeepAlive()

    def setTcpKeepAlive(self, enabled: Any) -> None:
        """Set whether keep-alive probes are enabled."""
        self.transport.setTcpKeepAlive(enabled)


class _Flight:
    """A connection's data during its handshake and at its end."""

    __slots__ = ("connects", "backlog", "reason", "limit")

    def __init__(self, connects: bool) -> None:
        self.connects = connects
        self.backlog: List[bytes] = []
        self.reason: Optional[Failure] = None
        # The call that ends the wait for the peer's end.
        self.limit: Any = None

    def cancel_limit(self) -> None:
        if self.limit is not None and self.limit.active():
            self.limit.cancel()


@implementer(interfaces.IPushProducer)
class _Paced:
    """A producer that the handshake and the transport below may pause. It sees one pause: _PullToPush counts them."""

    __slots__ = ("producer", "_is_paused")

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self._is_paused = False

    def pauseProducing(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.producer.pauseProducing()

    def resumeProducing(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.producer.resumeProducing()

    def stopProducing(self) -> None:
        # What is stopped can't be paused.
        self._is_paused = True
        self.producer.stopProducing()


def _reactor() -> Any:
    # Importing it installs one: not before the program has chosen its own.
    from twisted.internet import reactor

    return reactor


def _prefix(wrapped: Any) -> str:
    named = interfaces.ILoggingContext.providedBy(wrapped)
    return f"{wrapped.logPrefix() if named else type(wrapped).__name__} (TLS)"


class TLSFactory(ClientFactory):
    """Makes TLS connections for the protocols of another factory, like `TLSMemoryBIOFactory`."""

    protocol = TLSProtocol  # type: ignore[assignment]
    noisy = False

    def __init__(
        self,
        context: SSLContext,
        isClient: bool,
        wrappedFactory: Any,
        server_hostname: Optional[str] = None,
    ) -> None:
        # Errors in the settings are the program's, and must not appear at its first connection.
        if isClient:
            # Also a name that is missing, or is none: an error in makeConnection() leaves endpoints waiting for ever.
            client_session(context, server_hostname)
        else:
            context.native_server()
        self.context = context
        self.isClient = isClient
        self.wrappedFactory = wrappedFactory
        self.server_hostname = server_hostname

    def buildProtocol(self, addr: Any) -> Any:
        """Return a protocol for a new connection."""
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else self.protocol(self, wrapped)

    def logPrefix(self) -> str:
        """Return a prefix for log lines."""
        return _prefix(self.wrappedFactory)

    def doStart(self) -> None:
        """Start the other factory too."""
        self.wrappedFactory.doStart()
        super().doStart()

    def doStop(self) -> None:
        """Stop the other factory too."""
        self.wrappedFactory.doStop()
        super().doStop()

    def startedConnecting(self, connector: Any) -> None:
        """Tell the other factory."""
        self.wrappedFactory.startedConnecting(connector)

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        """Tell the other factory."""
        self.wrappedFactory.clientConnectionFailed(connector, reason)

    def clientConnectionLost(self, connector: Any, reason: Failure) -> None:
        """Tell the other factory."""
        self.wrappedFactory.clientConnectionLost(connector, reason)


@implementer(interfaces.IStreamServerEndpoint)
class _ServerEndpoint:
    def __init__(self, wrapped: Any, context: SSLContext) -> None:
        self._wrapped, self._context = wrapped, context

    def listen(self, protocolFactory: Any) -> Any:
        return self._wrapped.listen(TLSFactory(self._context, False, protocolFactory))


@implementer(interfaces.IStreamClientEndpoint)
class _ClientEndpoint:
    def __init__(self, wrapped: Any, context: SSLContext, server_hostname: Optional[str]) -> None:
        self._wrapped, self._context, self._name = wrapped, context, server_hostname

    def connect(self, protocolFactory: Any) -> Any:
        factory = TLSFactory(self._context, True, protocolFactory, self._name)
        return self._wrapped.connect(factory).addCallback(lambda made: made.wrappedProtocol)


def wrap_server_tls(context: SSLContext, wrappedEndpoint: Any) -> Any:
    """Put TLS over any server endpoint."""
    return _ServerEndpoint(wrappedEndpoint, context)


def wrap_client_tls(
    context: SSLContext, wrappedEndpoint: Any, server_hostname: Optional[str] = None
) -> Any:
    """Put TLS over any client endpoint, to a server of this name."""
    return _ClientEndpoint(wrappedEndpoint, context, server_hostname)


def TLSServerEndpoint(  # noqa: N802
    reactor: Any, port: int, context: SSLContext, backlog: int = 50, interface: str = ""
) -> Any:
    """Listen on a TCP port, like `SSL4ServerEndpoint`."""
    return wrap_server_tls(
        context, endpoints.TCP4ServerEndpoint(reactor, port, backlog, interface)
    )


def TLSClientEndpoint(  # noqa: N802
    reactor: Any, host: str, port: int, context: SSLContext, timeout: float = 30
) -> Any:
    """Connect to a server by its name, like `SSL4ClientEndpoint`. The certificate must be for `host`."""
    return wrap_client_tls(
        context, endpoints.HostnameEndpoint(reactor, host, port, timeout), host
    )


def start_tls(
    protocol: Any, context: SSLContext, *, isClient: bool, server_hostname: Optional[str] = None
) -> TLSProtocol:
    """Begin TLS on a protocol's connection. From now on the protocol writes to the returned transport.

    `protocol.transport` is replaced; nothing that has arrived may be TLS already.
    """
    below = protocol.transport
    factory = TLSFactory(context, isClient, None, server_hostname)
    over_tls = TLSProtocol(factory, protocol, _connectWrapped=False)
    # The underlying transport passes everything to its protocol.
    below.protocol = over_tls
    protocol.transport = over_tls
    over_tls.makeConnection(below)
    return over_tls
