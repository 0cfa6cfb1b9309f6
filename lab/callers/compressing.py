"""compressing.py PORT COUNT echo|http: opens some TLS 1.2 connections that offer DEFLATE and prints `warm`, waits for a
line, opens COUNT more, uses each, prints how many of them are compressed, and holds them until its input ends."""

import socket
import ssl
import sys

WARM = 20
port, count, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.maximum_version = ssl.TLSVersion.TLSv1_2
context.options &= ~ssl.OP_NO_COMPRESSION
# From security level 2 on OpenSSL neither offers nor accepts it.
context.set_ciphers("ALL:@SECLEVEL=0")
SAY = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" if kind == "http" else b"hello\n"


def connected():
    tls = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 20), server_hostname="localhost")
    tls.sendall(SAY)
    tls.recv(4096)
    return tls


held = [connected() for _ in range(WARM)]
print("warm", flush=True)
sys.stdin.readline()
more = [connected() for _ in range(count)]
print(sum(tls.compression() is not None for tls in more), flush=True)
sys.stdin.read()
