"""What the measurements of servers in different runtimes share: the client, the certificate, reports.

The client is the same for all: blocking sockets of Python, with OpenSSL for TLS.
"""

import argparse
import datetime
import json
import os
import platform
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "lab" / "results"
BLOCK = b"y" * 131_072


class Server:
    """A server's process, which has printed its port. Subclasses start it."""

    def __init__(self, process, certificate):
        """`certificate`: the file that its clients trust; None: it speaks plaintext."""
        self.process = process
        self.port = int(process.stdout.readline())
        self.context = None
        if certificate is not None:
            self.context = ssl.create_default_context(cafile=certificate)
            # Every handshake is a full one.
            self.context.options |= ssl.OP_NO_TICKET

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is None:
            return sock
        return self.context.wrap_socket(sock, server_hostname="localhost")

    def connect_and_echo(self, count):
        socks = []
        for _ in range(count):
            socks.append(self.connect())
            echo(socks[-1])
        return socks

    def pss(self):
        """Bytes of its proportional set size."""
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no Pss")

    def stop(self):
        self.process.kill()
        self.process.wait()


def echo(sock, data=b"x" * 100):
    sock.sendall(data)
    left = len(data)
    while left:
        left -= len(sock.recv(left))


def certificate(folder):
    """Make a certificate for localhost. Return the names of its file and its key's."""
    files = [str(Path(folder) / name) for name in ("cert.pem", "key.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", files[1], "-out", files[0], "-subj", "/CN=localhost", "-days", "30"]
        + ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"],
        check=True,
        capture_output=True,
    )
    return files


def interval(values, digits=0):
    low, high = min(values), max(values)
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def arguments(runs, choices):
    """The options that all have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=4_900)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--only", nargs="*", default=choices, choices=choices, metavar="ONE")
    parser.add_argument("--dry", action="store_true", help="write no results")
    return parser


def limit_connections(chosen):
    """No more connections than this process may have descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    chosen.connections = min(chosen.connections, limit - 100)


def quiet_bytes(command, tls, files, connections):
    """Bytes for each quiet connection of a server that `command`, TLS, certificate and key start."""
    process = subprocess.Popen([command, tls, *files], stdout=subprocess.PIPE, text=True)
    server = Server(process, None if tls == "plain" else files[0])
    try:
        for _ in range(200):
            with server.connect() as sock:
                echo(sock)
        time.sleep(1)
        before = server.pss()
        socks = server.connect_and_echo(connections)
        time.sleep(1)
        after = server.pss()
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    return {"bytes": (after - before) / connections}


def measure_in_turn(out, command, kinds, chosen, goal=None):
    """Measures quiet connections of each kind of TLS, several times, in turn. `goal`: maximum bytes that Dormouse may add
    to plaintext, if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(folder)
        found = {tls: [] for tls in kinds}
        for _ in range(chosen.runs):
            for tls in kinds:
                found[tls].append(quiet_bytes(command, tls, files, chosen.connections))
                print(f"{tls}: {found[tls][-1]['bytes']:.0f} bytes", file=sys.stderr, flush=True)
    for tls in kinds:
        out(f"{tls:10}{interval([one['bytes'] for one in found[tls]]):>22}")
    for tls in kinds[1:]:
        added = [ours["bytes"] - plain["bytes"] for ours, plain in zip(found[tls], found["plain"])]
        reached = ""
        if tls == "dormouse" and goal is not None:
            reached = f"; goal {goal}: {'reached' if statistics.median(added) <= goal else 'NOT REACHED'}"
        out(f"{tls} adds {interval(added)}{reached}")
    return found


class Report:
    """Lines that are printed, and written to a file at the end."""

    def __init__(self, name, is_dry):
        self.path = None if is_dry else RESULTS / f"{name}-{datetime.date.today()}.txt"
        self.lines = []

    def __call__(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def machine(self, runtime):
        self(f"machine: {os.cpu_count()} cores, {platform.release()}; {runtime}; client: {ssl.OPENSSL_VERSION}")
        self.load("before")

    def load(self, when):
        self(f"load {when}: {' '.join(f'{one:.1f}' for one in os.getloadavg())}")

    def write(self):
        if self.path is not None:
            self.path.write_text("\n".join(self.lines) + "\n")
            print(f"written: {self.path}")

    def keep(self, runtime, part, servers):
        """Adds figures to the result of all runtimes, from which `lab/callers/runtimes` makes the guide's table and picture.

        `part`: bytes or cpu. `servers`: for each server, and each kind of TLS, a list of figures, one for each run.
        """
        if self.path is None:
            return
        path = RESULTS / f"runtimes-{datetime.date.today()}.json"
        result = json.loads(path.read_text()) if path.exists() else {}
        # Later figures of a server replace earlier ones.
        result.setdefault(runtime, {}).setdefault(part, {}).update(servers)
        path.write_text(json.dumps(result, indent=1) + "\n")
