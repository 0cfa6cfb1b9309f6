"""An echo server on asyncio's streams with one fault, and its healthy twin: streams.py FAULT HOST:PORT CERTIFICATE KEY

healthy  nothing is kept
tasks    each connection starts a task that waits for ever
"""

import asyncio
import ssl
import sys

FAULT, ADDRESS, CERTIFICATE, KEY = sys.argv[1:]
tasks = []


async def serve(reader, writer):
    if FAULT == "tasks":
        tasks.append(asyncio.create_task(asyncio.Event().wait()))
    try:
        while data := await reader.read(16384):
            writer.write(data)
            await writer.drain()
    except (OSError, ssl.SSLError):
        pass
    writer.close()


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    host, port = ADDRESS.rsplit(":", 1)
    async with await asyncio.start_server(serve, host, int(port), ssl=context, backlog=1024) as server:
        await server.serve_forever()


asyncio.run(main())
