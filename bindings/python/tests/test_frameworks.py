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


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_aiohttp(certs, server_context, client_context, loop):
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

    async def main():
        app = web.Application(client_max_size=10_000_000)
        app.add_routes([web.post("/", hello), web.get("/chat", chat)])
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


assert ssl
