"""TLS for any event loop of asyncio: the methods that take `ssl=`, over those that do plain TCP."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional, Tuple

from ._context import SSLContext
from ._settings import Settings
from ._transport import TLSTransport

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


def timeouts(kwargs: Any) -> Any:
    """Remove the arguments that concern only TLS, and return them."""
    names = ("ssl_handshake_timeout", "ssl_shutdown_timeout")
    return {name: kwargs.pop(name, None) for name in names}


async def serve(
    create: Any, loop: Any, factory: ProtocolFactory, context: SSLContext, *args: Any, **kwargs: Any
) -> Any:
    """Start a server by `create`, which is a method of the loop for plain connections."""
    settings = Settings(context, server_side=True, **timeouts(kwargs))
    return await create(lambda: TLSTransport(loop, factory(), settings), *args, **kwargs)


async def connect(
    create: Any, loop: Any, factory: ProtocolFactory, settings: Settings, *args: Any, **kwargs: Any
) -> Tuple[TLSTransport, Any]:
    """Connect by `create`, and complete the handshake."""
    return await made_by(
        create, loop, lambda waiter: TLSTransport(loop, factory(), settings, waiter), *args, **kwargs
    )


async def made_by(
    create: Any, loop: Any, over_tls: Callable[[Any], TLSTransport], *args: Any, **kwargs: Any
) -> Tuple[TLSTransport, Any]:
    """Connect by `create`, and wait until the connection is established."""
    waiter = loop.create_future()
    below, transport = await create(lambda: over_tls(waiter), *args, **kwargs)
    # Afterwards the connection may be lost already.
    protocol = transport.get_protocol()
    try:
        await waiter
    except BaseException:
        _discard(waiter, below, transport)
        raise
    return transport, protocol


def _discard(waiter: Any, below: Any, transport: TLSTransport) -> None:
    """Close a connection that nobody takes over. An established one ends with close_notify."""
    is_established = waiter.done() and not waiter.cancelled() and waiter.exception() is None
    (transport if is_established else below).close()


def name_for(host: Any, server_hostname: Optional[str]) -> Optional[str]:
    """Return the server name to request."""
    if server_hostname is not None:
        return server_hostname
    if not host:
        raise ValueError("You must set server_hostname when using ssl without a host")
    return host


class TLSLoop:
    """The methods of an event loop that take `ssl=`. Derive a loop from this class and another loop.

    Contexts of `ssl` go to the other loop.
    """

    async def create_server(self, protocol_factory: Any, *args: Any, ssl: Any = None, **kwargs: Any) -> Any:
        """Start a server."""
        create: Any = super().create_server  # type: ignore[misc]
        if not isinstance(ssl, SSLContext):
            return await create(protocol_factory, *args, ssl=ssl, **kwargs)
        return await serve(create, self, protocol_factory, ssl, *args, **kwargs)

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, *, ssl: Any = None, **kwargs: Any) -> Any:
        """Start a server on a unix socket."""
        create: Any = super().create_unix_server  # type: ignore[misc]
        if not isinstance(ssl, SSLContext):
            return await create(protocol_factory, path, ssl=ssl, **kwargs)
        return await serve(create, self, protocol_factory, ssl, path, **kwargs)

    async def create_connection(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        server_hostname: Optional[str] = None,
        **kwargs: Any,
    ) -> Any:
        """Connect to a server."""
        create: Any = super().create_connection  # type: ignore[misc]
        if not isinstance(ssl, SSLContext):
            return await create(
                protocol_factory, host, port, ssl=ssl, server_hostname=server_hostname, **kwargs
            )
        name = name_for(host, server_hostname)
        settings = Settings(ssl, server_side=False, server_hostname=name, **timeouts(kwargs))
        return await connect(create, self, protocol_factory, settings, host, port, **kwargs)

    async def create_unix_connection(
        self,
        protocol_factory: Any,
        path: Any = None,
        *,
        ssl: Any = None,
        server_hostname: Optional[str] = None,
        **kwargs: Any,
    ) -> Any:
        """Connect to a server on a unix socket."""
        create: Any = super().create_unix_connection  # type: ignore[misc]
        if not isinstance(ssl, SSLContext):
            return await create(
                protocol_factory, path, ssl=ssl, server_hostname=server_hostname, **kwargs
            )
        if server_hostname is None:
            raise ValueError("you have to pass server_hostname when using ssl")
        settings = Settings(ssl, server_side=False, server_hostname=server_hostname, **timeouts(kwargs))
        return await connect(create, self, protocol_factory, settings, path, **kwargs)

    async def connect_accepted_socket(
        self, protocol_factory: Any, sock: Any, *, ssl: Any = None, **kwargs: Any
    ) -> Any:
        """Continue with a socket that was accepted elsewhere."""
        create: Any = super().connect_accepted_socket  # type: ignore[misc]
        if not isinstance(ssl, SSLContext):
            return await create(protocol_factory, sock, ssl=ssl, **kwargs)
        settings = Settings(ssl, server_side=True, **timeouts(kwargs))
        return await connect(create, self, protocol_factory, settings, sock, **kwargs)

    async def sendfile(
        self, transport: Any, file: Any, offset: int = 0, count: Optional[int] = None, *, fallback: bool = True
    ) -> int:
        """Send a file. Over TLS it is read and written in blocks."""
        if not isinstance(transport, TLSTransport):
            send: Any = super().sendfile  # type: ignore[misc]
            return await send(transport, file, offset, count, fallback=fallback)
        if not fallback:
            raise asyncio.SendfileNotAvailableError("TLS cannot be sent by the operating system; pass fallback=True")
        return await transport.send_file(file, offset, count)

    async def start_tls(self, transport: Any, protocol: Any, sslcontext: Any, **kwargs: Any) -> Any:
        """Begin TLS on an existing connection."""
        if not isinstance(sslcontext, SSLContext):
            start: Any = super().start_tls  # type: ignore[misc]
            return await start(transport, protocol, sslcontext, **kwargs)
        return await start_tls_on(self, transport, protocol, sslcontext, **kwargs)


def _take_unread(protocol: asyncio.BaseProtocol) -> bytes:
    """Take what a stream has received and the program has not read.

    The peer sent these bytes before our side began TLS: they are the beginning of its handshake, or somebody has added
    them and the handshake fails. None may be taken for decrypted data later. As in CPython since 3.14.3.
    """
    reader = getattr(protocol, "_stream_reader", None) if isinstance(protocol, asyncio.StreamReaderProtocol) else None
    if reader is None:
        return b""
    unread = bytes(reader._buffer)
    reader._buffer.clear()
    # It has paused the transport if there was much.
    reader._maybe_resume_transport()
    return unread


async def start_tls_on(
    loop: Any,
    transport: Any,
    protocol: asyncio.BaseProtocol,
    context: SSLContext,
    *,
    server_side: bool = False,
    server_hostname: Optional[str] = None,
    ssl_handshake_timeout: Optional[float] = None,
    ssl_shutdown_timeout: Optional[float] = None,
) -> TLSTransport:
    """Put TLS between a transport and its protocol."""
    if not getattr(transport, "_start_tls_compatible", hasattr(transport, "set_protocol")):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    if transport.is_closing():
        # Nothing would arrive, and nobody be told, until the handshake times out.
        raise ConnectionResetError("start_tls(): the connection is closed already")
    settings = Settings(
        context,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
        announces=False,
    )
    waiter = loop.create_future()
    over_tls = TLSTransport(loop, protocol, settings, waiter)
    unread = _take_unread(protocol)
    # The next bytes are TLS: none may arrive between the two protocols.
    transport.pause_reading()
    transport.set_protocol(over_tls)

    def begin() -> None:
        over_tls.connection_made(transport)
        if unread and not over_tls.is_closing():
            over_tls.data_received(unread)

    begun = loop.call_soon(begin)
    resumed = loop.call_soon(transport.resume_reading)
    try:
        await waiter
    except BaseException:
        begun.cancel()
        resumed.cancel()
        _discard(waiter, transport, over_tls)
        raise
    return over_tls

