"""Foreign servers and clients, unchanged except for a context of this package."""

from __future__ import annotations

import asyncio
import ssl
import subprocess

import pytest
from conftest import beside, in_thread, loop_factory, port_of
from test_export import free_port

import dormouse
import dormouse.asyncio


def curl(port: int, certs, *more: str) -> str:
    command = ["curl", "-sS", "--retry", "5", "--retry-connrefused", "--cacert", certs.ca, *more]
    command.append(f"https://localhost:{port}/path")
    done = subprocess.run(command, capture_output=True, timeout=30, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def application(scope, receive, send):
    """An ASGI application that reports its request."""
    if scope["type"] == "lifespan":
        for _ in range(2):
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
        return
    told = f"{scope['scheme']} {scope['http_version']} {scope['path']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": told + b" " + b"." * 100_000})


# library: uvicorn | works | `loop="dormouse.asyncio:new_event_loop"` (or `dormouse.uvloop`), `ssl_context_factory`
@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_uvicorn(certs, server_context, loop, http):
    uvicorn = pytest.importorskip("uvicorn")
    port = free_port()
    config = uvicorn.Config(
        application,
        port=port,
        http=http,
        log_level="warning",
        loop=f"dormouse.{loop}:new_event_loop",
        ssl_context_factory=lambda config, default: server_context,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    loop_factory(loop)
    with in_thread(server.run):
        try:
            assert curl(port, certs) == "https 1.1 /path " + "." * 100_000
            assert curl(port, certs, "--tls-max", "1.2").startswith("https 1.1 ")
        finally:
            server.should_exit = True


# library: hypercorn | works | `config.create_ssl_context`, in a loop of this package; HTTP/2 too
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_hypercorn_with_http_2(certs, server_context, loop):
    pytest.importorskip("hypercorn")
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    server_context.set_alpn_protocols(["h2", "http/1.1"])

    class OverDormouse(Config):
        ssl_enabled = True

        def create_ssl_context(self):
            return server_context

    port = free_port()
    config = OverDormouse()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "warning"

    async def main():
        stop = asyncio.Event()
        serving = asyncio.ensure_future(serve(application, config, shutdown_trigger=stop.wait))
        for http, option in (("2", "--http2"), ("1.1", "--http1.1")):
            told = await beside(lambda option=option: curl(port, certs, option))
            assert told == f"https {http} /path " + "." * 100_000
        stop.set()
        await serving

    dormouse.asyncio.run_with(loop_factory(loop), asyncio.wait_for(main(), 30), None)


# library: aiohttp | works | `ssl=`, server and client, static files too, in a loop of this package
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_aiohttp(certs, server_context, client_context, loop, tmp_path):
    aiohttp = pytest.importorskip("aiohttp")
    from aiohttp import web

    async def hello(request):
        body = await request.read()
        return web.Response(text=f"{request.scheme} {request.secure} {len(body)}")

    async def chat(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data.upper())
        return socket

    # More than fits into the buffers of the kernel.
    (tmp_path / "static.bin").write_bytes(b"z" * 8_000_000)

    async def main():
        app = web.Application(client_max_size=10_000_000)
        app.add_routes([web.post("/", hello), web.get("/chat", chat), web.static("/static", tmp_path)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context)
        await site.start()
        port = port_of(site._server)
        async with aiohttp.ClientSession() as session:
            url = f"https://localhost:{port}"
            for size in (0, 10, 3_000_000):
                async with session.post(url, data=b"x" * size, ssl=client_context) as answer:
                    assert await answer.text() == f"https True {size}"
            async with session.get(url + "/static/static.bin", ssl=client_context) as answer:
                assert await answer.read() == b"z" * 8_000_000
            part = {"Range": "bytes=10-99"}
            async with session.get(url + "/static/static.bin", ssl=client_context, headers=part) as answer:
                assert answer.status == 206 and len(await answer.read()) == 90
            async with session.ws_connect(url + "/chat", ssl=client_context) as socket:
                await socket.send_str("quiet")
                assert (await socket.receive()).data == "QUIET"
            strangers = dormouse.create_default_context(cafile=certs.stranger)
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.post(url, ssl=strangers)
            fingerprint = aiohttp.Fingerprint(b"0" * 32)
            with pytest.raises(aiohttp.ServerFingerprintMismatch):
                connector = aiohttp.TCPConnector(ssl=client_context)
                async with aiohttp.ClientSession(connector=connector) as other:
                    await other.post(url, ssl=fingerprint)
        await runner.cleanup()

    dormouse.asyncio.run_with(loop_factory(loop), asyncio.wait_for(main(), 30), None)


# library: autobahn | works | `ssl=`, server and client, in a loop of this package
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_autobahn(server_context, client_context, loop):
    websocket = pytest.importorskip("autobahn.asyncio.websocket")

    class Echo(websocket.WebSocketServerProtocol):
        def onMessage(self, payload, isBinary):
            self.sendMessage(payload, isBinary)

    async def main():
        loop = asyncio.get_running_loop()
        received = loop.create_future()

        class Client(websocket.WebSocketClientProtocol):
            def onOpen(self):
                self.sendMessage(b"z" * 100_000, True)

            def onMessage(self, payload, isBinary):
                received.set_result(payload)
                self.sendClose()

        factory = websocket.WebSocketServerFactory(loop=loop)
        factory.protocol = Echo
        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=server_context)
        port = port_of(server)
        factory = websocket.WebSocketClientFactory(f"wss://localhost:{port}", loop=loop)
        factory.protocol = Client
        await loop.create_connection(factory, "localhost", port, ssl=client_context)
        assert await received == b"z" * 100_000
        server.close()

    dormouse.asyncio.run_with(loop_factory(loop), asyncio.wait_for(main(), 30), None)


# library: httpx, httpcore, anyio | with a note | `verify=context`, in any loop; by `wrap_bio`, so these libraries keep buffers of their own
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_httpx_and_anyio_by_wrap_bio(server_context, client_context, backend):
    """In ordinary event loops: a server of anyio, and httpx as its client."""
    anyio, httpx = pytest.importorskip("anyio"), pytest.importorskip("httpx")
    pytest.importorskip(backend)
    from anyio.abc import SocketAttribute
    from anyio.streams.tls import TLSListener

    async def answer(stream):
        async with stream:
            request = b""
            while b"\r\n\r\n" not in request:
                request += await stream.receive()
            body = b"." * 100_000
            await stream.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def main():
        plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = plain.listeners[0].extra(SocketAttribute.local_port)
        # httpx closes without close_notify.
        listener = TLSListener(plain, server_context, standard_compatible=False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            async with httpx.AsyncClient(verify=client_context) as client:
                for _ in range(2):
                    reply = await client.get(f"https://localhost:{port}/")
                    assert reply.text == "." * 100_000
            with pytest.raises(httpx.ConnectError):
                strange = dormouse.create_default_context()
                async with httpx.AsyncClient(verify=strange) as client:
                    await client.get(f"https://localhost:{port}/")
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)


# library: trio | with a note | `trio.SSLStream`; by `wrap_bio`, as above
def test_trio(server_context, client_context):
    trio = pytest.importorskip("trio")

    async def echo(stream):
        async with stream:
            async for data in stream:
                await stream.send_all(data)

    async def main():
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                lambda task_status: trio.serve_ssl_over_tcp(
                    echo, 0, server_context, host="127.0.0.1", task_status=task_status
                )
            )
            port = listeners[0].transport_listener.socket.getsockname()[1]
            client = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=client_context)
            await client.send_all(b"question")
            assert await client.receive_some() == b"question"
            await client.aclose()
            nursery.cancel_scope.cancel()

    trio.run(main)


# library: aiosmtpd | works | `tls_context=` for STARTTLS
def test_aiosmtpd_with_starttls(server_context, client_context, certs):
    """It makes its TLS protocol by hand, so this is `wrap_bio` too."""
    controller = pytest.importorskip("aiosmtpd.controller")
    import smtplib

    class Keep:
        mail = None

        async def handle_DATA(self, server, session, envelope):
            Keep.mail = envelope.content
            return "250 kept"

    running = controller.Controller(
        Keep(), hostname="127.0.0.1", port=free_port(), tls_context=server_context, require_starttls=True
    )
    running.start()
    try:
        with smtplib.SMTP("127.0.0.1", running.port, local_hostname="localhost", timeout=20) as client:
            client._host = "localhost"
            client.starttls(context=ssl.create_default_context(cafile=certs.ca))
            client.sendmail("a@local.test", ["b@local.test"], "Subject: x\r\n\r\nbody\r\n")
    finally:
        running.stop()
    assert b"body" in Keep.mail
