"""echo.py VARIANT PORT CERT KEY     (run describes the variants)"""

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


def context_of(cert, key, is_trusting=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if is_trusting:
        context.load_verify_locations("/etc/ssl/certs/ca-certificates.crt")
    return context


def starting_tls(is_each, cert, key):
    """A server that starts TLS after a client has connected: with one context, or with one for each connection."""
    one = context_of(cert, key, is_trusting=True)

    async def serve(reader, writer):
        try:
            await writer.start_tls(context_of(cert, key, is_trusting=True) if is_each else one)
        except (ConnectionError, ssl.SSLError):
            return writer.close()
        await echo(reader, writer)

    return serve


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


# The objects of a process that does more than TLS.
OBJECTS = int(os.environ.get("LAB_OBJECTS", 10_000_000))


async def main(variant, port, cert, key):
    held = [(number,) for number in range(OBJECTS)] if variant.startswith("heap") else []
    context = None if variant.endswith(("plain", "context", "each")) else context_of(cert, key)
    if variant == "compression":
        context.options &= ~ssl.OP_NO_COMPRESSION
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    options = {"host": "127.0.0.1", "port": int(port), "ssl": context, "backlog": 4096}
    if variant in ("one-context", "context-each"):
        server = await asyncio.start_server(starting_tls(variant == "context-each", cert, key), **options)
    elif variant not in ("default", "plain"):
        asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
        server = await asyncio.get_running_loop().create_server(Echo, **options)
    else:
        server = await asyncio.start_server(echo, **options)
    async with server:
        await server.serve_forever()
    return held


asyncio.run(main(*sys.argv[1:]))
