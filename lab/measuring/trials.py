"""Trials before and after a change: memory held, growth, CPU time, sessions resumed, compression. Each function
starts the server and returns figures. Also the file that keeps them. Standard library only."""

import json
import os
import platform
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import bench
import servers

RESULTS = servers.LAB / "results"
OFFERED = 16  # sessions, one after the other
# In place of glibc's malloc: it returns free memory at once.
JEMALLOC = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0"


def started(peer, variant, port, with_=""):
    """A server's command; `with_` are variables of its environment."""
    return f"{'export ' + with_ + '; ' if with_ else ''}exec {servers.LAB}/audits/system {peer} {variant} {port}"


def measured(mode, peer, variant, words, with_=""):
    """One run of `dormouse bench`, which starts the server and its backend."""
    port = servers.free_port()
    return run(mode, peer, port, ["--cmd", started(peer, variant, port, with_), *words])


def run(mode, peer, port, words):
    kind, _ = servers.peers()[peer]
    words = ["bench", mode, f"127.0.0.1:{port}", *words, "--ca", str(servers.CA), "--sni", "localhost", "--quiet", "--json", "-"]
    # On a busy machine a server may be slow, which is not a failure.
    words += ["--timeout", "60s"] + (["--http", "/"] if kind == "http" else [])
    result = subprocess.run([str(bench.DORMOUSE), *words], stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise servers.Failed(f"{peer}: bench {mode} ended with {result.returncode}")
    return bench.Run(json.loads(result.stdout))


def hold(peer, variant, connections, with_=""):
    # A few at a time: on a busy processor, handshakes would exceed the servers' own timeouts.
    ran = measured("hold", peer, variant, ["-n", str(connections), "-c", "16"], with_)
    return {
        "connections": connections,
        "bytes": round(ran.figures[bench.PER_CONNECTION]),
        "left_percent": round(ran.figures[bench.LEFT_AFTER_CLOSE]),
    }


def churn(peer, variant, version, connections, rounds, lanes=500, with_=""):
    words = ["-n", str(connections), "-c", str(lanes), "--rounds", str(rounds), "--tls", version]
    ran = measured("churn", peer, variant, words, with_)
    return {
        "connections": connections,
        "tls": version,
        "slope": ran.figures[bench.PER_ROUND],
        "unsure": ran.figures[bench.PER_ROUND_UNSURE],
        "after": [round(bytes_) for _, bytes_ in ran.json["growth"]["rounds"]],
    }


def spent(peer, variant, connections, key="ecdsa", resume=False):
    """CPU time of a handshake, of the server without its backend."""
    words = ["-n", str(connections), "-c", "16", "--rounds", "1", *bench.QUICK, *["--resume"] * resume]
    with servers.backend() as backend, servers.peer(peer, variant, backend.port, key) as server:
        ran = run("churn", peer, server.port, [*words, "--pid", str(server.pid)])
    return round(ran.figures[bench.CPU_PER_HANDSHAKE])


def spent_by_key(peer, key, connections=1500):
    """The same with resumed sessions."""
    figures = {"key": key, "us": spent(peer, "default", connections, key)}
    return figures if key == "rsa" else {**figures, "resumed_us": spent(peer, "default", connections, key, True)}


COMPRESSING = 200  # connections, as the case had


def compressed(peer, variant):
    """Memory of a connection, and how many are compressed of those that offer it, with Debian 13's OpenSSL."""
    kind, _ = servers.peers()[peer]
    trixie = servers.LAB / "tools/trixie"
    client = [trixie, sys.executable, servers.LAB / "callers/compressing.py"]
    with servers.backend() as backend, servers.peer(peer, variant, backend.port, with_=trixie) as server:
        words = [*client, str(server.port), str(COMPRESSING), kind]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            said(holder, "warm")
            before = server.pss_bytes()
            holder.stdin.write("\n")
            holder.stdin.flush()
            count = int(said(holder))
            time.sleep(0.3)
            bytes_ = round((server.pss_bytes() - before) / COMPRESSING)
            holder.stdin.close()
    return {"connections": COMPRESSING, "compressed": count, "bytes": bytes_}


def trixies_library():
    """Its OpenSSL, by name: `OpenSSL 3.5.7`."""
    words = [servers.LAB / "tools/trixie", sys.executable, "-c", "import ssl; print(ssl.OPENSSL_VERSION)"]
    return " ".join(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[:2])


def said(holder, word=None):
    """The next line of a client that was started."""
    line = holder.stdout.readline().strip()
    if not line or (word and line != word):
        raise servers.Failed(f"the client ended with {holder.wait()} and said {line!r}")
    return line


def session(port, kind, version, offered, tickets):
    """Makes one connection and reads an answer. Returns whether it was resumed, and its new session."""
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
    """Offers sessions to the server that issued them, or to another one with the same configuration."""
    kind, _ = servers.peers()[peer]
    count = 0
    with servers.backend() as backend, servers.peer(peer, variant, backend.port) as one:
        with servers.peer(peer, variant, backend.port) if shared else one_again(one) as other:
            for _ in range(OFFERED):
                _, given = session(one.port, kind, version, None, tickets)
                count += session(other.port, kind, version, given, tickets)[0]
    return {"offered": OFFERED, "resumed": count, "tls": version}


class one_again:
    """A server that the caller stops."""

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
    figures = {name: seen[name] for name in ("requests", "connections", "resumed")}
    return {**figures, "cpu_ms": round(seen["cpu_ms"]["measured"])}


class Kept:
    """lab/results/NAME-DATE.json, one entry per trial, written after each trial, so that a later failure loses
    nothing."""

    def __init__(self, name, missing, names):
        machine = bench.machine()
        self.path = RESULTS / f"{name}-{machine['date']}.json"
        self.result = {"machine": {"kernel": platform.release(), "cores": os.cpu_count(), **machine}, "trials": {}}
        # Today's entries stay until they are measured again.
        old = json.loads(self.path.read_text())["trials"] if self.path.exists() else {}
        self.result["trials"] = {name: old[name] for name in names if name in old}
        self.trials, self.failed, self.names = self.result["trials"], [], list(names)
        of_this_run = {name for name, trial in self.trials.items() if trial.get("at", 0) >= servers.since()}
        self.done = of_this_run if missing else set()

    def attempt(self, name, entry, work):
        """`work` returns the figures, which are kept beside `entry` with the load at the start."""
        if name in self.done:
            return
        if servers.time_is_over():
            self.failed.append(f"{name}: no time left")
            return
        load, at = round(os.getloadavg()[0], 1), round(time.time())
        try:
            figures = work()
        except (servers.Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.failed.append(f"{name}: {error}")
            print(f"FAILED {name}: {error}", flush=True)
            return
        self.trials[name] = {**entry, **figures, "load": load, "at": at, "took_s": round(time.time() - at, 1)}
        self.trials = self.result["trials"] = {name: self.trials[name] for name in self.names if name in self.trials}
        text = json.dumps({"machine": self.result["machine"]})[:-1] + ', "trials": {\n'
        text += ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in self.trials.items())
        replace(self.path, text + "\n}}\n")

    def about(self):
        """The first lines of the text file beside the JSON."""
        machine, loads = self.result["machine"], [trial["load"] for trial in self.trials.values()] or [0]
        return (
            f"{machine['date']}, Linux {machine['kernel']}, {machine['cores']} cores; the load average at the start of"
            f" each was {min(loads):.1f} to {max(loads):.1f}."
        )

    def write_text(self, lines):
        text = "\n".join([self.about(), *lines]) + "\n"
        if self.trials:
            replace(self.path.with_suffix(".txt"), text)
        print("\n" + text + "".join(f"FAILED {name}\n" for name in self.failed))
        return 1 if self.failed else 0


def replace(path, text):
    """An interrupted run must not leave half a file."""
    new = Path(f"{path}.new")
    new.write_text(text)
    os.replace(new, path)


def newest(name):
    """The latest result of every trial, and its file: an unfinished run leaves the earlier results."""
    found, paths = {}, {}
    for path in sorted(RESULTS.glob(f"{name}-*.json")):
        trials = json.loads(path.read_text())["trials"]
        found |= trials
        paths |= dict.fromkeys(trials, path.name)
    return found, paths


def growth(trial):
    """`13.0 ± 0.4 MB`."""
    unsure = "" if trial["unsure"] is None else f" ± {trial['unsure'] / 1e6:.1f}"
    return f"{trial['slope'] / 1e6:.1f}{unsure} MB".replace("-", "−")
