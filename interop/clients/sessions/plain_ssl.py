#!/usr/bin/env python3
"""Python's ssl module: one context, and the session of the last connection offered to the next."""

import json
import socket
import ssl

from arguments import arguments

args = arguments()
context = ssl.create_default_context(cafile=args.ca)
version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[args.version]
context.minimum_version = context.maximum_version = version
session, resumed = None, 0
for _ in range(args.requests):
    tcp = socket.create_connection((args.resolve, args.port), timeout=30)
    with context.wrap_socket(tcp, server_hostname="localhost", session=session) as tls:
        resumed += tls.session_reused
        tls.sendall(b"GET /bytes/100 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b""
        while len(received.partition(b"\r\n\r\n")[2]) < 100:
            data = tls.recv(65536)
            if not data:
                raise SystemExit(f"the connection ended after {received!r}")
            received += data
        session = tls.session  # with TLS 1.3 not before the first bytes of the answer
print(json.dumps({"requests": args.requests, "resumed": resumed}))
