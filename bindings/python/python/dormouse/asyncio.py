"""TLS for asyncio.

Two ways lead to the same transport:

- the functions of this module, under any event loop: `start_server()`, `open_connection()`, `start_tls()`;
- an event loop whose own methods take a `dormouse.SSLContext` as `ssl=`, for libraries that call those:
  `run()`, `new_event_loop()` or `EventLoopPolicy`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any, Awaitable, Callable, Coroutine, Optional, Tuple, TypeVar, Union

from . import _native
from ._context import SSLContext
from ._loop import (
    ProtocolFactory,
    TLSLoop,
    connect,
    made_by,
    name_for,
    serve,
    start_tls_on,
    timeouts,
)
from ._settings import Settings
from ._transport import TLSTransport

__all__ = [
    "EventLoop",
    "TLSLoop",
    "TLSTransport",
    "create_connection",
    "create_server",
    "new_event_loop",
    "open_connection",
    "open_unix_connection",
    "restore",
    "restore_streams",
    "run",
    "start_server",
    "start_tls",
    "start_unix_server",
]

T = TypeVar("T")
_LIMIT = 64 * 1024

ClientConnected = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Union[None, Awaitable[None]]
]


# Event loops


class EventLoop(TLSLoop, asyncio.SelectorEventLoop):
    """An event loop whose methods take a `dormouse.SSLContext` as `ssl=`."""


def new_event_loop() -> EventLoop:
    """Return a new event loop, for `asyncio.Runner(loop_factory=…)` and uvicorn's `loop=`."""
    return EventLoop()


def run(main: Coroutine[Any, Any, T], *, debug: Optional[bool] = None) -> T:
    """Do what `asyncio.run()` does, with this module's event loop."""
    return run_with(new_event_loop, main, debug)


def run_with(
    loop_factory: Callable[[], Any], main: Coroutine[Any, Any, T], debug: Optional[bool]
) -> T:
    """Run a coroutine in a new loop of this factory."""
    if sys.version_info >= (3, 11):
        with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
            return runner.run(main)
    loop = loop_factory()
    try:
        asyncio.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        return loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def __getattr__(name: str) -> Any:
    # Created on request: newer versions of Python warn about policies.
    if name != "EventLoopPolicy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
        """A policy for `asyncio.set_event_loop_policy()`."""

        _loop_factory = EventLoop

    globals()[name] = EventLoopPolicy
    return EventLoopPolicy


# Under any event loop


async def create_server(
    protocol_factory: ProtocolFactory, *args: Any, ssl: SSLContext, **kwargs: Any
) -> Any:
    """Do what `loop.create_server()` does, under any event loop."""
    loop = asyncio.get_running_loop()
    return await serve(loop.create_server, loop, protocol_factory, ssl, *args, **kwargs)


async def create_connection(
    protocol_factory: ProtocolFactory,
    host: Any = None,
    port: Any = None,
    *,
    ssl: SSLContext,
    server_hostname: Optional[str] = None,
    **kwargs: Any,
) -> Tuple[TLSTransport, Any]:
    """Do what `loop.create_connection()` does, under any event loop."""
    loop = asyncio.get_running_loop()
    name = name_for(host, server_hostname)
    settings = Settings(ssl, server_side=False, server_hostname=name, **timeouts(kwargs))
    return await connect(
        loop.create_connection, loop, protocol_factory, settings, host, port, **kwargs
    )


async def start_server(
    client_connected_cb: ClientConnected,
    host: Any = None,
    port: Any = None,
    *,
    ssl: SSLContext,
    limit: int = _LIMIT,
    **kwargs: Any,
) -> Any:
    """Do what `asyncio.start_server()` does, under any event loop."""
    factory = _stream_factory(client_connected_cb, limit)
    return await create_server(factory, host, port, ssl=ssl, **kwargs)


async def start_unix_server(
    client_connected_cb: ClientConnected,
    path: Any = None,
    *,
    ssl: SSLContext,
    limit: int = _LIMIT,
    **kwargs: Any,
) -> Any:
    """Do what `asyncio.start_unix_server()` does, under any event loop."""
    loop = asyncio.get_running_loop()
    factory = _stream_factory(client_connected_cb, limit)
    return await serve(loop.create_unix_server, loop, factory, ssl, path, **kwargs)


async def open_connection(
    host: Any = None, port: Any = None, *, ssl: SSLContext, limit: int = _LIMIT, **kwargs: Any
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Do what `asyncio.open_connection()` does, under any event loop."""
    transport, protocol = await create_connection(
        _stream_factory(None, limit), host, port, ssl=ssl, **kwargs
    )
    return _streams(transport, protocol)


async def open_unix_connection(
    path: Any = None,
    *,
    ssl: SSLContext,
    server_hostname: str,
    limit: int = _LIMIT,
    **kwargs: Any,
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Do what `asyncio.open_unix_connection()` does, under any event loop."""
    loop = asyncio.get_running_loop()
    settings = Settings(
        ssl, server_side=False, server_hostname=server_hostname, **timeouts(kwargs)
    )
    factory = _stream_factory(None, limit)
    transport, protocol = await connect(
        loop.create_unix_connection, loop, factory, settings, path, **kwargs
    )
    return _streams(transport, protocol)


async def start_tls(
    transport: Any, protocol: asyncio.BaseProtocol, sslcontext: SSLContext, **kwargs: Any
) -> TLSTransport:
    """Do what `loop.start_tls()` does, under any event loop."""
    return await start_tls_on(
        asyncio.get_running_loop(), transport, protocol, sslcontext, **kwargs
    )


# From another process


async def restore(
    protocol_factory: ProtocolFactory,
    exported: bytes,
    sock: socket.socket,
    *,
    ssl: SSLContext,
    server_hostname: Optional[str] = None,
    ssl_shutdown_timeout: Optional[float] = None,
) -> Tuple[TLSTransport, Any]:
    """Continue a connection exported by `TLSTransport.export()`, in this or another process.

    The bytes may be used once. `ssl` is for code that asks for the context later; the connection does not need it.
    """
    loop = asyncio.get_running_loop()
    session = _native.Session.restore(exported)
    settings = Settings(
        ssl,
        server_side=not session.is_client,
        server_hostname=server_hostname,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    return await made_by(
        loop.connect_accepted_socket,
        loop,
        lambda waiter: TLSTransport(loop, protocol_factory(), settings, waiter, session),
        sock,
    )


async def restore_streams(
    exported: bytes, sock: socket.socket, *, limit: int = _LIMIT, **kwargs: Any
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Do the same with streams."""
    transport, protocol = await restore(_stream_factory(None, limit), exported, sock, **kwargs)
    return _streams(transport, protocol)


# Streams


def _stream_factory(connected: Optional[ClientConnected], limit: int) -> ProtocolFactory:
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, connected, loop=loop)
        if connected is None:
            # A client's protocol refers to its reader weakly, so the transport holds it until it is requested.
            protocol._dormouse_reader = reader  # type: ignore[attr-defined]
        return protocol

    return factory


def _streams(
    transport: TLSTransport, protocol: Any
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader = protocol.__dict__.pop("_dormouse_reader")
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    return reader, writer
