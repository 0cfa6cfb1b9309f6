"""echo.py default|memory|plain|heap|heap-plain PORT CERT KEY"""

import asyncio
import asyncio.sslproto
import os
import ssl
import sys


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except (ConnectionError, ssl.SSLError):
        writer.close()


class Echo(asyncio.Protocol):
    __slots__ = ("transport",)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

    def pause_writing(self):
        self.transport.pause_reading()

    def resume_writing(self):
        self.transport.resume_reading()


# What a process holds which has more to do than TLS.
OBJECTS = int(os.environ.get("LAB_OBJECTS", 10_000_000))


async def main(variant, port, cert, key):
    held = [(number,) for number in range(OBJECTS)] if variant.startswith("heap") else []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if variant.endswith("plain"):
        context = None
    options = {"host": "127.0.0.1", "port": int(port), "ssl": context, "backlog": 4096}
    if variant not in ("default", "plain"):
        asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
        server = await asyncio.get_running_loop().create_server(Echo, **options)
    else:
        server = await asyncio.start_server(echo, **options)
    async with server:
        await server.serve_forever()
    return held


asyncio.run(main(*sys.argv[1:]))
