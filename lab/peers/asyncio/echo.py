"""echo.py default|memory PORT CERT KEY"""

import asyncio
import asyncio.sslproto
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


async def main(variant, port, cert, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    options = {"host": "127.0.0.1", "port": int(port), "ssl": context, "backlog": 4096}
    if variant == "memory":
        asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
        server = await asyncio.get_running_loop().create_server(Echo, **options)
    else:
        server = await asyncio.start_server(echo, **options)
    async with server:
        await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
