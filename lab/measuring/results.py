"""A result of lab/comparison/compare: a directory with its measurements. Standard library only."""

import json
import os
from pathlib import Path

# Enough to draw a line.
SAMPLES_MAX = 40
PROCESSES_MAX = 8


def thin(run):
    """The run without parts that no table and no chart needs."""
    step = -(-len(run["samples"]) // SAMPLES_MAX) or 1
    run["samples"] = run["samples"][::step]
    run["server"] = run["server"][:PROCESSES_MAX]
    return rounded(run)


def rounded(value):
    """Six digits: nothing here was measured more exactly."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


class Result:
    """runs.json (a list which `dormouse bench report` reads, one run per line) and summary.json in a directory."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.summary = {"machine": {}, "scale": 1.0, "peers": {}}
        self.runs = {}
        if (self.directory / "summary.json").exists():
            self.summary = json.loads((self.directory / "summary.json").read_text())
            runs = json.loads((self.directory / "runs.json").read_text())
            self.runs = {tuple(run["lab"][part] for part in ("peer", "variant", "mode")): run for run in runs}

    def begin(self, machine, scale):
        self.directory.mkdir(parents=True, exist_ok=True)
        # Later measurements are from the same machine, and their runs have their own dates.
        self.summary["machine"] = self.summary["machine"] or machine
        self.summary["scale"] = scale

    def has_peer(self, name, kind, version):
        self.summary["peers"][name] = {"version": version, "kind": kind}

    def put(self, name, variant, mode, run):
        run["lab"] = {"peer": name, "variant": variant, "mode": mode}
        self.runs[name, variant, mode] = thin(run)
        self.write()

    def write(self):
        lines = [json.dumps(self.runs[key], separators=(",", ":")) for key in sorted(self.runs)]
        replace(self.directory / "runs.json", "[\n" + ",\n".join(lines) + "\n]\n")
        replace(self.directory / "summary.json", json.dumps(self.summary, indent=1, sort_keys=True) + "\n")


def replace(path, text):
    """An interrupted run must not leave half a file."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)
