"""Calling `dormouse bench`, and reading what it writes. Standard library only."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

import servers

DORMOUSE = Path(os.environ.get("DORMOUSE", servers.LAB.parent / "target/release/dormouse"))

# What is asked of every server. Everything else is the instrument's default.
MODES = {
    "hold": ["hold", "--connections", "9500"],
    "churn": ["churn", "--connections", "20000", "--concurrency", "500", "--rounds", "5"],
    # Each of the concurrent clients begins with a full handshake: few of them.
    "resumed": ["churn", "--connections", "10000", "--concurrency", "50", "--rounds", "2", "--resume"],
    "bulk": ["bulk", "--streams", "8", "--bytes", "256M"],
    "wake": ["wake", "--connections", "9500"],
}

# The instrument's names of the figures which the lab's tables show.
PER_CONNECTION = "memory.per_connection.pss"  # hold: bytes
LEFT_AFTER_CLOSE = "memory.left"  # hold: % of what the connections took; churn: bytes over what it was before
CPU_PER_HANDSHAKE = "cpu.server.per_handshake"  # churn: microseconds
CPU_PER_GB = "cpu.server.per_gb"  # bulk: seconds per GB echoed
# And two which lie elsewhere in its JSON.
PER_ROUND = "growth.slope"  # churn: bytes, from the second round on
WAKE = "latencies.after rest.p50"  # wake: microseconds


class Run:
    """One JSON object of the instrument."""

    def __init__(self, path):
        self.path = Path(path)
        self.json = json.loads(self.path.read_text())
        self.figures = {figure["name"]: figure["value"] for figure in self.json["figures"]}
        slope = (self.json["growth"] or {}).get("slope") or {}
        self.figures[PER_ROUND] = slope.get("per_unit")
        self.figures[WAKE] = self.json["latencies"].get("after rest", {}).get("p50_us")

    def value(self, name):
        return self.figures.get(name)


def run(asked, server, kind, out, more=()):
    """Asks `asked` (one of MODES) of a server which runs already. The instrument's own output goes to the terminal."""
    words = [asked[0], f"127.0.0.1:{server.port}", *asked[1:], "--pid", str(server.pid), "--json", str(out)]
    words += ["--plain"] if kind == "plain" else ["--ca", str(servers.CA)]
    if kind == "http":
        words += ["--http", "/"]
    if not DORMOUSE.exists():
        raise servers.Failed(f"{DORMOUSE} is not there: make release")
    result = subprocess.run([str(DORMOUSE), "bench", *words, *map(str, more)], stdin=subprocess.DEVNULL)
    if not Path(out).exists():
        raise servers.Failed(f"dormouse bench {' '.join(words)} ended with {result.returncode} and wrote nothing")
    return Run(out)


def machine():
    """What a figure needs beside it to be read later."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=servers.LAB, capture_output=True, text=True
    )
    return {
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30),
        "kernel": platform.release().split("-")[0],
        "commit": commit.stdout.strip(),
    }
