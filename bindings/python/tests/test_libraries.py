"""More libraries of others: their smallest use over TLS, with a context of this package."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
from conftest import beside, port_of

import dormouse
import dormouse.asyncio
from test_frameworks import curl


def loops(main: Any) -> None:
    dormouse.asyncio.run(asyncio.wait_for(main, 30))


# library: websockets | works | `ssl=`, server and client, in a loop of this package
def test_websockets(server_context, client_context):
    websockets = pytest.importorskip("websockets")

    async def echo(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    async def main() -> None:
        async with websockets.serve(echo, "127.0.0.1", 0, ssl=server_context) as server:
            url = f"wss://127.0.0.1:{port_of(server)}"
            async with websockets.connect(url, ssl=client_context, server_hostname="localhost") as client:
                for length in (1, 100_000):
                    await client.send("x" * length)
                    assert await client.recv() == "x" * length
                assert isinstance(client.transport.get_extra_info("ssl_object"), dormouse.SSLObject)

    loops(main())


# library: redis-py (asyncio) | with a note | its connections make an `ssl.SSLContext` themselves: a subclass of `SSLConnection` puts another one into `_connection_arguments()`
def test_redis(server_context, client_context):
    connections = pytest.importorskip("redis.asyncio")

    async def answer(reader: Any, writer: Any) -> None:
        while line := await reader.readline():
            if line.startswith(b"*"):
                writer.write(b"+PONG\r\n")
        writer.close()

    class Ours(connections.SSLConnection):
        def _connection_arguments(self) -> Any:
            return {**super()._connection_arguments(), "ssl": client_context, "server_hostname": "localhost"}

    async def main() -> None:
        server = await dormouse.asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context)
        pool = connections.ConnectionPool(connection_class=Ours, host="127.0.0.1", port=port_of(server), protocol=2, lib_name=None, lib_version=None)
        client = connections.Redis(connection_pool=pool)
        assert await client.ping()
        await client.aclose()
        await pool.disconnect()
        server.close()

    loops(main())


# library: aiosmtplib | works | `tls_context=`, also for STARTTLS, in a loop of this package
def test_aiosmtplib(server_context, client_context):
    aiosmtplib = pytest.importorskip("aiosmtplib")
    smtp = pytest.importorskip("aiosmtpd.smtp")
    handlers = pytest.importorskip("aiosmtpd.handlers")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: smtp.SMTP(handlers.Sink(), tls_context=server_context, loop=loop), "127.0.0.1", 0)
        client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port_of(server), start_tls=True, tls_context=client_context)
        async with client:
            assert (await client.noop()).code == 250
            assert isinstance(client.transport.get_extra_info("ssl_object"), dormouse.SSLObject)
        server.close()

    loops(main())


# library: asyncpg | works | `ssl=`, in a loop of this package: TLS begins within the protocol of PostgreSQL
def test_asyncpg(server_context, client_context):
    asyncpg = pytest.importorskip("asyncpg")

    async def refuse(reader: Any, writer: Any) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(server_context)
        length = int.from_bytes(await reader.readexactly(4), "big")
        assert b"a database" in await reader.readexactly(length - 4)
        error = b"SFATAL\0C28000\0Mno entry\0\0"
        writer.write(b"E" + (4 + len(error)).to_bytes(4, "big") + error)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        to = dict(host="localhost", port=port_of(server), user="u", password="p", database="a database")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no entry"):
            await asyncpg.connect(**to, ssl=client_context, timeout=10)
        server.close()

    loops(main())


# library: aiomysql | works | `ssl=`, in a loop of this package: TLS begins within the protocol of MySQL
def test_aiomysql(server_context, client_context):
    aiomysql = pytest.importorskip("aiomysql")
    fine = b"\0\0\0\2\0\0\0"

    def packet(number: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "little") + bytes([number]) + body

    async def received(reader: Any) -> bytes:
        head = await reader.readexactly(4)
        return await reader.readexactly(int.from_bytes(head[:3], "little"))

    async def serve(reader: Any, writer: Any) -> None:
        # Version 10 of the protocol; what the server can, TLS among it; mysql_native_password.
        greeting = bytes.fromhex("0a352e372e3000010000003132333435363738000b8a210200080015") + bytes(10)
        writer.write(packet(0, greeting + b"123456789012\0mysql_native_password\0"))
        await reader.readexactly(36)
        # The client may have sent its first bytes of TLS together with the request for it.
        await writer.start_tls(server_context)
        await received(reader)
        writer.write(packet(3, fine))
        while await received(reader) != b"\1":
            writer.write(packet(1, fine))
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = await aiomysql.connect(host="localhost", port=port_of(server), user="u", password="p", ssl=client_context)
        await (await client.cursor()).execute("DO 1")
        await client.ensure_closed()
        server.close()

    loops(main())


# library: nats-py | works | `tls=`, in a loop of this package: TLS begins after the server's first line
def test_nats(server_context, client_context):
    nats = pytest.importorskip("nats")

    async def serve(reader: Any, writer: Any) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.9.0","proto":1,"max_payload":1000,"tls_required":true}\r\n')
        await writer.drain()
        await writer.start_tls(server_context)
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = await nats.connect(
            f"tls://localhost:{port_of(server)}", tls=client_context, tls_hostname="localhost", allow_reconnect=False
        )
        await client.publish("subject", b"payload")
        await client.flush()
        await client.close()
        server.close()

    loops(main())


# library: aioftp | with a note | `ssl=` of its server, in a loop of this package; its client asks for the `session`, which raises `UnsupportedError`
def test_aioftp(server_context, stdlib_client, client_context, tmp_path):
    aioftp = pytest.importorskip("aioftp")

    async def main() -> None:
        server = aioftp.Server([aioftp.User(base_path=tmp_path)], ssl=server_context)
        await server.start("127.0.0.1", 0)
        client = aioftp.Client(ssl=stdlib_client)
        await client.connect("localhost", server.server_port)
        await client.login()
        async with client.upload_stream("a.bin") as stream:
            await stream.write(bytes(400_000))
        async with client.download_stream("a.bin") as stream:
            assert len(await stream.read()) == 400_000
        await client.quit()
        client = aioftp.Client(ssl=client_context)
        await client.connect("localhost", server.server_port)
        await client.login()
        with pytest.raises(dormouse.UnsupportedError):
            await client.list()
        client.close()
        await server.close()

    loops(main())


# library: Quart | works | served by hypercorn, or another server of this table
def test_quart(certs, server_context):
    quart = pytest.importorskip("quart")
    asgi, config = pytest.importorskip("hypercorn.asyncio"), pytest.importorskip("hypercorn.config")
    app = quart.Quart("test")

    @app.get("/path")
    async def path() -> str:
        return f"{quart.request.scheme} {quart.request.http_version}"

    async def main() -> None:
        settings = config.Config()
        settings.bind, settings.certfile, settings.keyfile = ["127.0.0.1:0"], certs.cert, certs.key
        settings.create_ssl_context = lambda: server_context
        sockets = settings.create_sockets()
        settings.create_sockets = lambda: sockets
        ended = asyncio.Event()
        port = sockets.secure_sockets[0].getsockname()[1]
        serving = asyncio.ensure_future(asgi.serve(app, settings, shutdown_trigger=ended.wait))
        assert await beside(lambda: curl(port, certs, "--http1.1")) == "https 1.1"
        ended.set()
        await serving

    loops(main())


# library: requests, urllib3, http.client | can't | they call `wrap_socket` of a blocking socket, which raises `UnsupportedError`
def test_requests(client_context):
    requests = pytest.importorskip("requests")
    adapters = pytest.importorskip("requests.adapters")

    class Adapter(adapters.HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> Any:
            return super().init_poolmanager(*args, ssl_context=client_context, **kwargs)

    session = requests.Session()
    session.mount("https://", Adapter())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises((requests.exceptions.SSLError, ssl.SSLError), match="wrap_socket|transports"):
            session.get(f"https://127.0.0.1:{listener.getsockname()[1]}/", timeout=5)


# library: Tornado | can't | its `SSLIOStream` calls `wrap_socket`, which raises `UnsupportedError`
def test_tornado(server_context):
    web, httpserver = pytest.importorskip("tornado.web"), pytest.importorskip("tornado.httpserver")

    async def main() -> None:
        server = httpserver.HTTPServer(web.Application(), ssl_options=server_context)
        server.listen(0, "127.0.0.1")
        port = next(iter(server._sockets.values())).getsockname()[1]
        reports: list = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report.get("exception")))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not reports:
            await asyncio.sleep(0.01)
        assert isinstance(reports[0], dormouse.UnsupportedError)
        writer.close()
        server.stop()

    loops(main())
