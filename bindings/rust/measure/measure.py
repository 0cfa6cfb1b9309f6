"""Measures the echo server in `server.rs` with each kind of TLS, several times, in turn: bytes of quiet connections.
`../../cpu.py` measures CPU time.

    measure.py [--connections 4900] [--runs 3] [--dry]
"""

import os
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

# Maximum bytes that Dormouse may add to plaintext.
GOAL = 256
TLS = ["plain", "own", "dormouse"]
WARM_UP = 200


def measure(tls, files, connections):
    """Bytes for each connection."""
    process = subprocess.Popen([os.environ["SERVER"], tls, *files], stdout=subprocess.PIPE, text=True)
    server = side_by_side.Server(process, None if tls == "plain" else files[0])
    try:
        for _ in range(WARM_UP):
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


def main():
    chosen = side_by_side.arguments(3, ["tokio"]).parse_args()
    side_by_side.limit_connections(chosen)
    out = side_by_side.Report("rust", chosen.dry)
    out(f"Echo server over tokio with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out.machine(subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip())
    out("bytes: proportional set size. own: tokio-rustls")
    out()
    with tempfile.TemporaryDirectory() as folder:
        files = side_by_side.certificate(folder)
        found = {tls: [] for tls in TLS}
        for _ in range(chosen.runs):
            for tls in TLS:
                found[tls].append(measure(tls, files, chosen.connections))
                print(f"{tls}: {found[tls][-1]['bytes']:.0f} bytes", file=sys.stderr, flush=True)
    for tls in TLS:
        out(f"{tls:10}{interval([one['bytes'] for one in found[tls]]):>22}")
    for tls in TLS[1:]:
        added = [ours["bytes"] - plain["bytes"] for ours, plain in zip(found[tls], found["plain"])]
        reached = ""
        if tls == "dormouse":
            reached = f"; goal {GOAL}: {'reached' if statistics.median(added) <= GOAL else 'NOT REACHED'}"
        out(f"{tls} adds {interval(added)}{reached}")
    out.load("after")
    out.write()
    out.keep("Rust", "bytes", {"tokio": found})


main()
