"""What an operator orders while all connections are open: how long each order takes, and how late the longest echo on established
connections is meanwhile. For `lab/rest/million --rest --hand`. Standard library only."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench
import servers

PROBER = servers.LAB / "measuring/prober.py"

# Connections that echo all the time, over all workers.
PROBES = 8

QUIET_S = 2
# How long connections are watched while a new timeout, or a drain, ends them.
ENDING_S = 15


def put_first(pids):
    """Lets these processes run before all processes of the usual policy: others of the machine would be measured, too."""
    for pid in pids:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(int(pid), os.SCHED_RR, os.sched_param(2))


def prefer(pids):
    """Gives these processes, and their sessions, the highest priority of the usual policy."""
    for pid in pids:
        with contextlib.suppress(PermissionError, ProcessLookupError, FileNotFoundError):
            os.setpriority(os.PRIO_PROCESS, int(pid), -20)
            Path(f"/proc/{pid}/autogroup").write_text("-20")


class Hand:
    """`network`: with `inside(*command)`; `tree()`: the gateway's processes."""

    def __init__(self, network, tree, file, admin, port):
        self.network, self.tree, self.file, self.admin = network, tree, file, admin
        self.text = file.read_text()
        # A timeout that most connections have passed, and the time of a drain. Their ends are spread over it.
        self.short = "1m" if self.live() < 100_000 else "10m"
        prefer([os.getpid()])
        self.put_workers_first()
        words = network.inside(sys.executable, PROBER, port, PROBES)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.prober = subprocess.Popen(words, text=True, start_new_session=True, **pipes)
        put_first([self.prober.pid])
        self.echoes()

    def close(self):
        self.prober.kill()
        self.prober.wait()

    def echoes(self):
        print(file=self.prober.stdin, flush=True)
        line = self.prober.stdout.readline()
        if not line:
            raise servers.Failed("the prober has ended")
        return json.loads(line)

    def workers(self):
        for pid in self.tree():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("worker-"):
                    yield int(pid)

    def put_workers_first(self):
        prefer(self.tree())
        keepers = {servers.parent(pid) for pid in self.workers()}
        put_first([*keepers, *self.workers()])

    def run(self, *words):
        """Runs a command of the gateway. Returns the last line of what it says."""
        command = [bench.DORMOUSE, *words, "--admin", self.admin]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise servers.Failed(f"{words}: {done.stderr}")
        lines = done.stdout.splitlines()
        return {"lines": len(lines), "said": lines[-1][:200]} if lines else {}

    def ask(self, path):
        command = ["curl", "-sS", "--unix-socket", self.admin, f"http://localhost{path}"]
        return {"bytes": len(subprocess.check_output(list(map(str, command))))}

    def live(self):
        said = subprocess.check_output([bench.DORMOUSE, "status", "--json", "--admin", str(self.admin)])
        return json.loads(said)["counts"]["connections"]

    def reload(self, top="", route=""):
        self.file.write_text(f"{top}\n{self.text}\n{route}\n")
        return self.run("reload")

    def kill(self):
        victim = next(self.workers())
        before = self.live()
        os.kill(victim, signal.SIGKILL)
        time.sleep(3)
        self.put_workers_first()
        return {"lost": before - self.live()}

    def upgrade(self):
        said = self.run("upgrade")
        self.put_workers_first()
        return said

    def ending(self, order):
        """Gives an order that ends connections, and counts how many end in each second."""
        said = order()
        counts = [self.live()]
        for _ in range(ENDING_S):
            time.sleep(1)
            counts.append(self.live())
        ended = [before - after for before, after in zip(counts, counts[1:])]
        return {**said, "ended_per_s": ended}

    def steps(self):
        yield "reload, nothing changed", self.reload
        yield "reload, a certificate's route renamed", lambda: self.reload(route='name = "renamed"')
        yield "reload, limits of the route", lambda: self.reload(
            route="route_memory_share = 90\nroute_max_connections = 2_000_000\nroute_handshakes_per_second = 100_000")
        yield "reload that brings an idle timeout", lambda: self.reload("idle_timeout = '12h'\ntimeout_jitter = 10")
        yield "reload that removes it", self.reload
        yield "reload, recheck, other networks", lambda: self.reload("recheck = 'established'", "deny = ['192.0.2.0/24']")
        yield "the recheck after it", lambda: time.sleep(5) or {}
        yield "connections --count", lambda: self.run("connections", "--count")
        yield "connections --by age", lambda: self.run("connections", "--by", "age")
        yield "connections --by route", lambda: self.run("connections", "--by", "route")
        yield "connections --by backend", lambda: self.run("connections", "--by", "backend")
        yield "close --dry-run, three properties", lambda: self.run(
            "close", "--dry-run", "--older", "1s", "--idle", "1s", "--client", "127.64.0.0/16")
        yield "connections --json", lambda: self.run("connections", "--json")
        yield "/metrics", lambda: self.ask("/metrics")
        yield "/status, what the page reads", lambda: self.ask("/status")
        yield "kill -9 of a worker", self.kill
        yield "upgrade", self.upgrade
        yield "reload that lowers total_timeout", lambda: self.ending(lambda: self.reload(f"total_timeout = '{self.short}'"))
        yield "reload that removes it again", self.reload
        yield "drain", lambda: self.ending(lambda: self.run("drain", "--over", self.short, "--no-wait"))
        yield "drain, shortest first", lambda: self.ending(
            lambda: self.run("drain", "--over", self.short, "--order", "shortest", "--no-wait"))
        yield "drain --stop", lambda: self.run("drain", "--stop")

    def measure(self, name, step):
        self.echoes()
        time.sleep(QUIET_S)
        quiet = self.echoes()
        begun = time.monotonic()
        more = step()
        seconds = time.monotonic() - begun
        time.sleep(0.5)
        line = {"hand": name, "seconds": round(seconds, 3), **more, "echo": self.echoes(), "quiet": quiet}
        line |= {"connections": self.live(), "load": os.getloadavg()[0]}
        print(json.dumps(line), flush=True)
        return line


def run(network, tree, file, admin, port):
    """Returns the lines of the result. The gateway has fewer connections afterwards."""
    hand = Hand(network, tree, file, admin, port)
    try:
        return [hand.measure(name, step) for name, step in hand.steps()]
    finally:
        hand.close()
