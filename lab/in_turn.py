"""Compares servers in one run: side by side, in turn, in many short rounds. Other load on the
machine affects all of them. Standard library only."""

import random
import statistics
import sys
from contextlib import redirect_stdout
from pathlib import Path

import bench

# With resumption, each client begins with a full handshake, so there are few clients.
CHURN = ["churn", "--connections", "1000", "--concurrency", "20", "--rounds", "1", *bench.QUICK]
BULK = ["bulk", "--streams", "8", "--bytes", "32M"]
# The load, and the instrument's figure.
MODES = {
    "full": (CHURN, bench.CPU_PER_HANDSHAKE),
    "resumed": ([*CHURN, "--resume"], bench.CPU_PER_HANDSHAKE),
    "bulk": (BULK, bench.CPU_PER_GB),
}
RESAMPLES = 2000


def costs(running, mode, rounds, directory):
    """CPU time of each (name, server), round by round: [name][round], in the instrument's unit. All output of the
    instrument goes to standard error."""
    asked, figure = MODES[mode]
    out = Path(directory) / "in-turn.json"
    seen = {name: [] for name, _ in running}
    with redirect_stdout(sys.stderr):
        # The first round warms everything up and is not counted.
        for turn in range(rounds + 1):
            for name, server in running if turn % 2 else reversed(running):
                print(f"\n== {mode}, round {turn} of {rounds}: {name}", flush=True)
                run = bench.run(asked, server, "proxy", out, table=out.with_suffix(".txt"))
                seen[name].append(run.value(figure))
    return {name: values[1:] for name, values in seen.items()}


def ratio(mine, theirs):
    """The median of the ratios within each round, and its 95 % confidence interval (bootstrap)."""
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES * 25 // 1000], medians[RESAMPLES * 975 // 1000]
