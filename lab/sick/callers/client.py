"""A client in Python that requests `/` twelve times, each on a new connection: client.py FAULT HOST:PORT

context-each  a context for each request, with the system's authorities
one-context   one context for all, which hands each connection the session of the one before: the twin
"""

import os
import socket
import ssl
import sys

FAULT, ADDRESS = sys.argv[1:]
host, port = ADDRESS.rsplit(":", 1)


def context():
    made = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    # OpenSSL 3.5 parses the authorities of Debian in 16 ms, which is no proof yet; this client has four times as many.
    for _ in range(4):
        made.load_verify_locations("/etc/ssl/certs/ca-certificates.crt")
    return made


shared, session = context(), None
for _ in range(12):
    of = context() if FAULT == "context-each" else shared
    with of.wrap_socket(
        socket.create_connection((host, int(port))),
        server_hostname="localhost",
        session=None if FAULT == "context-each" else session,
    ) as tls:
        tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while tls.recv(4096):
            pass
        session = tls.session
