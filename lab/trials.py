"""What is tried before and after a change: memory held, growth, sessions resumed. Each function starts the server
anew and returns figures. And the file they are kept in. Standard library only."""

import json
import os
import platform
import socket
import ssl
import subprocess
from pathlib import Path

import bench
import servers

RESULTS = servers.LAB / "results"
OFFERED = 16  # sessions, one after the other
# In place of glibc's malloc: it gives back what is free at once.
JEMALLOC = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0"


def started(peer, variant, port, with_=""):
    """A server's command; `with_` are variables of its environment."""
    return f"{'export ' + with_ + '; ' if with_ else ''}exec {servers.LAB}/system {peer} {variant} {port}"


def measured(mode, peer, variant, words, with_=""):
    """One run of `dormouse bench`."""
    port = servers.free_port()
    kind, _ = servers.peers()[peer]
    words = ["bench", mode, f"127.0.0.1:{port}", "--cmd", started(peer, variant, port, with_), *words]
    words += ["--ca", str(servers.CA), "--sni", "localhost", "--quiet", "--json", "-"]
    # On a busy machine a server may take long, and that is no failure.
    words += ["--timeout", "60s"] + (["--http", "/"] if kind == "http" else [])
    result = subprocess.run([str(bench.DORMOUSE), *words], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise servers.Failed(f"{peer} {variant}: the bench ended with {result.returncode}")
    return bench.Run(json.loads(result.stdout))


def hold(peer, variant, connections, with_=""):
    # A few at a time: where the processor is busy, handshakes would run into the servers' own limits of time.
    run = measured("hold", peer, variant, ["-n", str(connections), "-c", "16"], with_)
    return {
        "connections": connections,
        "bytes": round(run.figures[bench.PER_CONNECTION]),
        "left_percent": round(run.figures[bench.LEFT_AFTER_CLOSE]),
    }


def churn(peer, variant, version, connections, rounds, lanes=500, with_=""):
    words = ["-n", str(connections), "-c", str(lanes), "--rounds", str(rounds), "--tls", version]
    run = measured("churn", peer, variant, words, with_)
    return {
        "connections": connections,
        "tls": version,
        "slope": run.figures[bench.PER_ROUND],
        "unsure": run.figures[bench.PER_ROUND_UNSURE],
        "after": [round(bytes_) for _, bytes_ in run.json["growth"]["rounds"]],
    }


def session(port, kind, version, offered, tickets):
    """One connection, and an answer on it: whether it was resumed, and the session it was given."""
    context, old = offered or (ssl.create_default_context(cafile=servers.CA), None)
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, f"TLSv{version.replace('.', '_')}")
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
    with socket.create_connection(("127.0.0.1", port), 20) as plain:
        with context.wrap_socket(plain, server_hostname="localhost", session=old) as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" if kind == "http" else b"hello\n")
            tls.recv(4096)
            return tls.session_reused, (context, tls.session)


def resumed(peer, variant, version="1.3", tickets=True, shared=False):
    """Sessions offered to the server that gave them, or to another one of the same configuration."""
    kind, _ = servers.peers()[peer]
    count = 0
    with servers.backend() as backend, servers.peer(peer, variant, backend.port) as one:
        with servers.peer(peer, variant, backend.port) if shared else one_again(one) as other:
            for _ in range(OFFERED):
                _, given = session(one.port, kind, version, None, tickets)
                count += session(other.port, kind, version, given, tickets)[0]
    return {"offered": OFFERED, "resumed": count, "tls": version}


class one_again:
    """A server that somebody else stops."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        return self.server

    def __exit__(self, *_):
        pass


def client(command):
    words = ["audit", "client", "--json", "-", "--fail-on", "never", "--quiet", "--", *map(str, command)]
    result = subprocess.run([str(bench.DORMOUSE), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise servers.Failed(f"{command}: the audit ended with {result.returncode}")
    seen = json.loads(result.stdout)["client"]
    return {name: seen[name] for name in ("requests", "connections", "resumed")}


class Kept:
    """lab/results/NAME-DATE.json, one entry per trial, written after each: what was measured is not lost with what
    comes after it."""

    def __init__(self, name, missing):
        machine = bench.machine()
        self.path = RESULTS / f"{name}-{machine['date']}.json"
        self.result = {"machine": {"kernel": platform.release(), "cores": os.cpu_count(), **machine}, "trials": {}}
        # What is there of today stays until it is measured again.
        if self.path.exists():
            self.result["trials"] = json.loads(self.path.read_text())["trials"]
        self.trials, self.failed = self.result["trials"], []
        self.done = set(self.trials) if missing else set()

    def attempt(self, name, entry, work):
        """`work` gives the figures, which are kept beside `entry` with the load at the start."""
        if name in self.done:
            return
        if servers.time_is_over():
            self.failed.append(f"{name}: no time left")
            return
        load = round(os.getloadavg()[0], 1)
        try:
            figures = work()
        except (servers.Failed, OSError, subprocess.SubprocessError) as error:
            self.failed.append(name)
            print(f"FAILED {name}: {error}", flush=True)
            return
        self.trials[name] = {**entry, **figures, "load": load}
        text = json.dumps({"machine": self.result["machine"]})[:-1] + ', "trials": {\n'
        text += ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in self.trials.items())
        replace(self.path, text + "\n}}\n")

    def about(self):
        """The first lines of the text beside it."""
        machine, loads = self.result["machine"], [trial["load"] for trial in self.trials.values()] or [0]
        return (
            f"{machine['date']}, Linux {machine['kernel']}, {machine['cores']} cores; the load average at the start of"
            f" each was {min(loads):.1f} to {max(loads):.1f}."
        )

    def write_text(self, lines):
        text = "\n".join([self.about(), *lines]) + "\n"
        replace(self.path.with_suffix(".txt"), text)
        print("\n" + text + "".join(f"FAILED {name}\n" for name in self.failed))
        return 1 if self.failed else 0


def replace(path, text):
    """An interrupted run must not leave half a file."""
    new = Path(f"{path}.new")
    new.write_text(text)
    os.replace(new, path)


def newest(name):
    """The trials of the latest result, and where they are from."""
    paths = sorted(RESULTS.glob(f"{name}-*.json"))
    if not paths:
        return {}, None
    return json.loads(paths[-1].read_text())["trials"], paths[-1].name


def growth(trial):
    """`13.0 ± 0.4 MB`."""
    unsure = "" if trial["unsure"] is None else f" ± {trial['unsure'] / 1e6:.1f}"
    return f"{trial['slope'] / 1e6:.1f}{unsure} MB".replace("-", "−")
