"""Calling `dormouse bench`, and reading what it writes. Standard library only."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

import servers

DORMOUSE = Path(os.environ.get("DORMOUSE", servers.LAB.parent / "target/release/dormouse"))

CONNECTIONS = 9500
STORM = ["--connections", "20000", "--concurrency", "500"]

# What is asked of every server. Everything else is the instrument's default.
MODES = {
    "hold": ["hold", "--connections", str(CONNECTIONS)],
    "churn": ["churn", *STORM, "--rounds", "5"],
    "resumed": ["churn", *STORM, "--rounds", "2", "--resume"],
    "bulk": ["bulk", "--streams", "8", "--bytes", "256MB"],
    "wake": ["wake", "--connections", str(CONNECTIONS)],
}

# The instrument's names of the figures which the lab's tables show.
PER_CONNECTION = "memory.per_connection.pss"
LEFT_AFTER_CLOSE = "memory.left_after_close"
PER_ROUND = "memory.growth_per_round"
CPU_PER_HANDSHAKE = "cpu.per_handshake"
CPU_PER_GB = "cpu.per_gb"
WAKE = "wake.p50"


class Run:
    """One JSON object of the instrument."""

    def __init__(self, path):
        self.path = Path(path)
        self.json = json.loads(self.path.read_text())
        self.figures = {figure["name"]: figure["value"] for figure in self.json["figures"]}

    def value(self, name):
        return self.figures.get(name)


def run(asked, server, kind, out, more=()):
    """Asks `asked` (one of MODES) of a server which runs already. The instrument's own output goes to the terminal."""
    words = [*asked]
    words[1:1] = [f"127.0.0.1:{server.port}"]
    words += ["--pid", str(server.pid), "--ca", str(servers.CA), "--json", str(out)]
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
