"""An echo server on asyncio with one fault, and its healthy twin: echo_protocol.py FAULT HOST:PORT CERTIFICATE KEY

healthy  nothing is kept
tasks    each connection starts a task that waits for ever
"""

import asyncio
import asyncio.sslproto
import ssl
import sys

FAULT, ADDRESS, CERTIFICATE, KEY = sys.argv[1:5]
tasks = []
# By default each connection keeps a read buffer of 256 kB, which the audit rightly names.
asyncio.sslproto.SSLProtocol.max_size = 16 * 1024


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        if FAULT == "tasks":
            tasks.append(asyncio.ensure_future(asyncio.Event().wait()))

    def data_received(self, data):
        self.transport.write(data)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    host, port = ADDRESS.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    async with await loop.create_server(Echo, host, int(port), ssl=context, backlog=1024) as server:
        await server.serve_forever()


asyncio.run(main())
