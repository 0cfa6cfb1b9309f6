"""The transport of asyncio and uvloop, with foreign peers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess

import pytest
from conftest import beside, port_of
from key_updates import Requester

import dormouse
import dormouse.asyncio

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
SIZES = [1, 100, 16_384, 16_385, 1_000_000]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


def connect(port: int, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(sock, server_hostname=name)


def receive(sock: ssl.SSLSocket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"ended after {len(data)} of {count} bytes"
        data += piece
    return data


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_with_clients_of_openssl(run, server_context, stdlib_client, version):
    stdlib_client.maximum_version = version

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)

        def client():
            with connect(port_of(server), stdlib_client) as sock:
                for size in SIZES:
                    sock.sendall(b"x" * size)
                    assert receive(sock, size) == b"x" * size
                version = sock.version()
                sock.unwrap()
                return version

        assert await beside(client) == {0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}[version]
        server.close()

    run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_servers_of_openssl(run, client_context, stdlib_server, version):
    stdlib_server.maximum_version = version
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener.accept()[0] as plain, stdlib_server.wrap_socket(plain, server_side=True) as sock:
            for size in SIZES:
                assert receive(sock, size) == b"y" * size
                sock.sendall(b"z" * size)
            sock.unwrap()

    async def main():
        serving = asyncio.ensure_future(beside(serve))
        port = listener.getsockname()[1]
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_context)
        for size in SIZES:
            writer.write(b"y" * size)
            assert await reader.readexactly(size) == b"z" * size
        assert await reader.read() == b""
        assert writer.get_extra_info("cipher")[1] == {0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}[version]
        writer.close()
        await writer.wait_closed()
        await serving

    run(main())


def test_functions_under_a_loop_that_knows_nothing_of_it(server_context, client_context):
    async def main():
        server = await dormouse.asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)
        reader, writer = await dormouse.asyncio.open_connection(
            "localhost", port_of(server), ssl=client_context
        )
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_unix_sockets(run, server_context, client_context, tmp_path):
    path = str(tmp_path / "echo")

    async def main():
        server = await asyncio.start_unix_server(echo, path, ssl=server_context)
        reader, writer = await asyncio.open_unix_connection(
            path, ssl=client_context, server_hostname="localhost"
        )
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()
        server.close()

    run(main())


def test_a_chain_is_completed_from_the_trusted_certificates(run, certs):
    """As OpenSSL does it, in any order of the calls."""

    def context(*steps):
        made = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for step in steps:
            step(made)
        return made

    def pair(made):
        made.load_cert_chain(certs.below_cert, certs.below_key)

    def trust(made):
        made.load_verify_locations(certs.inter)
        made.load_verify_locations(certs.ca)

    async def main():
        for steps, sent in (((pair,), 1), ((pair, trust), 2), ((trust, pair), 2)):
            server = await asyncio.start_server(
                lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context(*steps)
            )
            port = port_of(server)
            command = ["openssl", "s_client", "-connect", f"localhost:{port}", "-CAfile", certs.ca, "-showcerts"]
            done = await beside(
                lambda: subprocess.run(command, capture_output=True, input=b"", timeout=20)
            )
            assert done.stdout.count(b"BEGIN CERTIFICATE") == sent
            assert (b"Verify return code: 0 (ok)" in done.stdout) == (sent == 2)
            server.close()

    run(main())


def test_openssl_s_client_and_curl(run, server_context, certs):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")
        writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context)
        port = port_of(server)
        for more in ([], ["--tls-max", "1.2"]):
            command = ["curl", "-sS", "--cacert", certs.ca, *more, f"https://localhost:{port}/"]
            done = await beside(lambda: subprocess.run(command, capture_output=True, timeout=20))
            assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
        command = ["openssl", "s_client", "-connect", f"localhost:{port}", "-CAfile", certs.ca, "-ign_eof"]
        request = b"GET / HTTP/1.1\r\n\r\n"
        done = await beside(
            lambda: subprocess.run(command, input=request, capture_output=True, timeout=20)
        )
        assert b"hello\n" in done.stdout and b"Verify return code: 0 (ok)" in done.stdout
        server.close()

    run(main())


class Recorder(asyncio.Protocol):
    """Records its events."""

    def __init__(self, keep_open: bool = False) -> None:
        self.events: list = []
        self.data = b""
        self.keep_open = keep_open
        self.made = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.events.append("made")
        self.made.set_result(transport)

    def data_received(self, data):
        assert isinstance(data, bytes)
        self.data += data

    def eof_received(self):
        self.events.append("eof")
        self.ended.set_result(None)
        return self.keep_open

    def connection_lost(self, exc):
        self.events.append(type(exc).__name__)
        self.lost.set_result(exc)


async def pair(server_context, client_context, *, keep_open=False, client=Recorder, **kwargs):
    """A server's protocol, and a client's, connected."""
    loop = asyncio.get_running_loop()
    made = []

    def factory():
        made.append(Recorder(keep_open))
        return made[0]

    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context)
    _, of_client = await loop.create_connection(
        client, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost", **kwargs
    )
    await made[0].made
    server.close()
    return made[0], of_client


async def by_hand(port, context):
    """A plain connection, and a client's session over it. Its last flight is still in the session."""
    _, below = await asyncio.get_running_loop().create_connection(Recorder, "127.0.0.1", port)
    session = dormouse._native.Session.connect(context.native_client(), "localhost")
    session.receive(b"")
    below.transport.write(session.take_output())
    while session.is_handshaking:
        await asyncio.sleep(0.01)
        data, below.data = below.data, b""
        session.receive(data)
    return below, session


async def first_of(made):
    """The first protocol of a list, once it is connected."""
    while not made or "made" not in made[0].events:
        await asyncio.sleep(0.01)
    return made[0]


def test_a_direction_ends_and_the_other_goes_on(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context, keep_open=True)
        client.transport.write(b"question")
        assert client.transport.can_write_eof()
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="after write_eof"):
            client.transport.write(b"more")
        await server.ended
        assert server.data == b"question"
        for _ in range(100):
            server.transport.write(b"a" * 10_000)
        server.transport.close()
        await client.lost
        assert client.data == b"a" * 1_000_000
        await server.lost
        assert server.events == ["made", "eof", "NoneType"] == client.events

    run(main())


def test_a_stream_that_is_cut_off_is_no_proper_end(run, server_context, client_context, stdlib_client):
    async def main():
        server, client = await pair(server_context, client_context)
        client.transport.write(b"half of it")
        client.transport._below.write_eof()
        lost = await server.lost
        assert isinstance(lost, ssl.SSLEOFError) and server.events == ["made", "SSLEOFError"]
        assert server.data == b"half of it"
        server_context.suppress_ragged_eofs = True
        server, client = await pair(server_context, client_context)
        client.transport._below.write_eof()
        assert await server.lost is None and server.events == ["made", "eof", "NoneType"]

    run(main())


def test_close_sends_all_that_was_written(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        server.transport.write(b"b" * 5_000_000)
        server.transport.close()
        assert server.transport.is_closing()
        server.transport.write(b"dropped")
        assert await client.lost is None
        assert client.data == b"b" * 5_000_000
        assert await server.lost is None

    run(main())


def test_abort(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        server.transport.abort()
        assert await server.lost is None
        assert isinstance(await client.lost, (ssl.SSLEOFError, ConnectionError))

    run(main())


def test_a_peer_that_does_not_end_its_direction_is_not_waited_for_long(run, server_context, client_context):
    async def main():
        server, client = await pair(
            server_context, client_context, keep_open=True, ssl_shutdown_timeout=0.2
        )
        client.transport.close()
        lost = await client.lost
        assert isinstance(lost, TimeoutError) and "shutdown" in str(lost)
        server.transport.abort()

    run(main())


def test_a_peer_that_has_ended_its_direction_and_does_not_read_is_not_waited_for_long(
    run, server_context, client_context
):
    async def main():
        server, client = await pair(
            server_context, client_context, client=lambda: Recorder(keep_open=True), ssl_shutdown_timeout=0.2
        )
        server.transport.write_eof()
        server.transport.pause_reading()
        await client.ended
        client.transport.write(b"d" * 20_000_000)
        client.transport.close()
        lost = await asyncio.wait_for(client.lost, 10)
        assert isinstance(lost, TimeoutError) and "shutdown" in str(lost)
        server.transport.abort()

    run(main())


BAD_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)


@pytest.mark.parametrize("last", ["alert", "bad record"])
def test_a_peer_that_ends_both_directions_after_its_question(run, server_context, client_context, last):
    """The answer cannot be sent any more: `write()` does not raise, and the protocol gets the reason."""

    class Answering(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.write(b"answer")

    async def main():
        made = []
        server = await asyncio.get_running_loop().create_server(
            lambda: made.append(Answering()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        below, session = await by_hand(port_of(server), client_context)
        question = session.take_output() + session.seal(b"question")
        below.transport.write(question + (session.abort(80) if last == "alert" else BAD_RECORD))
        protocol = await first_of(made)
        lost = await protocol.lost
        assert isinstance(lost, ssl.SSLError) and "closed for sending" not in str(lost), lost
        assert protocol.data == b"question"
        below.transport.abort()
        server.close()

    run(main())


def test_a_failed_connection_ends_although_its_peer_does_not_read(run, server_context, client_context):
    async def main():
        made = []
        server = await asyncio.get_running_loop().create_server(
            lambda: made.append(Recorder()) or made[0], "127.0.0.1", 0, ssl=server_context, ssl_shutdown_timeout=0.2
        )
        below, session = await by_hand(port_of(server), client_context)
        below.transport.write(session.take_output())
        protocol = await first_of(made)
        below.transport.pause_reading()
        protocol.transport.write(b"d" * 20_000_000)
        below.transport.write(BAD_RECORD)
        assert isinstance(await asyncio.wait_for(protocol.lost, 10), ssl.SSLError)
        below.transport.abort()
        server.close()

    run(main())


def test_pressure_passes_through(run, server_context, client_context):
    class Slow(Recorder):
        def pause_writing(self):
            self.events.append("pause")

        def resume_writing(self):
            self.events.append("resume")

    async def main():
        server, client = await pair(server_context, client_context, client=Slow)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.set_write_buffer_limits(high=100_000, low=10_000)
        sent = 0
        while "pause" not in client.events:
            client.transport.write(b"c" * 100_000)
            sent += 100_000
            assert sent < 100_000_000
        assert client.transport.get_write_buffer_size() > 100_000
        await asyncio.sleep(0.05)
        before = len(server.data)
        server.transport.resume_reading()
        while len(server.data) < sent:
            await asyncio.sleep(0.01)
        assert before < sent and client.events[-1] == "resume"
        client.transport.close()
        await server.lost

    run(main())


def test_a_peer_that_requests_keys_without_end_and_reads_nothing(run, server_context, certs):
    size, count = 20_000_000, 100

    async def main():
        loop = asyncio.get_running_loop()
        made = []
        server = await loop.create_server(
            lambda: made.append(Recorder()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        _, below = await loop.create_connection(Recorder, "127.0.0.1", port_of(server))
        client = Requester(certs.ca)

        def arrived():
            data, below.data = below.data, b""
            return data

        while not client.shake(arrived()):
            below.transport.write(client.output())
            await asyncio.sleep(0.01)
        below.transport.write(client.output())
        protocol = await first_of(made)
        transport = protocol.transport
        below.transport.pause_reading()
        transport.write(b"d" * size)
        # Until the kernel takes nothing more.
        unsent = None
        while unsent != transport.get_write_buffer_size():
            unsent = transport.get_write_buffer_size()
            await asyncio.sleep(0.2)
        for i in range(count):
            below.transport.write(client.request())
            while len(protocol.data) <= i:
                await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() <= unsent
        below.transport.resume_reading()
        opened = 0
        while opened < size:
            await asyncio.sleep(0.01)
            opened += len(client.open(arrived()))
        assert transport._session.is_at_rest, "the answer was sent"
        transport.write(b"with the new key")
        while (last := client.open(arrived())) == b"":
            await asyncio.sleep(0.01)
        assert (opened, last) == (size, b"with the new key")
        transport.abort()
        server.close()

    run(main())


def test_no_data_comes_while_reading_is_paused(run, server_context, client_context):
    """Also not what came with the end of the handshake, or with the bytes before it."""

    class Pausing(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            transport.pause_reading()

        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async def main():
        loop = asyncio.get_running_loop()
        made = []
        server = await loop.create_server(
            lambda: made.append(Pausing()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        # All that the client sends arrives at once.
        below, session = await by_hand(port_of(server), client_context)
        rest = session.take_output() + session.seal(b"first") + session.seal(b" second") + session.close()
        below.transport.write(rest)
        protocol = await first_of(made)
        await asyncio.sleep(0.1)
        assert (protocol.data, protocol.events) == (b"", ["made"])
        with pytest.raises(dormouse.MisuseError, match="resume_reading"):
            await protocol.transport.export()
        protocol.transport.resume_reading()
        assert protocol.data == b""
        while protocol.data != b"first second":
            await asyncio.sleep(0.01)
        assert protocol.events == ["made"]
        protocol.transport.resume_reading()
        await protocol.lost
        assert protocol.events == ["made", "eof", "NoneType"]
        server.close()

    run(main())


def test_a_buffered_protocol(run, server_context, client_context):
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self):
            self.room, self.data = bytearray(7), b""
            self.done = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint):
            return self.room

        def buffer_updated(self, count):
            self.data += bytes(self.room[:count])
            if len(self.data) == 100:
                self.done.set_result(None)

    async def main():
        server, client = await pair(server_context, client_context, client=Buffered)
        server.transport.write(bytes(range(100)))
        await client.done
        assert client.data == bytes(range(100))
        server.transport.abort()

    run(main())


class Narrow(asyncio.BufferedProtocol):
    """Has a buffer of ten bytes, and acts when it is full."""

    def __init__(self, when_full):
        self.room, self.used, self.when_full = bytearray(10), 0, when_full

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return memoryview(self.room)[self.used :]

    def buffer_updated(self, count):
        self.used += count
        if self.used == len(self.room):
            self.when_full(self)


def test_a_buffered_protocol_that_pauses_when_it_is_full(run, server_context, client_context):
    async def main():
        server, client = await pair(
            server_context, client_context, client=lambda: Narrow(lambda full: full.transport.pause_reading())
        )
        server.transport.write(bytes(range(25)))
        data = b""
        while len(data) < 25:
            await asyncio.sleep(0.05)
            assert not client.transport.is_closing() and client.used in (0, 5, 10)
            data += client.room[: client.used]
            client.used = 0
            client.transport.resume_reading()
        assert data == bytes(range(25))
        client.transport.close()
        await server.lost

    run(main())


def test_a_buffered_protocol_that_closes_or_is_replaced(run, server_context, client_context):
    async def main():
        server, client = await pair(
            server_context, client_context, client=lambda: Narrow(lambda full: full.transport.close())
        )
        server.transport.write(bytes(range(25)))
        assert await server.lost is None
        assert client.room == bytes(range(10))
        successor = Recorder()
        server, client = await pair(
            server_context, client_context, client=lambda: Narrow(lambda full: full.transport.set_protocol(successor))
        )
        server.transport.write(bytes(range(25)))
        while len(successor.data) < 15:
            await asyncio.sleep(0.01)
        assert successor.data == bytes(range(10, 25))
        server.transport.close()
        assert await successor.lost is None

    run(main())


def test_what_can_be_written(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        writes = [b"a", bytearray(b"b"), memoryview(b"c"), memoryview(b"d-d-")[::2], b""]
        for data in writes:
            client.transport.write(data)
        client.transport.writelines([b"e", bytearray(b"f"), memoryview(b"g")])
        client.transport.writelines([])
        for wrong in ("text", 1, None, [b"list"]):
            with pytest.raises(TypeError):
                client.transport.write(wrong)
        client.transport.close()
        await server.lost
        assert server.data == b"abcddefg"

    run(main())


def test_alpn_and_what_is_told_of_a_connection(run, server_context, client_context, certs):
    server_context.set_alpn_protocols(["h2", "http/1.1"])
    client_context.set_alpn_protocols(["http/1.1"])

    async def main():
        server, client = await pair(server_context, client_context)
        for protocol, context in ((server, server_context), (client, client_context)):
            told = protocol.transport.get_extra_info
            view = told("ssl_object")
            assert told("sslcontext") is context is view.context
            assert view.selected_alpn_protocol() == "http/1.1"
            assert view.version() == "TLSv1.3" and view.cipher() == told("cipher")
            assert view.cipher()[2] in (128, 256)
            assert told("compression") is None is view.compression()
            assert told("socket") is not None and told("peername")[0] == "127.0.0.1"
            assert told("no such thing", 7) == 7
        view = client.transport.get_extra_info("ssl_object")
        pem = open(certs.cert).read()
        assert view.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(pem)
        assert view.server_hostname == "localhost" and not view.server_side
        expected = ssl._ssl._test_decode_cert(certs.cert)
        assert view.getpeercert() == expected == client.transport.get_extra_info("peercert")
        assert server.transport.get_extra_info("peercert") is None
        client.transport.close()
        await server.lost

    run(main())


def test_no_common_protocol(run, server_context, client_context):
    server_context.set_alpn_protocols(["h2"])
    client_context.set_alpn_protocols(["http/1.1"])

    async def main():
        with pytest.raises(ssl.SSLError) as caught:
            await pair(server_context, client_context)
        assert caught.value.reason == "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"

    run(main())


def test_certificates_that_are_refused(run, certs, server_context, client_context):
    def with_cert(cert, key):
        context = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        return context

    expired = with_cert(certs.expired_cert, certs.expired_key)
    other = with_cert(certs.other_cert, certs.other_key)
    strangers = dormouse.create_default_context(cafile=certs.stranger)
    any_name = dormouse.create_default_context(cafile=certs.ca)
    any_name.check_hostname = False
    anybody = dormouse.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE

    async def main():
        for server, client, code in (
            (expired, client_context, 10),
            (expired, any_name, 10),
            (other, client_context, 62),
            (server_context, strangers, 20),
        ):
            with pytest.raises(ssl.SSLCertVerificationError) as caught:
                await pair(server, client)
            assert caught.value.verify_code == code, caught.value
            assert caught.value.reason == "CERTIFICATE_VERIFY_FAILED"
            assert isinstance(caught.value, dormouse.SSLError)
        for server, client in ((other, any_name), (expired, anybody)):
            _, one = await pair(server, client)
            one.transport.close()
            await one.lost

    run(main())


@pytest.mark.parametrize("version", VERSIONS)
def test_client_certificates(run, certs, server_context, client_context, version):
    server_context.load_verify_locations(certs.ca)
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.maximum_version = version

    async def main():
        client_context.load_cert_chain(certs.client_cert, certs.client_key)
        server, client = await pair(server_context, client_context)
        shown = server.transport.get_extra_info("peercert")
        assert shown == ssl._ssl._test_decode_cert(certs.client_cert)
        client.transport.close()
        await server.lost
        bare = dormouse.create_default_context(cafile=certs.ca)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(Recorder, "127.0.0.1", 0, ssl=server_context)
        try:
            _, client = await loop.create_connection(
                Recorder, "127.0.0.1", port_of(listening), ssl=bare, server_hostname="localhost"
            )
            # In TLS 1.3 a client learns after its handshake that it was refused.
            lost = await client.lost
        except ssl.SSLError as error:
            lost = error
        listening.close()
        assert isinstance(lost, ssl.SSLError) and "ALERT" in lost.reason, lost
        server_context.verify_mode = ssl.CERT_OPTIONAL
        server, client = await pair(server_context, bare)
        assert server.transport.get_extra_info("peercert") is None
        client.transport.close()
        await server.lost

    run(asyncio.wait_for(main(), 20))


def test_the_certificate_is_chosen_by_name(run, certs, server_context, client_context):
    other = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.load_cert_chain(certs.other_cert, certs.other_key)
    asked = []

    def choose(view, name, context):
        asked.append(name)
        assert context is server_context and view.server_side
        if name == "other.test":
            view.context = other
        elif name == "refused.test":
            return 112
        elif name == "broken.test":
            raise KeyError(name)
        elif name == "large.test":
            return 256
        return None

    server_context.sni_callback = choose

    async def shake(name):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=server_context)
        transport, _ = await loop.create_connection(
            asyncio.Protocol, "127.0.0.1", port_of(server), ssl=client_context, server_hostname=name
        )
        transport.close()
        server.close()

    async def main():
        await shake("localhost")
        await shake("other.test")
        with pytest.raises(ssl.SSLError) as caught:
            await shake("refused.test")
        assert caught.value.reason == "TLSV1_UNRECOGNIZED_NAME"
        with pytest.raises(ssl.SSLError) as caught:
            await shake("broken.test")
        assert caught.value.reason == "SSLV3_ALERT_HANDSHAKE_FAILURE"
        with pytest.raises(ssl.SSLError) as caught:
            await shake("large.test")
        assert caught.value.reason == "TLSV1_ALERT_INTERNAL_ERROR"

    reports = []
    run(main(), reports)
    assert asked == ["localhost", "other.test", "refused.test", "broken.test", "large.test"]
    assert [type(one["exception"]) for one in reports] == [KeyError, OverflowError]


def test_sessions_are_resumed(run, server_context, client_context):
    async def main():
        reused = []
        server_context.native_server()
        for _ in range(3):
            server, client = await pair(server_context, client_context)
            server.transport.write(b"x")
            while not client.data:
                await asyncio.sleep(0.01)
            reused.append(client.transport.get_extra_info("ssl_object").session_reused)
            client.transport.close()
            await server.lost
        assert reused == [False, True, True]

    run(main())


def test_a_handshake_has_a_limit_in_time(run, server_context):
    async def main():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            Recorder, "127.0.0.1", 0, ssl=server_context, ssl_handshake_timeout=0.2
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        assert await reader.read() == b""
        writer.close()
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="positive"):
                await loop.create_server(
                    Recorder, "127.0.0.1", 0, ssl=server_context, ssl_handshake_timeout=wrong
                )
        server.close()

    run(main())


def test_a_client_has_a_limit_in_time_too(run, client_context):
    async def main():
        held = []
        server = await asyncio.start_server(lambda *streams: held.append(streams), "127.0.0.1", 0)
        with pytest.raises(ConnectionAbortedError, match="longer than 0.2 seconds"):
            await asyncio.open_connection(
                "localhost", port_of(server), ssl=client_context, ssl_handshake_timeout=0.2
            )
        server.close()

    run(main())


def test_peers_that_do_not_speak_tls(run, server_context, client_context):
    async def hang_up(reader, writer):
        writer.close()

    async def chat(reader, writer):
        writer.write(b"220 hello\r\n" * 10)

    async def main():
        for talk, expected in ((hang_up, ConnectionResetError), (chat, ssl.SSLError)):
            server = await asyncio.start_server(talk, "127.0.0.1", 0)
            with pytest.raises(expected):
                await asyncio.open_connection("localhost", port_of(server), ssl=client_context)
            server.close()
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=server_context)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        server.close()

    run(main())


def test_a_client_that_is_cancelled_just_after_its_handshake_ends_properly(run, server_context, client_context):
    class Cancelling(Recorder):
        def connection_made(self, transport):
            super().connection_made(transport)
            asyncio.get_running_loop().call_soon(connecting[0].cancel)

    connecting = []

    async def main():
        loop = asyncio.get_running_loop()
        made = []
        server = await loop.create_server(
            lambda: made.append(Recorder()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        connect = loop.create_connection(
            Cancelling, "127.0.0.1", port_of(server), ssl=client_context, server_hostname="localhost"
        )
        connecting.append(asyncio.ensure_future(connect))
        with pytest.raises(asyncio.CancelledError):
            await connecting[0]
        protocol = await first_of(made)
        assert await protocol.lost is None and protocol.events == ["made", "eof", "NoneType"]
        server.close()

    run(main())


def test_start_tls_that_is_cancelled_just_after_its_handshake_ends_properly(
    run, server_context, client_context, monkeypatch
):
    begun = []
    established = dormouse.asyncio.TLSTransport._established

    def cancelling(transport):
        established(transport)
        if not transport._settings.server_side:
            begun[0].cancel()

    async def main():
        loop = asyncio.get_running_loop()
        made = []
        server = await loop.create_server(
            lambda: made.append(Recorder()) or made[0], "127.0.0.1", 0, ssl=server_context
        )
        plain, client = await loop.create_connection(Recorder, "127.0.0.1", port_of(server))
        monkeypatch.setattr(dormouse.asyncio.TLSTransport, "_established", cancelling)
        begun.append(
            asyncio.ensure_future(loop.start_tls(plain, client, client_context, server_hostname="localhost"))
        )
        with pytest.raises(asyncio.CancelledError):
            await begun[0]
        protocol = await first_of(made)
        assert await protocol.lost is None and protocol.events == ["made", "eof", "NoneType"]
        assert await client.lost is None
        server.close()

    run(main())


def test_start_tls_on_both_sides(run, server_context, client_context):
    class Upgrading(asyncio.Protocol):
        def __init__(self):
            self.data, self.transport = b"", None
            self.upgraded = asyncio.get_running_loop().create_future()

        def connection_made(self, transport):
            assert self.transport is None, "told twice"
            self.transport = transport

        def data_received(self, data):
            self.data += data
            if self.data == b"STARTTLS":
                self.transport.write(b"OK")
                self.task = asyncio.ensure_future(self.upgrade())
            elif self.data == b"STARTTLSsecret":
                self.upgraded.add_done_callback(lambda _: self.transport.write(b"answer"))

        async def upgrade(self):
            loop = asyncio.get_running_loop()
            self.transport = await loop.start_tls(
                self.transport, self, server_context, server_side=True
            )
            self.upgraded.set_result(None)

    async def main():
        loop = asyncio.get_running_loop()
        made = []
        server = await loop.create_server(
            lambda: made.append(Upgrading()) or made[0], "127.0.0.1", 0
        )
        plain, client = await loop.create_connection(Recorder, "127.0.0.1", port_of(server))
        plain.write(b"STARTTLS")
        while client.data != b"OK":
            await asyncio.sleep(0.01)
        over_tls = await dormouse.asyncio.start_tls(
            plain, client, client_context, server_hostname="localhost"
        )
        over_tls.write(b"secret")
        while client.data != b"OKanswer":
            await asyncio.sleep(0.01)
        await made[0].upgraded
        assert client.events == ["made"]
        over_tls.close()
        assert await client.lost is None
        server.close()

    run(main())


def test_tls_inside_tls(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        loop = asyncio.get_running_loop()
        inner_server, inner_client = await asyncio.gather(
            loop.start_tls(server.transport, server, server_context, server_side=True),
            loop.start_tls(client.transport, client, client_context, server_hostname="localhost"),
        )
        inner_client.write(b"deep" * 10_000)
        while len(server.data) < 40_000:
            await asyncio.sleep(0.01)
        inner_client.close()
        assert await server.lost is None and server.data == b"deep" * 10_000

    run(main())


def test_contexts_of_ssl_still_work(run, stdlib_server, stdlib_client):
    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=stdlib_server)
        reader, writer = await asyncio.open_connection(
            "localhost", port_of(server), ssl=stdlib_client
        )
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert isinstance(writer.get_extra_info("ssl_object"), ssl.SSLObject)
        writer.close()
        server.close()

    run(main())


def test_a_quiet_connection_keeps_nothing(run, server_context, client_context):
    async def main():
        server, client = await pair(server_context, client_context)
        client.transport.write(b"once")
        while server.data != b"once":
            await asyncio.sleep(0.01)
        for transport in (server.transport, client.transport):
            while transport._flight is not None:
                await asyncio.sleep(0.01)
            assert transport._session.is_at_rest and transport._flight is None
            assert not hasattr(transport, "__dict__")
        client.transport.close()
        await server.lost
        await client.lost
        assert server.transport._session is None is client.transport._session

    run(main())
