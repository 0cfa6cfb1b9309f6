"""Measures the servers of `server.py`, each several times, in turn: bytes and CPU of quiet connections.

    measure.py [--connections 4900] [--runs 3] [--only FRAMEWORK…] [--objects 20000000]

The client is the same for all: blocking sockets of Python, with OpenSSL for TLS.
"""

import argparse
import datetime
import os
import platform
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parents[2] / "lab" / "results"
FRAMEWORKS = ["protocol", "streams", "uvloop", "uvloop-streams", "twisted"]
NAMES = {
    "protocol": "asyncio, Protocol",
    "streams": "asyncio, streams",
    "uvloop": "uvloop, Protocol",
    "uvloop-streams": "uvloop, streams",
    "twisted": "Twisted",
}
# Maximum bytes that Dormouse may add to plaintext.
GOALS = {"protocol": 512, "streams": 768, "uvloop": 512, "uvloop-streams": 768, "twisted": 512}
TLS = ["plain", "own", "dormouse"]
WARM_UP = 200
ECHOES = 5
BULK_MIB = 64


class Server:
    def __init__(self, framework, tls, files):
        command = [sys.executable, str(HERE / "server.py"), framework, tls, *files[:2]]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.context = None
        if tls != "plain":
            self.context = ssl.create_default_context(cafile=files[0])
            # Every handshake is a full one.
            self.context.options |= ssl.OP_NO_TICKET

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context is None:
            return sock
        return self.context.wrap_socket(sock, server_hostname="localhost")

    def resident(self):
        """Return the bytes of the server's own memory, after a collection."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no Pss")

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.kill()
        self.process.wait()


def echo(sock, data=b"x" * 100):
    sock.sendall(data)
    left = len(data)
    while left:
        left -= len(sock.recv(left))


def measure(framework, tls, files, connections):
    """Bytes for each connection; microseconds of CPU for a handshake and an echo; MiB/s and CPU of one stream."""
    server = Server(framework, tls, files)
    try:
        for _ in range(WARM_UP):
            with server.connect() as sock:
                echo(sock)
        before, cpu_before = server.resident(), server.cpu()
        socks = []
        for _ in range(connections):
            socks.append(server.connect())
            echo(socks[-1])
        cpu_connected = server.cpu()
        after = server.resident()
        cpu_quiet = server.cpu()
        for _ in range(ECHOES):
            for sock in socks:
                echo(sock)
        cpu_echoed = server.cpu()
        bulk = bulk_through(server, socks[0])
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    microseconds = 1e6 / connections
    return {
        "bytes": (after - before) / connections,
        "connect_us": (cpu_connected - cpu_before) * microseconds,
        "echo_us": (cpu_echoed - cpu_quiet) * microseconds / ECHOES,
        **bulk,
    }


def bulk_through(server, sock):
    block = b"y" * 131_072
    cpu, begun = server.cpu(), time.monotonic()
    for _ in range(BULK_MIB * 8):
        echo(sock, block)
    seconds = time.monotonic() - begun
    return {"mib_s": BULK_MIB / seconds, "bulk_cpu_ms": (server.cpu() - cpu) * 1000 / BULK_MIB}


def certificate(folder):
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


def many_objects(count, files, out):
    """Time connections in a process that holds many objects."""
    command = [sys.executable, str(HERE / "many_objects.py"), str(count), *files]
    out(subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip())


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--connections", type=int, default=4_900)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--only", nargs="*", default=FRAMEWORKS)
    arguments.add_argument("--objects", type=int, default=20_000_000)
    chosen = arguments.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    chosen.connections = min(chosen.connections, limit - 100)
    lines = []

    def out(line=""):
        print(line, flush=True)
        lines.append(line)

    out(f"Echo servers in Python with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out(f"machine: {os.cpu_count()} cores, {platform.release()}; Python {platform.python_version()}; {ssl.OPENSSL_VERSION}")
    out(f"load before: {' '.join(map(str, os.getloadavg()))}")
    out("bytes: proportional set size, after a collection. own: ssl (asyncio, uvloop), pyOpenSSL with buffers released (Twisted)")
    out()
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(folder)
        found = {}
        for _ in range(chosen.runs):
            for framework in chosen.only:
                for tls in TLS:
                    result = measure(framework, tls, files, chosen.connections)
                    found.setdefault((framework, tls), []).append(result)
                    print(f"{framework}, {tls}: {result['bytes']:.0f} bytes", file=sys.stderr, flush=True)
        out(f"{'':20}{'':10}{'bytes':>22}{'handshake and echo, us CPU':>30}{'echo, us CPU':>18}{'one stream, MiB/s':>20}{'ms CPU per MiB':>18}")
        for framework in chosen.only:
            for tls in TLS:
                of = lambda name: [one[name] for one in found[framework, tls]]  # noqa: B023, E731
                out(
                    f"{NAMES[framework]:20}{tls:10}{interval(of('bytes')):>22}{interval(of('connect_us')):>30}"
                    f"{interval(of('echo_us')):>18}{interval(of('mib_s')):>20}{interval(of('bulk_cpu_ms'), 1):>18}"
                )
            added = [
                ours["bytes"] - plain["bytes"]
                for ours, plain in zip(found[framework, "dormouse"], found[framework, "plain"])
            ]
            reached = "reached" if statistics.median(added) <= GOALS[framework] else "NOT REACHED"
            out(f"{'':20}dormouse adds {interval(added)}; goal {GOALS[framework]}: {reached}")
            out()
        if chosen.objects:
            many_objects(chosen.objects, files, out)
    out(f"load after: {' '.join(map(str, os.getloadavg()))}")
    path = RESULTS / f"python-{datetime.date.today()}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"written: {path}")


main()
