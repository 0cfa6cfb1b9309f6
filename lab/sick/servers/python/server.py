"""An echo server in Python with a thread for each connection and one fault, and its healthy twins.

server.py FAULT HOST:PORT CERTIFICATE KEY

healthy  one context for all, and nothing is kept
leak     2 kB of each connection are kept forever
bounded  the same 2 kB are kept for the last hundred connections: the twin of leak
context  each connection makes a context that trusts the system's authorities
trusting the same context for all: the twin of context
inline   makes each handshake in the loop that accepts connections; the twin is healthy
cycles   each connection leaves 4 kB in a cycle of references, which the collector frees: no fault
"""

import collections
import socket
import ssl
import sys
import threading

FAULT, ADDRESS, CERTIFICATE, KEY = sys.argv[1:5]
kept = collections.deque(maxlen=100) if FAULT == "bounded" else []


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE, KEY)
    if FAULT in ("context", "trusting"):
        made.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return made


shared = context()


def wrapped(connection):
    return (context() if FAULT == "context" else shared).wrap_socket(connection, server_side=True)


def serve(connection):
    try:
        with connection if FAULT == "inline" else wrapped(connection) as tls:
            while data := tls.recv(16384):
                tls.sendall(data)
    except OSError:
        pass
    if FAULT in ("leak", "bounded"):
        kept.append(bytearray(2000))
    if FAULT == "cycles":
        cycle = [bytearray(4000)]
        cycle.append(cycle)


host, port = ADDRESS.rsplit(":", 1)
listener = socket.create_server((host, int(port)), backlog=1024)
while True:
    accepted, _ = listener.accept()
    if FAULT == "inline":
        try:
            accepted = wrapped(accepted)
        except OSError:
            continue
    threading.Thread(target=serve, args=(accepted,), daemon=True).start()
