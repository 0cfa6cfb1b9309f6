"""Runs `dormouse audit` on a running server, and reads its JSON. Standard library only."""

import json
import os
import subprocess

import bench
import servers


class Audit:
    """One audit's JSON, and the machine's load at its end."""

    def __init__(self, text):
        self.json, self.load = json.loads(text), os.getloadavg()[0]
        self.memory = ((self.json["server"] or {}).get("memory") or {}).get("measured") or {}

    def bytes_in_use(self):
        """Bytes in use per idle connection; None: not counted."""
        return self.measured("used_bytes")

    def freed(self):
        """The part of the bytes in use that closing frees; None: not known."""
        used, kept = self.bytes_in_use(), self.measured("kept_bytes")
        return None if None in (used, kept) else used - kept

    def process_bytes(self):
        """Memory of the process that each connection has for itself; None: it has none."""
        each = [phase["serving"] for phase in self.memory.get("phases", [])
                if phase["connections"] >= 10 and phase["serving"]["processes"] >= 0.9 * phase["connections"]]
        return max((of["pss_bytes"] / of["processes"] for of in each), default=None)

    def growth(self):
        """Growth of resident memory per idle connection, at the latest point that was measured."""
        points = map(self.measured, ("after_quiet_bytes", "after_exchange_bytes", "after_handshake_bytes"))
        return next((bytes for bytes in points if bytes is not None), None)

    def measured(self, name):
        return (self.memory.get(name) or {}).get("measured")

    def findings(self, *severities):
        return [found["id"] for found in self.json["findings"] if found["severity"] in severities]


def number(value):
    return "–" if value is None else f"{value:,.0f}"


def run(server, options, file, log=None):
    """Audits a `servers.Server`."""
    file.unlink(missing_ok=True)
    words = ["audit", "server", f"127.0.0.1:{server.port}", "--pid", str(server.pid), "--ca", str(servers.CA), "--sni", "localhost"]
    words += ["--json", str(file), "--fail-on", "never", *options]
    ended = subprocess.run([str(bench.DORMOUSE), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                           timeout=900).returncode
    if not file.exists():
        raise servers.Failed(f"the audit ended with {ended} and wrote nothing")
    return Audit(file.read_text())
