"""A server that restarts without losing a connection: it answers each line with its process and a count.

    python restart.py PORT CERTIFICATE KEY

On SIGHUP it starts a new process and passes its connections on: their 150 bytes, their sockets, and the
program's own data about them.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import dormouse
import dormouse.asyncio

# The longest message: a connection with a partial record, and an unfinished line.
MESSAGE_MAX = 200_000
# A longer line ends its connection: with every byte escaped it must fit into a message.
LINE_MAX = 10_000
# For handshakes that have begun. A connection can be passed on when it is established.
GRACE_S = 0.3

clients = set()


class Counter(asyncio.Protocol):
    def __init__(self, count=0, line=b""):
        self.count, self.line = count, line

    def connection_made(self, transport):
        self.transport = transport
        clients.add(self)

    def data_received(self, data):
        *lines, self.line = (self.line + data).split(b"\n")
        for line in lines:
            self.count += 1
            self.transport.write(b"%d %d %s\n" % (os.getpid(), self.count, line))
        if len(self.line) > LINE_MAX:
            self.line = b""
            self.transport.close()

    def connection_lost(self, exc):
        clients.discard(self)


async def pass_on(channel, listener):
    """Send the successor the listening socket, then each connection, then nothing."""
    await asyncio.sleep(GRACE_S)
    socket.send_fds(channel, [b"listener"], [listener.fileno()])
    loop = asyncio.get_running_loop()
    for client in list(clients):
        try:
            exported, sock = await client.transport.export()
        except (dormouse.MisuseError, OSError, asyncio.TimeoutError):
            continue  # it has ended, or does not read what was written
        known = json.dumps({"count": client.count, "line": client.line.decode("latin-1")})
        message = [known.encode(), b"\0", exported]
        await loop.run_in_executor(None, socket.send_fds, channel, message, [sock.fileno()])
        sock.close()
    channel.close()


async def take_over(channel, context):
    """Take what the predecessor sends. Return the listening socket."""
    loop = asyncio.get_running_loop()
    receive = lambda: socket.recv_fds(channel, MESSAGE_MAX, 1)  # noqa: E731
    _, fds, _, _ = await loop.run_in_executor(None, receive)
    listener = socket.socket(fileno=fds[0])
    while True:
        message, fds, _, _ = await loop.run_in_executor(None, receive)
        if not message:
            return listener
        known, _, exported = message.partition(b"\0")
        known = json.loads(known)
        make = lambda: Counter(known["count"], known["line"].encode("latin-1"))  # noqa: B023, E731
        await dormouse.asyncio.restore(make, exported, socket.socket(fileno=fds[0]), ssl=context)


async def main(port, cert, key, channel=None):
    context = dormouse.SSLContext(dormouse.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if channel is None:
        listener = socket.create_server(("127.0.0.1", int(port)))
    else:
        listener = await take_over(socket.socket(fileno=int(channel)), context)
    server = await dormouse.asyncio.create_server(Counter, sock=listener.dup(), ssl=context)
    restart, stop = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, restart.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    print("ready", flush=True)
    waits = [asyncio.ensure_future(one.wait()) for one in (restart, stop)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if restart.is_set():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, port, cert, key, str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        await pass_on(ours, listener)
    for wait in waits:
        wait.cancel()


asyncio.run(main(*sys.argv[1:]))
