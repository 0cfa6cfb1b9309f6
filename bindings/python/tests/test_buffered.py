"""Bytes that are buffered somewhere when TLS begins, and files."""

from __future__ import annotations

import asyncio
import io
import os
import ssl

import pytest

import dormouse
import dormouse.asyncio

from conftest import port_of

PROXY = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"


class Hello:
    """A client whose first flight is sent by hand."""

    def __init__(self, certs):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=certs.ca)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self.flight = self.outgoing.read()

    async def call(self, reader, writer, call):
        """Call a method until it needs nothing more."""
        while True:
            try:
                result = call()
            except ssl.SSLWantReadError:
                writer.write(self.outgoing.read())
                data = await reader.read(65536)
                if not data:
                    raise EOFError("the server has closed") from None
                self.incoming.write(data)
            else:
                writer.write(self.outgoing.read())
                return result


async def upgraded(context, first, certs, answer=b""):
    """Run a server that reads a line, answers and begins TLS. Return what it does, and what the client sees."""
    server_seen = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        await reader.readline()
        if answer:
            writer.write(answer)
            # What the client has sent in the meantime is in the reader.
            await asyncio.sleep(0.05)
        try:
            await start_tls(reader, writer, context)
            server_seen.set_result(await reader.readline())
        except (ssl.SSLError, ConnectionError) as error:
            server_seen.set_result(type(error).__mro__)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
    hello = Hello(certs)
    writer.write(first + (b"" if answer else hello.flight))
    try:
        if answer:
            assert await reader.readline() == answer
            writer.write(hello.flight)
        await hello.call(reader, writer, hello.tls.do_handshake)
        hello.tls.write(b"within TLS\r\n")
        writer.write(hello.outgoing.read())
        client_seen = "established"
    except (OSError, EOFError):
        client_seen = "refused"
    result = await server_seen
    writer.close()
    server.close()
    return client_seen, result


async def start_tls(reader, writer, context):
    """What `StreamWriter.start_tls()` does, which Python has since 3.11."""
    transport, protocol = writer.transport, writer.transport.get_protocol()
    await writer.drain()
    secure = await asyncio.get_running_loop().start_tls(transport, protocol, context, server_side=True)
    writer._transport = reader._transport = secure


def test_plaintext_that_came_with_starttls_is_not_read_as_decrypted(run, server_context, certs):
    """As in CPython since 3.14.3: these bytes are no handshake."""

    async def main():
        client, server = await upgraded(server_context, b"STARTTLS\r\nRSET\r\n", certs, b"220 go\r\n")
        assert client == "refused"
        assert ssl.SSLError in server

    run(main())


def test_starttls_without_more(run, server_context, certs):
    async def main():
        seen = await upgraded(server_context, b"STARTTLS\r\n", certs, b"220 go\r\n")
        assert seen == ("established", b"within TLS\r\n")

    run(main())


def test_a_handshake_that_came_with_a_proxy_line(run, server_context, certs):
    async def main():
        assert await upgraded(server_context, PROXY, certs) == ("established", b"within TLS\r\n")

    run(main())


def test_plaintext_that_a_server_sends_with_its_answer(run, client_context, certs):
    """A client, whose server was given bytes by somebody in the middle."""

    async def serve(reader, writer):
        await reader.readline()
        writer.write(b"220 go\r\n250 injected\r\n")
        await reader.read()
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(b"STARTTLS\r\n")
        assert await reader.readline() == b"220 go\r\n"
        await asyncio.sleep(0.05)
        loop, protocol = asyncio.get_running_loop(), writer.transport.get_protocol()
        with pytest.raises(dormouse.SSLError):
            await loop.start_tls(writer.transport, protocol, client_context, server_hostname="localhost")
        with pytest.raises(dormouse.SSLError):
            await reader.read()
        server.close()

    run(main())


def test_sendfile(run, server_context, client_context, tmp_path):
    content = os.urandom(1_000_000)
    path = tmp_path / "file"
    path.write_bytes(content)

    async def main():
        loop = asyncio.get_running_loop()
        results = []

        async def serve(reader, writer):
            with open(path, "rb") as file:
                results.append(await loop.sendfile(writer.transport, file, 10, 500_000))
                results.append(file.tell())
                results.append(await loop.sendfile(writer.transport, file, 500_010))
            results.append(await loop.sendfile(writer.transport, io.BytesIO(b"tail")))
            for wrong in ({"fallback": False}, {"count": 0}, {"offset": -1}):
                with pytest.raises((RuntimeError, ValueError)):
                    await loop.sendfile(writer.transport, io.BytesIO(b"x"), **wrong)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
        reader, writer = await asyncio.open_connection("localhost", port_of(server), ssl=client_context)
        assert await reader.read() == content[10:] + b"tail"
        assert results == [500_000, 500_010, len(content) - 500_010, 4]
        writer.close()
        server.close()

    run(main())


def test_sendfile_to_a_client_that_goes_away(run, server_context, client_context):
    async def main():
        loop = asyncio.get_running_loop()
        failed = loop.create_future()

        async def serve(reader, writer):
            try:
                await loop.sendfile(writer.transport, io.BytesIO(bytes(1 << 24)))
            except OSError as error:
                failed.set_result(error)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
        _, writer = await asyncio.open_connection("localhost", port_of(server), ssl=client_context)
        writer.transport.pause_reading()
        await asyncio.sleep(0.1)
        writer.transport.abort()
        assert isinstance(await failed, OSError)
        server.close()

    run(main())


def test_sendfile_over_a_plain_connection_is_the_loop_s(certs):
    async def main():
        loop = asyncio.get_running_loop()

        async def serve(reader, writer):
            await loop.sendfile(writer.transport, io.BytesIO(b"plain"))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        assert await reader.read() == b"plain"
        writer.close()
        server.close()

    dormouse.asyncio.run(main())


def test_channel_binding(run, server_context, client_context):
    """None, as with `ssl` where a connection has none: autobahn asks for it."""

    async def main():
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=server_context)
        _, writer = await asyncio.open_connection("localhost", port_of(server), ssl=client_context)
        view = writer.get_extra_info("ssl_object")
        assert view.get_channel_binding() is None
        assert view.get_channel_binding("tls-unique") is None
        with pytest.raises(ValueError):
            view.get_channel_binding("another")
        writer.close()
        server.close()

    run(main())


@pytest.mark.parametrize("newest, can", [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)])
def test_can_write_eof_where_the_peer_may_go_on(run, server_context, client_context, newest, can):
    client_context.maximum_version = newest

    async def main():
        class GoesOn(asyncio.Protocol):
            def connection_made(self, transport):
                self.transport = transport

            def eof_received(self):
                self.transport.write(b"still here")
                self.transport.close()

        loop = asyncio.get_running_loop()
        server = await loop.create_server(GoesOn, "127.0.0.1", 0, ssl=server_context)
        reader, writer = await asyncio.open_connection("localhost", port_of(server), ssl=client_context)
        assert writer.can_write_eof() is can
        # In TLS 1.2 a peer must close at once (RFC 5246 section 7.2.1).
        if can:
            writer.write_eof()
            assert await reader.read() == b"still here"
        writer.close()
        server.close()

    run(main())
