"""Measures the servers of `server.py`, each several times, in turn: bytes and CPU of quiet connections.

    measure.py [--connections 4900] [--runs 3] [--only FRAMEWORK…] [--objects 20000000] [--dry]
"""

import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
import side_by_side  # noqa: E402
from side_by_side import echo, interval  # noqa: E402

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
BULK_MIB = 64


class Server(side_by_side.Server):
    def __init__(self, framework, tls, files):
        command = [sys.executable, str(HERE / "server.py"), framework, tls, *files]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        super().__init__(process, None if tls == "plain" else files[0])

    def resident(self):
        """Return the bytes of the server's own memory, after a collection."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return self.pss()


def measure(framework, tls, files, connections):
    """Bytes for each connection; microseconds of CPU for a handshake and an echo; MiB/s and CPU of one stream."""
    server = Server(framework, tls, files)
    try:
        for _ in range(WARM_UP):
            with server.connect() as sock:
                echo(sock)
        before, cpu_before = server.resident(), server.cpu()
        socks = server.connect_and_echo(connections)
        cpu_connected = server.cpu()
        after = server.resident()
        echo_us = server.echo_cpu(socks)
        busy_us = server.busy_echo_cpu(socks[0])
        bulk = server.bulk(socks[0], BULK_MIB)
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    return {
        "bytes": (after - before) / connections,
        "connect_us": (cpu_connected - cpu_before) * 1e6 / connections,
        "echo_us": echo_us,
        "busy_us": busy_us,
        **bulk,
    }


def many_objects(count, files, out):
    """Time connections in a process that holds many objects."""
    command = [sys.executable, str(HERE / "many_objects.py"), str(count), *files]
    out(subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip())


def main():
    arguments = side_by_side.arguments(3, FRAMEWORKS)
    arguments.add_argument("--objects", type=int, default=20_000_000)
    chosen = arguments.parse_args()
    side_by_side.limit_connections(chosen)
    out = side_by_side.Report("python", chosen.dry)
    out(f"Echo servers in Python with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out.machine(f"Python {platform.python_version()}")
    out("bytes: proportional set size, after a collection. own: ssl (asyncio, uvloop), pyOpenSSL with buffers released (Twisted)")
    out()
    with tempfile.TemporaryDirectory() as folder:
        files = side_by_side.certificate(folder)
        found = {}
        for _ in range(chosen.runs):
            for framework in chosen.only:
                for tls in TLS:
                    result = measure(framework, tls, files, chosen.connections)
                    found.setdefault((framework, tls), []).append(result)
                    print(f"{framework}, {tls}: {result['bytes']:.0f} bytes", file=sys.stderr, flush=True)
        out(f"{'':20}{'':10}{'bytes':>22}{'handshake and echo, us CPU':>30}{'quiet echo, us':>18}{'busy echo, us':>18}{'one stream, MiB/s':>20}{'ms CPU per MiB':>18}")
        for framework in chosen.only:
            for tls in TLS:
                of = lambda name: [one[name] for one in found[framework, tls]]  # noqa: B023, E731
                out(
                    f"{NAMES[framework]:20}{tls:10}{interval(of('bytes')):>22}{interval(of('connect_us')):>30}"
                    f"{interval(of('echo_us')):>18}{interval(of('busy_us')):>18}{interval(of('mib_s')):>20}{interval(of('bulk_cpu_ms'), 1):>18}"
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
    out.load("after")
    out.write()
    servers = {NAMES[framework]: {tls: found[framework, tls] for tls in TLS} for framework in chosen.only}
    out.keep("Python", servers)


main()
