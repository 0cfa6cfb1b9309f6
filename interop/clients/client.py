#!/usr/bin/env python3
"""Python's ssl module as a client. The command line and the answer are described in README.md."""

import argparse
import hashlib
import json
import os
import socket
import ssl
import sys

PAUSE_AT = 1 << 20
BLOCK = 64 * 1024
MESSAGE_SIZES = (1, 5, 17, 100, 1400, 3000, 16384, 16385)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect", required=True)
    parser.add_argument("--name", default="localhost")
    parser.add_argument("--ca", required=True)
    parser.add_argument("--version", choices=("1.2", "1.3"), required=True)
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--back", type=int, default=0)
    parser.add_argument("--alpn", default="")
    parser.add_argument("--group", default="")
    return parser.parse_args()


class Client:
    def __init__(self, args):
        self.args = args
        self.context = ssl.create_default_context(cafile=args.ca)
        version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[args.version]
        self.context.minimum_version = self.context.maximum_version = version
        if args.alpn:
            self.context.set_alpn_protocols(args.alpn.split(","))
        if args.group:
            self.context.set_ecdh_curve({"P-256": "prime256v1"}.get(args.group, args.group))
        self.sent = self.received = 0
        self.sent_hash, self.received_hash = hashlib.sha256(), hashlib.sha256()
        self.ended = "none"
        self.tls = None

    def connect(self, session=None):
        host, port = self.args.connect.rsplit(":", 1)
        tcp = socket.socket()
        tcp.settimeout(60)
        # Small buffers, so that unread data causes backpressure at the other end.
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
        tcp.connect((host, int(port)))
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = self.context.wrap_socket(
            tcp, server_hostname=self.args.name, suppress_ragged_eofs=False, session=session
        )
        # Read now, because a closed connection no longer has them.
        self.facts = {
            "version": self.tls.version(),
            "cipher": self.tls.cipher()[0],
            "group": None,
            "alpn": self.tls.selected_alpn_protocol(),
            "resumed": self.tls.session_reused,
        }

    def command(self, line):
        self.tls.sendall(line.encode() + b"\n")

    def send(self, data):
        self.tls.sendall(data)
        self.sent += len(data)
        self.sent_hash.update(data)

    def send_random(self, total, progress=False):
        while self.sent < total:
            self.send(os.urandom(min(BLOCK, total - self.sent)))
            if progress:
                print("sent", self.sent, flush=True)

    def receive(self, most=BLOCK):
        """Returns received bytes, or nothing when the other side has closed; `ended` then says how."""
        try:
            data = self.tls.recv(most)
            if not data:
                self.ended = "close_notify"
        except ssl.SSLZeroReturnError:
            self.ended, data = "close_notify", b""  # raised instead if our own was sent before
        except ssl.SSLEOFError:
            self.ended, data = "truncated", b""
        except ConnectionResetError:
            self.ended, data = "reset", b""
        except (OSError, ssl.SSLError) as error:
            self.ended, data = f"error: {error}", b""
        self.received += len(data)
        self.received_hash.update(data)
        return data

    def receive_exactly(self, count):
        parts = bytearray()
        while len(parts) < count:
            data = self.receive(count - len(parts))
            if not data:
                sys.exit(f"the connection ended ({self.ended}) after {len(parts)} of {count} bytes")
            parts += data
        return bytes(parts)

    def receive_to_the_end(self):
        while self.ended == "none" and self.receive():
            pass

    def end_sending(self):
        """Sends close_notify without ending the reading direction: unwrap() expects the answer at once, so it must not wait."""
        self.tls.setblocking(False)
        # If the answer is there already, unwrap() ends the TLS layer, and the session with it.
        self.session = self.tls.session
        try:
            self.tls.unwrap()
            self.ended = "close_notify"
            return
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # Our close_notify is sent, and data came before its answer: this is the half-close under test.
            if error.reason != "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
                raise
        self.tls.settimeout(60)

    def echo(self):
        self.command("echo")
        turn = 0
        while self.sent < self.args.bytes:
            message = os.urandom(MESSAGE_SIZES[turn % len(MESSAGE_SIZES)])
            self.send(message)
            if self.receive_exactly(len(message)) != message:
                sys.exit(f"echo {turn} differs from what was sent")
            turn += 1
        self.end_sending()
        self.receive_to_the_end()

    def upload(self):
        self.command(f"upload {self.args.bytes} pause")
        self.send_random(self.args.bytes, progress=True)
        self.receive_exactly(65)
        self.end_sending()
        self.receive_to_the_end()

    def download(self):
        self.command(f"download {self.args.bytes}")
        while self.received < PAUSE_AT and self.receive():
            pass
        print("paused", self.received, flush=True)
        sys.stdin.readline()
        self.receive_to_the_end()
        if self.ended == "close_notify":
            self.end_sending()

    def halfclose(self):
        self.command(f"halfclose {self.args.bytes}")
        self.end_sending()
        self.receive_to_the_end()

    def backendfirst(self):
        self.command(f"backendfirst {self.args.bytes}")
        self.receive_to_the_end()
        self.send_random(self.args.back)
        self.end_sending()

    def truncate(self):
        self.command("sink")
        self.send_random(self.args.bytes)
        # SSLSocket.shutdown() closes TCP without close_notify; from here on the socket reads plain bytes.
        self.tls.shutdown(socket.SHUT_WR)
        try:
            while self.tls.recv(BLOCK):
                pass
            self.ended = "end"
        except OSError:
            self.ended = "reset"

    def reset(self):
        self.command(f"reset {self.args.bytes}")
        self.receive_exactly(self.args.bytes)
        self.send(b"got\n")
        self.receive_to_the_end()

    def resume(self):
        self.echo()
        session = self.session
        self.tls.close()
        self.sent = self.received = 0
        self.sent_hash, self.received_hash = hashlib.sha256(), hashlib.sha256()
        self.connect(session)
        self.echo()

    def answer(self):
        return {
            **self.facts,
            "sent": self.sent,
            "sent_sha256": self.sent_hash.hexdigest(),
            "received": self.received,
            "received_sha256": self.received_hash.hexdigest(),
            "ended": self.ended,
        }


def main():
    args = arguments()
    client = Client(args)
    client.connect()
    getattr(client, args.scenario)()
    print(json.dumps(client.answer()), flush=True)


main()
