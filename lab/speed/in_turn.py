"""Measures servers against each other in one run: side by side, in turn, in many short rounds. Other load on the machine
affects all of them alike. Standard library only."""

import random
import statistics
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import bench
import servers

# With resumption, each client begins with a full handshake, so there are few clients.
CONNECTIONS, CLIENTS = 1000, 20
CHURN = [
    "churn", "--connections", str(CONNECTIONS), "--concurrency", str(CLIENTS), "--rounds", "1", *bench.QUICK,
]  # fmt: skip
# Full handshakes that wait for each other, and one after the other.
STORM = ["churn", "--connections", str(CONNECTIONS), "--concurrency", "64", "--rounds", "1", *bench.QUICK]
CLIENT_CERTIFICATE = ["--cert", f"{servers.TLS}/client-cert.pem", "--key", f"{servers.TLS}/client-key.pem"]
ALONE = ["churn", "--connections", str(CONNECTIONS), "--concurrency", "1", "--rounds", "1", *bench.QUICK]
BULK = ["bulk", "--streams", "8", "--bytes", "32M"]
STREAM = ["bulk", "--streams", "1", "--bytes", "128M"]
# One worker that has a core for itself, and established connections that are quiet otherwise.
WAKE = ["wake", "--busy", "0", "-k", "500", "--for", "4s", "--settle", "500ms", "--rate", "1500", "--connections"]
# Small messages, each on another of some thousand connections, with one suite.
WAKES = ["wake", "-k", "1000", "--settle", "300ms", "--connections", "3000", "--suite"]
# Clients at a time, until the handshake's 99th percentile is above the limit.
CLIENTS_AT_A_TIME, HANDSHAKE_P99_MAX_US = (10, 25, 50, 100, 200, 400, 800), 100_000
# The load, and the instrument's figure. In `rate`, more is better.
MODES = {
    "full": (CHURN, bench.CPU_PER_HANDSHAKE),
    "storm": (STORM, bench.CPU_PER_HANDSHAKE),
    "storm-tls12": ([*STORM, "--tls", "1.2"], bench.CPU_PER_HANDSHAKE),
    "storm-resumed": ([*STORM, "--resume"], bench.CPU_PER_HANDSHAKE),
    "storm-client-certificate": ([*STORM, *CLIENT_CERTIFICATE], bench.CPU_PER_HANDSHAKE),
    "alone": (ALONE, bench.CPU_PER_HANDSHAKE),
    "resumed": ([*CHURN, "--resume"], bench.CPU_PER_HANDSHAKE),
    "bulk": (BULK, bench.CPU_PER_GB),
    "stream": (STREAM, bench.CPU_PER_GB),
    "rate": (STREAM, bench.RATE),
    "latency-1000": ([*WAKE, "1000"], bench.WAKE_P99),
    "latency-9500": ([*WAKE, "9500"], bench.WAKE_P99),
    "wake": ([*WAKES, "TLS_AES_128_GCM_SHA256", "--busy", "0", "--for", "3s"], bench.CPU_PER_WAKE),
    "wake-aes-256": ([*WAKES, "TLS_AES_256_GCM_SHA384", "--busy", "0", "--for", "3s"], bench.CPU_PER_WAKE),
    "wake-chacha20": ([*WAKES, "TLS_CHACHA20_POLY1305_SHA256", "--busy", "0", "--for", "3s"], bench.CPU_PER_WAKE),
    "wake-latency": ([*WAKES, "TLS_AES_128_GCM_SHA256", "--for", "2s"], bench.ADDED_BY_REST),
}
PER_SECOND = "per-second"
OF_CPU_TIME = [mode for mode, (_, figure) in MODES.items() if figure in (bench.CPU_PER_HANDSHAKE, bench.CPU_PER_GB)]
WITH_FLOOR = ["full", "bulk", "stream", "rate", "latency-1000", "latency-9500", "wake", "wake-latency"]
WITH_CRYPTOGRAPHY = ["full", "bulk", "stream"]
UNITS = {
    "full": "µs", "storm": "µs", "storm-tls12": "µs", "storm-resumed": "µs", "storm-client-certificate": "µs", "alone": "µs",
    "resumed": "µs", "bulk": "s per GB", "stream": "s per GB", "rate": "MB/s",
    "latency-1000": "µs", "latency-9500": "µs", PER_SECOND: "1/s",
    "wake": "µs", "wake-aes-256": "µs", "wake-chacha20": "µs", "wake-latency": "µs",
}  # fmt: skip
RESAMPLES = 2000
FLOOR = servers.LAB / ".cache/floor"
FLOOR_HANDSHAKES, FLOOR_BYTES = 500, 256_000_000


@dataclass
class Costs:
    """Cost of one server, round by round, in the instrument's unit."""

    rounds: list = field(default_factory=list)
    user_s: float = 0.0
    kernel_s: float = 0.0

    def add(self, cost, before, after):
        self.rounds.append(cost)
        self.user_s += after[0] - before[0]
        self.kernel_s += after[1] - before[1]

    def median(self):
        return statistics.median(self.rounds)

    def __add__(self, other):
        rounds = [one + more for one, more in zip(self.rounds, other.rounds, strict=True)]
        # A share of the medians: the parts were not measured over the same number of events.
        median = statistics.median(rounds)
        kernel = (self.kernel_share() * self.median() + other.kernel_share() * other.median()) / median
        return Costs(rounds, 1 - kernel, kernel)

    def kernel_share(self):
        """The share over all rounds: clock ticks are too coarse for one round."""
        return self.kernel_s / ((self.user_s + self.kernel_s) or 1)


@dataclass
class Member:
    """A participant of the rounds: `ask` runs the load once and returns its cost."""

    name: str
    server: servers.Server
    ask: callable

    def asked(self):
        before = self.server.cpu_s()
        cost = self.ask()
        return cost, before, self.server.cpu_s()


def member(name, server, mode, directory, kind="proxy"):
    """A server under the load of `dormouse bench`."""
    asked, figure = MODES[mode]
    out = Path(directory) / "in-turn.json"
    if kind == "plain" and "--suite" in asked:
        at = asked.index("--suite")
        asked = asked[:at] + asked[at + 2 :]

    def ask():
        return bench.run(asked, server, kind, out, table=out.with_suffix(".txt")).value(figure)

    return Member(name, server, ask)


def resumes(server, directory):
    """Whether a server resumes sessions."""
    load = ["churn", "--connections", "40", "--concurrency", "4", "--rounds", "1", "--resume", *bench.QUICK]
    out = Path(directory) / "in-turn.json"
    return bench.run(load, server, "proxy", out, table=out.with_suffix(".txt")).value(bench.RESUMED) > 50


def accepting(name, server, directory):
    """A server, and the connections that it accepts per second before the 99th percentile of their handshakes exceeds
    the limit: the highest rate among those with more and more clients at a time."""
    out = Path(directory) / "in-turn.json"

    def ask():
        best = 0.0
        for clients in CLIENTS_AT_A_TIME:
            load = ["churn", "--connections", str(4 * clients + 800), "--concurrency", str(clients), "--rounds", "1"]
            run = bench.run([*load, *bench.QUICK], server, "proxy", out, table=out.with_suffix(".txt"))
            if run.value(bench.HANDSHAKE_P99) > HANDSHAKE_P99_MAX_US:
                break
            best = max(best, run.value(bench.PER_SECOND))
        if not best:
            raise servers.Failed(f"{name}: handshakes of {CLIENTS_AT_A_TIME[0]} clients take more than 100 ms")
        return best

    return Member(name, server, ask)


def floor_of_handshakes(name, server):
    """The proxy without TLS, with its own client (`lab/speed/floor`)."""

    def ask():
        before = server.running_s()
        subprocess.run([FLOOR / "client", str(server.port), str(CONNECTIONS), str(CLIENTS)], check=True)
        return (server.running_s() - before) / CONNECTIONS * 1e6

    return Member(name, server, ask)


class cryptography:
    """The floor's cryptography in a process of its own: all of it is user time."""

    def __init__(self, mode):
        what, count = ("bytes", FLOOR_BYTES) if mode in ("bulk", "stream") else ("handshakes", FLOOR_HANDSHAKES)
        self.command = [FLOOR / "crypto", what, str(count)]
        self.factor = 1e9 / count if what == "bytes" else 1e6 / count
        self.spent_s = 0.0

    def cpu_s(self):
        return self.spent_s, 0.0

    def ask(self):
        result = subprocess.run(self.command, check=True, capture_output=True, text=True)
        self.spent_s += float(result.stdout)
        return float(result.stdout) * self.factor


def floor_of_cryptography(name, mode):
    work = cryptography(mode)
    return Member(name, work, work.ask)


def costs(members, rounds, what=""):
    """The cost of each member, round by round. All output of the instrument goes to standard error."""
    seen = {member.name: Costs() for member in members}
    with redirect_stdout(sys.stderr):
        # The first round warms up all members and is not counted.
        for turn in range(rounds + 1):
            for member in members if turn % 2 else reversed(members):
                print(f"\n== {what}, round {turn} of {rounds}: {member.name}", flush=True)
                measured = member.asked()
                if turn > 0:
                    seen[member.name].add(*measured)
    return seen


def ratio(mine, theirs):
    """The median of the ratios within each round, and its 95 % confidence interval (bootstrap)."""
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES * 25 // 1000], medians[RESAMPLES * 975 // 1000]

