"""Starts and stops the lab's servers. Standard library only."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
TLS = LAB / ".cache/tls"
CA = TLS / "ca.pem"
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10


class Failed(Exception):
    """A failure in the lab: what failed, and the server's last output."""


def peers():
    """Every peer: name -> (kind, [variants])."""
    found = {}
    for run in sorted(LAB.glob("peers/*/run")):
        text = run.read_text()
        kind = re.search(r"^# kind: (\w+)", text, re.M).group(1)
        found[run.parent.name] = (kind, re.findall(r"^# variant ([a-z-]+):", text, re.M))
    return found


def version(name):
    result = subprocess.run([LAB / "version", name], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def installed(peer, done=set()):
    """Installs a missing peer (or `callers`, or `trixie`), once."""
    if peer in done:
        return
    done.add(peer)
    if peer == "callers":
        subprocess.run([LAB / "callers/install"], check=True, stdout=sys.stderr)
    elif peer == "trixie":
        subprocess.run([LAB / "tools/trixie"], check=True, stdout=sys.stderr)
    elif version(peer) is None:
        subprocess.run([LAB / "install", peer], check=True, stdout=sys.stderr)


def free_port():
    """A port below the ephemeral range, so that no outgoing connection takes it meanwhile."""
    # In random order: two lab scripts at a time would take the same port.
    for port in random.sample(range(20000, 32000), 12000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise Failed("no free port between 20000 and 32000")


def since():
    """Start of the continued run of `lab/all`, in seconds since 1970: older results are missing ones."""
    return float(os.environ.get("LAB_SINCE", 0))


def time_is_over():
    """Whether the time is up and nothing new may start: LAB_UNTIL, in seconds since 1970."""
    return time.time() > float(os.environ.get("LAB_UNTIL", "inf"))


def runs(pid):
    """Whether the process exists and is not a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def parent(pid):
    """The process that has started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def clock_ticks(pid):
    """User and system time of a process in seconds, as far as clock ticks tell."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]


def running_s(pid):
    """CPU time of a process's threads in seconds, exactly."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def pinned(cores):
    """The command prefix that pins a program to these cores; none for `None`."""
    if cores is None:
        return []
    last = os.cpu_count() - 1
    return ["taskset", "-c", f"{cores}{last}" if cores.endswith("-") else cores]


class Server:
    """A server in the foreground in a process group of its own; its port (or the path of its unix socket) accepts
    connections when the block begins. `cores`: the only ones that it runs on."""

    def __init__(self, command, port, environment=None, cores=None):
        self.command, self.port = [*pinned(cores), *map(str, command)], port
        self.cores = cores
        self.environment = environment or {}

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        # Removed with the server. Servers that drop privileges must be able to reach it too.
        self.directory = tempfile.TemporaryDirectory(prefix="dormouse-lab-", ignore_cleanup_errors=True)
        os.chmod(self.directory.name, 0o755)
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env=os.environ | {"TMPDIR": self.directory.name} | self.environment,
        )
        self.pid = self.process.pid
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        give_up = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise Failed(f"{self.command} ended with {self.process.returncode}:\n{self.last_words()}")
            with contextlib.suppress(OSError), self.connect():
                return
            time.sleep(0.1)
        raise Failed(f"{self.command} does not listen after {START_TIMEOUT_S} s:\n{self.last_words()}")

    def connect(self):
        if isinstance(self.port, int):
            return socket.create_connection(("127.0.0.1", self.port), 1)
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(self.port))
            stack.pop_all()
            return connection

    def last_words(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def tree(self):
        """The process and all its descendants."""
        children = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rsplit(")", 1)[1].split()
                children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        tree = [self.pid]
        for pid in tree:
            tree += children.get(pid, [])
        return tree

    def pss_bytes(self):
        total = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += 1024 * int(re.search(r"^Pss: +(\d+)", rollup, re.M).group(1))
        return total

    def cpu_s(self):
        """User and system time of the tree, by clock ticks."""
        return tuple(sum(part) for part in zip(*(clock_ticks(pid) for pid in self.tree()), strict=True))

    def running_s(self):
        """CPU time of the tree."""
        return sum(running_s(pid) for pid in self.tree())

    def __exit__(self, *_):
        tree = self.tree()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
        for pid in tree:
            # Processes that did not exit by themselves: only those that are still in this server's
            # session.
            with contextlib.suppress(OSError):
                if runs(pid) and os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        give_up = time.monotonic() + STOP_TIMEOUT_S
        while any(runs(pid) for pid in tree) and time.monotonic() < give_up:
            time.sleep(0.05)
        self.log.close()
        self.directory.cleanup()


def backend(cores=None):
    port = free_port()
    return Server([LAB / "tools/echo", port], port, cores=cores)


def unix_backend(path):
    """The same backend on a unix socket; `path` is free."""
    return Server([LAB / "tools/echo", f"unix:{path}"], path)


def peer(name, variant, backend, key_type="ecdsa", with_="", cores=None):
    """Starts a peer. `with_` is put before the server's program: `lab/tools/trixie`."""
    port = free_port()
    environment = {"LAB_KEY_TYPE": key_type, "LAB_WITH": str(with_)}
    return Server([LAB / "peer", name, variant, port, backend], port, environment, cores)
