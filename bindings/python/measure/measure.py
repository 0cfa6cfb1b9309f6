"""Measures the servers of `server.py`, each several times, in turn: bytes of quiet connections. `../../cpu.py`
measures CPU time.

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
    """Bytes for each connection."""
    server = Server(framework, tls, files)
    try:
        for _ in range(WARM_UP):
            with server.connect() as sock:
                echo(sock)
        before = server.resident()
        socks = server.connect_and_echo(connections)
        after = server.resident()
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    return {"bytes": (after - before) / connections}


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
        out(f"{'':20}{'':10}{'bytes':>22}")
        for framework in chosen.only:
            for tls in TLS:
                out(f"{NAMES[framework]:20}{tls:10}{interval([one['bytes'] for one in found[framework, tls]]):>22}")
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
    out.keep("Python", "bytes", servers)


main()
