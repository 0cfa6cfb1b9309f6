"""session.py HOST PORT: 40 connections of the ssl module, each with the session of the one before."""

import socket
import ssl
import sys

context, session = ssl.create_default_context(), None
for _ in range(40):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as plain:
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            tls.recv(4096)
            # In TLS 1.3 the session comes after the handshake: it is there once the first answer is
            # read.
            session = tls.session
