"""What users of other TLS in asyncio have reported: transports that are gone, callers that give up, calls in odd orders."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import sys

import pytest

import dormouse
import dormouse.asyncio

from conftest import beside, port_of


class Recorded(asyncio.Protocol):
    """A protocol that records what it is told."""

    def __init__(self):
        self.events, self.data, self.transport = [], b"", None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def connection_lost(self, exc):
        self.events.append(exc)
        self.lost.set_result(None)


async def plain_pair():
    """Connect in plaintext. Return the server and the protocols of both sides."""
    loop = asyncio.get_running_loop()
    made = loop.create_future()

    class Server(Recorded):
        def connection_made(self, transport):
            super().connection_made(transport)
            made.set_result(self)

    server = await loop.create_server(Server, "127.0.0.1", 0)
    _, client = await loop.create_connection(Recorded, "127.0.0.1", port_of(server))
    return server, await made, client


@pytest.mark.parametrize("gone", ["closing", "closed", "reset by the peer"])
@pytest.mark.parametrize("server_side", [False, True])
def test_start_tls_on_a_transport_that_is_gone(run, server_context, client_context, gone, server_side):
    """Nothing would ever arrive: CPython waits for the handshake's timeout, a minute."""

    async def main():
        server, theirs, ours = await plain_pair()
        if gone == "reset by the peer":
            # Without this, abort() sends an ordinary end.
            linger = struct.pack("ii", 1, 0)
            theirs.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            theirs.transport.abort()
            await ours.lost
            assert isinstance(ours.events[0], ConnectionResetError)
        else:
            ours.transport.close()
        if gone == "closed":
            await ours.lost
        context, name = (server_context, None) if server_side else (client_context, "localhost")
        for start in (asyncio.get_running_loop().start_tls, dormouse.asyncio.start_tls):
            with pytest.raises(ConnectionError, match="closed"):
                await start(ours.transport, ours, context, server_side=server_side, server_hostname=name)
        await ours.lost
        server.close()

    run(main())


def test_start_tls_on_tls_that_is_gone(run, server_context, client_context):
    async def main():
        server = await asyncio.get_running_loop().create_server(Recorded, "127.0.0.1", 0, ssl=server_context)
        transport, protocol = await asyncio.get_running_loop().create_connection(
            Recorded, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost"
        )
        transport.close()
        with pytest.raises(ConnectionError, match="closed"):
            await dormouse.asyncio.start_tls(transport, protocol, client_context, server_hostname="localhost")
        await protocol.lost
        server.close()

    run(main())


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_start_tls_that_is_cancelled_early(run, client_context, turns):
    """Whatever has begun, the connection ends, and nothing that was planned runs afterwards."""

    async def main():
        server, theirs, ours = await plain_pair()
        task = asyncio.ensure_future(dormouse.asyncio.start_tls(ours.transport, ours, client_context, server_hostname="localhost"))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await theirs.lost
        server.close()

    run(main())


def test_a_connection_attempt_that_is_cancelled_leaves_nothing(run, client_context):
    async def main():
        listener = socket.create_server(("127.0.0.1", 0))
        loop = asyncio.get_running_loop()
        for _ in range(3):
            attempt = asyncio.ensure_future(
                loop.create_connection(Recorded, *listener.getsockname(), ssl=client_context, server_hostname="localhost")
            )
            peer, _ = await beside(listener.accept)
            peer.settimeout(10)
            assert await beside(lambda: peer.recv(65536))
            gc.collect()
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            # The end of the connection, without an alert.
            assert await beside(lambda: peer.recv(65536)) == b""
            peer.close()
        del attempt
        await asyncio.sleep(0)
        gc.collect()
        left = [one for one in gc.get_objects() if type(one).__name__ == "TLSTransport" and "handshaking" in repr(one)]
        assert not left, left
        listener.close()

    run(main())


def test_calls_after_the_connection_is_lost(run, server_context, client_context):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Closing(), "127.0.0.1", 0, ssl=server_context)
        transport, protocol = await loop.create_connection(
            Recorded, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost"
        )
        view = transport.get_extra_info("ssl_object")
        await protocol.lost
        transport.write(b"x")
        transport.writelines([b"x"])
        transport.pause_reading()
        transport.resume_reading()
        assert transport.is_closing() and not transport.is_reading() and not transport.can_write_eof()
        assert transport.get_extra_info("peercert") is None and transport.get_extra_info("sslcontext") is client_context
        # What a program has kept still answers.
        assert view.version() == "TLSv1.3" and view.getpeercert() and view.cipher()
        transport.close()
        transport.abort()
        server.close()

    class Closing(asyncio.Protocol):
        def connection_made(self, transport):
            transport.abort()

    run(main())


@pytest.mark.parametrize("value", [0, 40, 112, 256, -1, 10**30, True, "x", ValueError("mine")])
def test_odd_results_of_an_sni_callback_refuse_the_client(run, server_context, client_context, value):
    def choose(view, name, context):
        if isinstance(value, Exception):
            raise value
        return value

    async def main():
        server_context.sni_callback = choose
        server = await asyncio.get_running_loop().create_server(Recorded, "127.0.0.1", 0, ssl=server_context)
        with pytest.raises(ssl.SSLError):
            await asyncio.get_running_loop().create_connection(
                Recorded, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost"
            )
        # The server goes on.
        server_context.sni_callback = None
        transport, _ = await asyncio.get_running_loop().create_connection(
            Recorded, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost"
        )
        transport.abort()
        server.close()

    run(main(), reports=[])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="StreamWriter.start_tls() came with Python 3.11")
def test_tls_inside_tls_by_streams(run, server_context, client_context):
    async def main():
        async def serve(reader, writer):
            for _ in range(2):
                await reader.readline()
                writer.write(b"go\n")
                await writer.drain()
                await writer.start_tls(server_context)
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        for _ in range(2):
            writer.write(b"please\n")
            assert await reader.readline() == b"go\n"
            await writer.start_tls(client_context, server_hostname="localhost")
        writer.write(b"through both\n")
        assert await reader.readline() == b"through both\n"
        writer.close()
        await writer.wait_closed()
        server.close()

    run(main())
