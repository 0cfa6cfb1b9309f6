"""Measures the echo server in `server.rs` with each kind of TLS, several times, in turn: bytes of quiet connections.
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

# Maximum bytes that Dormouse may add to plaintext.
GOAL = 256


def main():
    chosen = side_by_side.arguments(3, ["tokio"]).parse_args()
    side_by_side.limit_connections(chosen)
    out = side_by_side.Report("rust", chosen.dry)
    out(f"Echo server over tokio with {chosen.connections} quiet connections, one echo each; {chosen.runs} runs in turn")
    out.machine(subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip())
    out("bytes: proportional set size. own: tokio-rustls")
    out()
    found = side_by_side.measure_in_turn(out, os.environ["SERVER"], ["plain", "own", "dormouse"], chosen, GOAL)
    out.load("after")
    out.write()
    out.keep("Rust", "bytes", {"tokio": found})


main()
