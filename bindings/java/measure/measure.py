"""Measures Netty's echo servers, each several times, in turn: bytes and CPU of quiet connections.

    measure.py CLASSPATH [--connections 4900] [--runs 5] [--only TLS…]

The client is the same for all: blocking sockets of Python, with OpenSSL for TLS.
"""

import argparse
import datetime
import os
import platform
import re
import resource
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
TLS = ["plain", "dormouse", "tcnative", "jdk"]
# Maximum bytes that Dormouse may add to plaintext.
GOAL = 512
# The native part of a connection at rest.
STATE = 136
WARM_UP = 2_000
ECHOES = 5
FOR_CPU = 500
BULK_MIB = 32
# The whole heap is resident from the start: a change of resident memory is then outside of it.
# The second compiler would take and return tens of megabytes meanwhile; only CPU time is measured with it.
JVM = ["-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch"]
JVM_FOR_BYTES = [*JVM, "-XX:TieredStopAtLevel=1"]


class Server:
    def __init__(self, tls, classpath, files, jvm):
        command = ["java", *jvm, "-cp", classpath, "dormouse.measure.EchoServer", tls, *files]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
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

    def collect(self):
        self.process.stdin.write("collect\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def memory(self):
        """Bytes of live objects, and resident bytes outside the heap (plus the heap's size, which is constant)."""
        self.await_quiet()
        live = self.collect()
        # Memory that the JIT compiler has freed belongs to no connection.
        command = ["jcmd", str(self.process.pid), "System.trim_native_heap"]
        subprocess.run(command, check=True, capture_output=True)
        for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return live, int(line.split()[1]) * 1024
        raise RuntimeError("no Pss")

    def await_quiet(self):
        """Waits until the JIT compiler has no work left."""
        for _ in range(60):
            before = self.cpu()
            time.sleep(1)
            if self.cpu() - before <= 0.02:
                return

    def histogram(self):
        command = ["jcmd", str(self.process.pid), "GC.class_histogram"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.findall(r"^ *\d+: +(\d+) +(\d+) +(\S+)", printed, re.M)
        return {name: (int(count), int(size)) for count, size, name in found}

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


def warm_up(server, count):
    for number in range(count):
        with server.connect() as sock:
            echo(sock)
        if number % 200 == 0:
            # Otherwise later connections would reuse the memory of closed ones.
            server.collect()


def connect(server, count):
    socks = []
    for _ in range(count):
        socks.append(server.connect())
        echo(socks[-1])
    return socks


def measure_bytes(tls, classpath, files, connections):
    """Bytes for each connection."""
    server = Server(tls, classpath, files, JVM_FOR_BYTES)
    try:
        warm_up(server, WARM_UP)
        heap, outside = server.memory()
        socks = connect(server, connections)
        heap_after, outside_after = server.memory()
        histogram = server.histogram()
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    return {
        "heap": (heap_after - heap) / connections,
        "outside": (outside_after - outside) / connections,
        "bytes": (heap_after - heap + outside_after - outside) / connections,
        "histogram": histogram,
    }


def measure_cpu(tls, classpath, files):
    """Microseconds of CPU for a handshake and an echo; MiB/s and CPU of one stream."""
    server = Server(tls, classpath, files, JVM)
    try:
        warm_up(server, WARM_UP // 2)
        before = server.cpu()
        socks = connect(server, FOR_CPU)
        connected = server.cpu()
        for _ in range(ECHOES):
            for sock in socks:
                echo(sock)
        echoed = server.cpu()
        bulk = bulk_through(server, socks[0])
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    microseconds = 1e6 / FOR_CPU
    return {
        "connect_us": (connected - before) * microseconds,
        "echo_us": (echoed - connected) * microseconds / ECHOES,
        **bulk,
    }


def bulk_through(server, sock):
    block = b"y" * 131_072
    for _ in range(64):
        echo(sock, block)
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


def show_histogram(out, histogram, connections):
    """Objects per connection."""
    shown = [(size, count, name) for name, (count, size) in histogram.items() if count >= 0.9 * connections]
    for size, count, name in sorted(shown, reverse=True)[:24]:
        out(f"    {size / connections:8.0f} bytes  {count / connections:6.1f}  {name}")
    large = histogram.get("[B", (0, 0))
    out(f"    all byte[]: {large[1] / connections:.0f} bytes for each connection")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("classpath")
    arguments.add_argument("--connections", type=int, default=4_900)
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--only", nargs="*", default=TLS)
    arguments.add_argument("--dry", action="store_true", help="write no results")
    chosen = arguments.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    chosen.connections = min(chosen.connections, limit - 100)
    lines = []

    def out(line=""):
        print(line, flush=True)
        lines.append(line)

    version = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[1]
    out(f"Echo servers of Netty (NIO) with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out(f"machine: {os.cpu_count()} cores, {platform.release()}; {version}; client: {ssl.OPENSSL_VERSION}")
    out(f"JVM: {' '.join(JVM)}; for bytes also -XX:TieredStopAtLevel=1")
    out(f"load before: {' '.join(map(str, os.getloadavg()))}")
    out("bytes: live objects after a collection, plus resident memory outside the heap, trimmed. jdk, dormouse: SslHandler with")
    out("an SSLEngine of that provider; tcnative: BoringSSL with Netty's own engine")
    out()
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(folder)
        found = {}
        for _ in range(chosen.runs):
            for tls in chosen.only:
                result = measure_bytes(tls, chosen.classpath, files, chosen.connections)
                result |= measure_cpu(tls, chosen.classpath, files)
                found.setdefault(tls, []).append(result)
                print(f"{tls}: {result['bytes']:.0f} bytes", file=sys.stderr, flush=True)
    out(f"{'':10}{'bytes':>18}{'of them objects':>18}{'outside the heap':>18}{'handshake and echo, us CPU':>28}{'echo, us CPU':>14}{'one stream, MiB/s':>20}{'ms CPU per MiB':>16}")
    for tls in chosen.only:
        of = lambda name: [one[name] for one in found[tls]]  # noqa: B023, E731
        out(
            f"{tls:10}{interval(of('bytes')):>18}{interval(of('heap')):>18}{interval(of('outside')):>18}"
            f"{interval(of('connect_us')):>28}{interval(of('echo_us')):>14}{interval(of('mib_s')):>20}{interval(of('bulk_cpu_ms'), 1):>16}"
        )
    out()
    if {"plain", "dormouse"} <= set(chosen.only):
        pairs = list(zip(found["dormouse"], found["plain"]))
        objects = [ours["heap"] - plain["heap"] for ours, plain in pairs]
        added = statistics.median(objects) + STATE
        out(f"dormouse adds {interval(objects)} bytes of objects, and {STATE} outside the heap, in chunks of 64 KiB that")
        out(f"earlier connections have filled in part: {added:,.0f}; goal {GOAL}: {'reached' if added <= GOAL else 'NOT REACHED'}")
        out()
    for tls in chosen.only:
        out(f"Objects of each connection, {tls} (last run):")
        show_histogram(out, found[tls][-1]["histogram"], chosen.connections)
    out(f"load after: {' '.join(map(str, os.getloadavg()))}")
    if not chosen.dry:
        path = RESULTS / f"java-{datetime.date.today()}.txt"
        path.write_text("\n".join(lines) + "\n")
        print(f"written: {path}")


main()
