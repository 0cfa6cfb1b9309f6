"""Times the first connections of a process with many objects: many_objects.py COUNT CERT KEY.

Both sides are sessions of this process, without sockets: nothing else takes time.
"""

import ssl
import sys
import time

import dormouse
from dormouse import _native

count, cert, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
held = [(number,) for number in range(count)]

server_context = dormouse.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server_context.load_cert_chain(cert, key)
client_context = dormouse.create_default_context(cafile=cert)
client_context.resumes_sessions = False


def shake():
    client = _native.Session.connect(client_context.native_client(), "localhost")
    server = _native.Session.accept(server_context.native_server())
    client.receive(b"")
    while server.is_handshaking:
        server.receive(client.take_output())
        client.receive(server.take_output())
    return client, server


begun = time.perf_counter()
server_context.native_server(), client_context.native_client()
contexts_ms = (time.perf_counter() - begun) * 1000
times, sessions = [], []
for _ in range(1_000):
    begun = time.perf_counter()
    sessions.append(shake())
    times.append((time.perf_counter() - begun) * 1000)
typical = sorted(times)[len(times) // 2]
print(
    f"A process with {len(held):,} objects: both contexts {contexts_ms:.1f} ms; the first handshake (both sides) "
    f"{times[0]:.2f} ms, the thousandth {times[-1]:.2f} ms, median {typical:.2f} ms"
)
