"""Measures the CPU time of echo servers in each runtime: plaintext, its own TLS, Dormouse.

    cpu.py [RUNTIME…] [--rounds 9] [--dry]

RUNTIME: java, node, python, rust. All servers of one kind run at once and are asked in turn, in short rounds, so that
whatever else the machine does meanwhile meets all of them. `compare` calls this after it has measured memory.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import side_by_side
from side_by_side import BLOCK, echo

HERE = Path(__file__).resolve().parent
BUILT = HERE / "target"
PYTHON = {
    "asyncio, Protocol": "protocol",
    "asyncio, streams": "streams",
    "uvloop, Protocol": "uvloop",
    "uvloop, streams": "uvloop-streams",
    "Twisted": "twisted",
}
TLS = ["plain", "own", "dormouse"]

# Before the first round: most of what a JIT compiler does is done then.
WARM_ECHOES = 20_000
WARM_BLOCKS = 256
# Of each server in each round.
CONNECTIONS = 100
QUIET_ECHOES = 5
BUSY_ECHOES = 1_000
BULK_MIB = 8
COLUMNS = [
    ("handshake and echo, us", "connect_us", 0),
    ("quiet echo, us", "echo_us", 1),
    ("busy echo, us", "busy_us", 1),
    ("one stream, MiB/s", "mib_s", 0),
    ("ms per MiB", "bulk_cpu_ms", 2),
]


def java():
    """Servers, and for each kind of TLS the command that starts them; a certificate and a key follow."""
    built = BUILT / "java"
    if not (built / "classpath").exists():
        return {}
    classpath = f"{built / 'classes'}:{built / 'test-classes'}:{(built / 'classpath').read_text()}"
    start = ["java", "-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-cp", classpath]
    netty = ["plain", "dormouse", "engine", "tcnative", "jdk"]
    return {
        "Netty": {tls: [*start, "dormouse.measure.EchoServer", tls] for tls in netty},
        "plain NIO": {tls: [*start, "dormouse.measure.NioEchoServer", tls] for tls in ("plain", "dormouse", "jdk")},
    }


def node():
    server = HERE / "node" / "measure" / "server.js"
    if not (HERE / "node" / "native").exists():
        return {}
    kinds = {"echo": "echo", "http.Server": "http"}
    return {name: {tls: ["node", str(server), kind, tls] for tls in TLS} for name, kind in kinds.items()}


def python():
    interpreter = BUILT / "venv" / "bin" / "python"
    server = HERE / "python" / "measure" / "server.py"
    if not interpreter.exists():
        return {}
    return {
        name: {tls: [str(interpreter), str(server), framework, tls] for tls in TLS}
        for name, framework in PYTHON.items()
    }


def go():
    server = BUILT / "go" / "measure"
    if not server.exists():
        return {}
    return {"net": {tls: [str(server), tls] for tls in TLS}}


def rust():
    server = BUILT / "rust" / "release" / "echo-server"
    if not server.exists():
        return {}
    return {"tokio": {tls: [str(server), tls] for tls in TLS}}


RUNTIMES = {
    "go": ("Go", go),
    "java": ("Java", java),
    "node": ("Node.js", node),
    "python": ("Python", python),
    "rust": ("Rust", rust),
}


def request(sock):
    """A small request of HTTP, whose answer is one packet."""
    sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    if not sock.recv(4096):
        raise ConnectionError("the server closed the connection")


class Server(side_by_side.Server):
    def __init__(self, command, files, is_http):
        process = subprocess.Popen(
            [*command, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        super().__init__(process, None if "plain" in command else files[0])
        self.is_http = is_http
        self.talk = request if is_http else echo

    def cpu(self):
        """Seconds of CPU time, to the nanosecond: the process's clock (clock_getcpuclockid(3))."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def warm_up(self):
        with self.connect() as sock:
            for _ in range(WARM_ECHOES):
                self.talk(sock)
            for _ in range(0 if self.is_http else WARM_BLOCKS):
                echo(sock, BLOCK)

    def round(self):
        """CPU time for a handshake with an echo, for an echo on a quiet connection, for one directly after another on
        the same connection, and for one busy stream."""
        times = [self.cpu()]
        socks = []
        for _ in range(CONNECTIONS):
            socks.append(self.connect())
            self.talk(socks[-1])
        times.append(self.cpu())
        for _ in range(QUIET_ECHOES):
            for sock in socks:
                self.talk(sock)
        times.append(self.cpu())
        for _ in range(BUSY_ECHOES):
            self.talk(socks[0])
        times.append(self.cpu())
        connect, quiet, busy = (after - before for before, after in zip(times, times[1:]))
        found = {
            "connect_us": connect * 1e6 / CONNECTIONS,
            "echo_us": quiet * 1e6 / QUIET_ECHOES / CONNECTIONS,
            "busy_us": busy * 1e6 / BUSY_ECHOES,
        }
        if not self.is_http:
            found |= self.bulk(socks[0])
        for sock in socks:
            sock.close()
        return found

    def bulk(self, sock):
        cpu, begun = self.cpu(), time.monotonic()
        for _ in range(BULK_MIB * (1 << 20) // len(BLOCK)):
            echo(sock, BLOCK)
        seconds = time.monotonic() - begun
        return {"mib_s": BULK_MIB / seconds, "bulk_cpu_ms": (self.cpu() - cpu) * 1000 / BULK_MIB}


def await_quiet(servers):
    """Waits until no JIT compiler has work left."""
    for _ in range(30):
        before = [server.cpu() for server in servers]
        time.sleep(1)
        if all(server.cpu() - then <= 0.02 for server, then in zip(servers, before)):
            return


def in_turn(commands, files, is_http, rounds):
    """For each kind of TLS the figures of all rounds."""
    servers = {}
    try:
        for tls, command in commands.items():
            servers[tls] = Server(command, files, is_http)
        for server in servers.values():
            server.warm_up()
            server.round()
        await_quiet(servers.values())
        found = {tls: [] for tls in servers}
        for _ in range(rounds):
            for tls, server in servers.items():
                found[tls].append(server.round())
        return found
    finally:
        for server in servers.values():
            server.stop()


def show(out, name, found):
    for tls, rounds in found.items():
        cells = []
        for _, figure, digits in COLUMNS:
            values = sorted(one[figure] for one in rounds if figure in one)
            if values:
                low, high = values[len(values) // 4], values[-1 - len(values) // 4]
                cells.append(f"{statistics.median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})")
            else:
                cells.append("")
        out(f"{name:19}{tls:10}" + "".join(f"{cell:>26}" for cell in cells))
    out()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runtimes", nargs="*", choices=[*RUNTIMES, []], metavar="RUNTIME")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dry", action="store_true", help="write no results")
    chosen = parser.parse_args()
    out = side_by_side.Report("runtimes-cpu", chosen.dry)
    out(f"CPU time of servers that echo 100 bytes: medians of {chosen.rounds} rounds, in which all kinds of TLS are asked in turn, and quartiles")
    out.machine(f"Python {sys.version.split()[0]}")
    out("own: the runtime's own TLS. Netty: engine and jdk are SslHandlers with an SSLEngine of Dormouse or of the JDK")
    out()
    out(" " * 29 + "".join(f"{title:>26}" for title, _, _ in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        files = side_by_side.certificate(folder)
        for runtime in chosen.runtimes or RUNTIMES:
            title, servers = RUNTIMES[runtime]
            found = {}
            for name, commands in servers().items():
                found[name] = in_turn(commands, files, name == "http.Server", chosen.rounds)
                show(out, name, found[name])
            if found:
                out.keep(title, "cpu", found)
    out.load("after")
    out.write()


main()
