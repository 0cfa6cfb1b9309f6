"""Runs `dormouse bench`, and reads its results. Standard library only."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

import servers

DORMOUSE = Path(os.environ.get("DORMOUSE", servers.LAB.parent / "target/release-lto/dormouse"))

# The load on every server in a comparison, small enough that all servers together take less than an
# hour. All other options have their defaults.
OTHERS = "1-"  # the cores of load and backend, if the server has core 0 for itself
QUICK = ["--settle", "300ms", "--after", "0s"]  # for runs that do not measure memory
MODES = {
    "hold": ["hold", "--connections", "9500"],
    "churn": ["churn", "--connections", "4000", "--concurrency", "500", "--rounds", "5"],
    # Each of the concurrent clients begins with a full handshake, so there are few clients.
    "resumed": ["churn", "--connections", "2000", "--concurrency", "50", "--rounds", "2", "--resume", *QUICK],
    "bulk": ["bulk", "--streams", "8", "--bytes", "32000000"],
    "wake": ["wake", "--connections", "2000", "--for", "5s", "--settle", "300ms"],
}
AMOUNTS = ("--connections", "--bytes")


def asked(mode, scale=1.0):
    """The arguments of a mode, with its amounts multiplied."""
    words = list(MODES[mode])
    for before, word in enumerate(words[1:]):
        if words[before] in AMOUNTS:
            words[before + 1] = str(max(100, round(int(word) * scale)))
    return words


# The instrument's names of the figures in the lab's tables.
PER_CONNECTION = "memory.per_connection.pss"  # hold: bytes
LEFT_AFTER_CLOSE = "memory.left"  # hold: % of the connections' memory; churn: bytes above the start
CPU_PER_HANDSHAKE = "cpu.server.per_handshake"  # churn: microseconds
CPU_PER_GB = "cpu.server.per_gb"  # bulk: seconds per GB echoed
RATE = "bytes.rate"  # bulk: MB/s each way
PER_SECOND = "handshakes.per_second"  # churn
RESUMED = "handshakes.resumed"  # churn: %
CPU_PER_WAKE = "cpu.server.per_message_after_rest"  # wake: microseconds
ADDED_BY_REST = "wake.price.p50"  # wake: microseconds of the median latency, against connections kept busy
# Figures in other places of its JSON.
PER_ROUND = "growth.slope"  # churn: bytes, from the second round on
PER_ROUND_UNSURE = "growth.unsure"  # churn: its uncertainty
WAKE = "latencies.after rest.p50"  # wake: microseconds
WAKE_P99 = "latencies.after rest.p99"  # wake: microseconds
HANDSHAKE_P99 = "latencies.handshake.p99"  # churn: microseconds


class Run:
    """One JSON object of the instrument."""

    def __init__(self, json):
        self.json = json
        self.figures = {figure["name"]: figure["value"] for figure in self.json["figures"]}
        growth = self.json["growth"] or {}
        slope = growth.get("slope") or {}
        self.figures[PER_ROUND] = slope.get("per_unit")
        self.figures[PER_ROUND_UNSURE] = slope.get("plus_minus")
        self.figures[WAKE] = self.latency_us("after rest", "p50_us")
        self.figures[WAKE_P99] = self.latency_us("after rest", "p99_us")
        self.figures[HANDSHAKE_P99] = self.latency_us("handshake", "p99_us")

    def latency_us(self, what, percentile):
        return self.json["latencies"].get(what, {}).get(percentile)

    def value(self, name):
        return self.figures.get(name)


def run(asked, server, kind, out, more=(), table=None):
    """Measures a running server by `asked` (one of MODES). The instrument's output goes to the terminal, and its table
    also to the file `table`, if there is one."""
    words = [asked[0], f"127.0.0.1:{server.port}", *asked[1:], "--pid", str(server.pid), "--json", str(out)]
    words += ["--plain"] if kind == "plain" else ["--ca", str(servers.CA)]
    if kind == "http":
        words += ["--http", "/"]
    # On a busy machine a server may be slow, which is not a failure.
    words += ["--timeout", "60s"]
    if not DORMOUSE.exists():
        raise servers.Failed(f"{DORMOUSE} is not there: make release-lto")
    Path(out).unlink(missing_ok=True)  # An old result must not be taken for the new one.
    command = [*servers.pinned(server.cores and OTHERS), str(DORMOUSE), "bench", *words, *map(str, more)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if table else None, text=True
    )
    if table:
        print(result.stdout, end="", flush=True)
        Path(table).write_text(result.stdout)
    if not Path(out).exists():
        raise servers.Failed(f"dormouse bench {' '.join(words)} ended with {result.returncode} and wrote nothing")
    return Run(json.loads(Path(out).read_text()))


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    """The commit that is measured, and "-dirty" if its files were changed. The results of earlier runs do not count."""
    git = lambda *words: subprocess.run(["git", *words], cwd=servers.LAB, capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!results")
    return git("describe", "--always") + ("-dirty" if changed else "")


def machine():
    """The facts that a reader needs to interpret a figure later."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        # A run of `lab/all` has one date, even past midnight.
        "date": os.environ.get("LAB_DATE") or datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "processor": processor(),
        "memory_gib": round(memory_bytes / 2**30),
        "kernel": platform.release().split("-")[0],
        "commit": commit(),
    }
