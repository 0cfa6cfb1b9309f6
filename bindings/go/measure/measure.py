"""Measures the echo server in `server.go` with each kind of TLS, several times, in turn: bytes of quiet connections.
`../../cpu.py` measures CPU time.

    measure.py [--connections 4900] [--runs 3] [--dry]
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
import side_by_side  # noqa: E402


def main():
    chosen = side_by_side.arguments(3, ["net"]).parse_args()
    side_by_side.limit_connections(chosen)
    out = side_by_side.Report("go", chosen.dry)
    out(f"Echo server over net with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out.machine(subprocess.run(["go", "version"], capture_output=True, text=True).stdout.strip())
    out("bytes: proportional set size. own: crypto/tls. waiting: Dormouse with a buffer of the program only for what has arrived")
    out()
    found = side_by_side.measure_in_turn(out, os.environ["SERVER"], ["plain", "own", "dormouse", "waiting"], chosen)
    out.load("after")
    out.write()
    out.keep("Go", "bytes", {"net": found})


main()
