"""Connections of which all ends rest: what they cost the machine, and whether each still echoes. For `lab/rest/million --rest`.
Standard library only."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import bench
import hand
import servers

RESTING = Path(os.environ.get("RESTING", bench.DORMOUSE.parent / "resting"))
# All ports are below those of the clients. `--hand` probes a route that echoes by itself.
GATEWAY, BACKEND_PORT, PROBED_PORT = "127.0.0.1:1443", 1080, 1444

# Ports outside of the kernel's range with one address of a backend, with some left over.
PORTS_PER_BACKEND = 24_000

# Connections opened or echoed between two lines of the result.
STEP = 50_000


class Cgroup:
    """A memory group, of version 2 or 1, inside the one of this script."""

    def __init__(self, limit_bytes):
        self.unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        root = Path("/sys/fs/cgroup") if self.unified else Path("/sys/fs/cgroup/memory")
        self.path = root / f"dormouse-lab-{os.getpid()}"
        self.limit_bytes = limit_bytes

    def __enter__(self):
        self.path.mkdir()
        if not self.unified:
            # Without a limit, version 1 does not count the memory of sockets.
            self.write("memory.kmem.tcp.limit_in_bytes", 1 << 40)
        if self.limit_bytes:
            self.write("memory.max" if self.unified else "memory.limit_in_bytes", self.limit_bytes)
        return self

    def write(self, name, value):
        (self.path / name).write_text(str(value))

    def read(self, name):
        return int((self.path / name).read_text())

    def used_bytes(self):
        """Processes, kernel objects, page tables, BPF maps and socket buffers. File pages are dropped first."""
        if self.unified:
            return self.read("memory.current")
        return self.read("memory.usage_in_bytes") + self.read("memory.kmem.tcp.usage_in_bytes")

    def oom_kills(self):
        text = (self.path / ("memory.events" if self.unified else "memory.oom_control")).read_text()
        return int(re.search(r"^oom_kill (\d+)", text, re.M).group(1))

    def __exit__(self, *_):
        for _ in range(100):
            with contextlib.suppress(OSError):
                return self.path.rmdir()
            time.sleep(0.1)


class Network:
    """A network of this machine's own, with only the loopback interface."""

    def __enter__(self):
        self.name = f"dormouse-lab-{os.getpid()}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        subprocess.run(["ip", "-n", self.name, "link", "set", "lo", "up"], check=True)
        return self

    def inside(self, *command):
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def tcp(self):
        """The counters of its TCP, and the number of its sockets."""
        read = lambda name: subprocess.check_output(self.inside("cat", f"/proc/net/{name}"), text=True)
        names, values = [line.split()[1:] for line in read("snmp").splitlines() if line.startswith("Tcp:")]
        counts = dict(zip(names, map(int, values), strict=True))
        counts["sockets"] = int(re.search(r"^TCP: inuse (\d+)", read("sockstat"), re.M).group(1))
        return counts

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.name], check=False)


def configuration(directory, count, asked):
    tls = servers.LAB / ".cache/tls"
    backends = [f"127.0.1.{host}:{BACKEND_PORT}" for host in range(1, 2 + count // PORTS_PER_BACKEND)]
    certificates = f'[{{ cert = "{tls}/cert.pem", key = "{tls}/key.pem" }}]'
    probed = f"""
[[route]]
name = "probed"
listen = "127.0.0.1:{PROBED_PORT}"
to = "echo:"
certificates = {certificates}
"""
    text = f"""
max_connections = {count + count // 50 + 100}
max_awake = {asked.max_awake}
admin = "{directory}/admin.sock"
tickets = 0
{asked.more or ""}
{probed if asked.hand else ""}
[[route]]
listen = "{GATEWAY}"
to = {json.dumps(backends)}
certificates = {certificates}
groups = ["x25519"]
rest_after = "{asked.rest_after}"
"""
    path = Path(directory) / "dormouse.toml"
    path.write_text(text)
    return path


class Part:
    """A process in the network. It ends with the block."""

    def __init__(self, command, **more):
        self.command, self.more = command, more

    def __enter__(self):
        self.process = subprocess.Popen([*map(str, self.command)], start_new_session=True, text=True, **self.more)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def tree(pid):
    return subprocess.check_output(["pgrep", "--session", str(pid)], text=True).split()


def cpu_s(pid):
    """CPU time of all processes of a session by kind: the worker's, tcp-repair's, and others'."""
    sums = {}
    for one in tree(pid):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{one}/comm").read_text().strip()
            kind = "tcp-repair" if "tcp-repair" in name else "workers" if "worker" in name else "others"
            sums[kind] = sums.get(kind, 0) + servers.running_s(one)
    return sums


def pss_bytes(pid):
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            total += 1024 * int(re.search(r"^Pss: +(\d+)", rollup, re.M).group(1))
    return total


def maps_bytes(pid):
    """BPF maps: the table of packets and the ring, which are allocated at the start."""
    total, seen = 0, set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            fields = dict(re.findall(r"^(\w+):\s*(\S+)", info.read_text(), re.M))
            if "map_id" in fields and fields["map_id"] not in seen:
                seen.add(fields["map_id"])
                total += int(fields["memlock"])
    return total


class Run:
    def __init__(self, total, network, group, gateway, clients, directory):
        self.total = total
        self.network, self.group = network, group
        self.gateway, self.clients, self.admin = gateway.process, clients.process, f"{directory}/admin.sock"
        self.before_bytes, self.before_pss = self.used_bytes(), pss_bytes(self.gateway.pid)

    def used_bytes(self):
        subprocess.run(["sync"], check=True)
        return self.group.used_bytes()

    def order(self, words):
        print(words, file=self.clients.stdin, flush=True)
        answer = self.clients.stdout.readline()
        if not answer:
            raise servers.Failed(f"the clients have ended at `{words}`")
        return json.loads(answer)

    def counts(self):
        said = subprocess.check_output([bench.DORMOUSE, "status", "--json", "--admin", self.admin], text=True)
        return json.loads(said)["counts"]

    def wait_for_rest(self):
        """Until the gateway has no socket but its listeners, or nothing changes any more."""
        last, still = None, 0
        while still < 10:
            sockets = self.network.tcp()["sockets"]
            still = still + 1 if sockets == last else 0
            if sockets < 20:
                break
            last = sockets
            time.sleep(1)

    def phase(self, words):
        cpu, counts, tcp = cpu_s(self.gateway.pid), self.counts(), self.network.tcp()
        answer = self.order(words)
        self.wait_for_rest()
        then, now, after = cpu_s(self.gateway.pid), self.counts(), self.network.tcp()
        count = answer["open"]
        line = {
            **answer,
            "order": words,
            "sockets_left": after["sockets"],
            "rests": now["rests"] - counts["rests"],
            "wakes": now["wakes"] - counts["wakes"],
            "cpu_s": {kind: round(then[kind] - cpu.get(kind, 0), 2) for kind in then},
            "resets_sent": after["OutRsts"] - tcp["OutRsts"],
            "retransmitted": after["RetransSegs"] - tcp["RetransSegs"],
            # Since the start, and what is allocated at the start.
            "machine_bytes_each": round((self.used_bytes() - self.before_bytes) / count),
            "maps_bytes_each": round(maps_bytes(self.gateway.pid) / self.total),
            "pss_bytes_each": round((pss_bytes(self.gateway.pid) - self.before_pss) / count),
            "gateway_mib": self.group.used_bytes() >> 20,
            "oom_kills": self.group.oom_kills(),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(line), flush=True)
        return line


def run(count, asked):
    """Returns the lines of the result."""
    if not RESTING.exists():
        raise servers.Failed(f"{RESTING} is not there: cargo build --profile {RESTING.parent.name} -p dormouse-lab-resting")
    lines = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="dormouse-lab-"))
        os.chmod(directory, 0o755)
        network = stack.enter_context(Network())
        group = stack.enter_context(Cgroup(asked.cgroup_mib << 20))
        file = configuration(directory, count, asked)
        backend = stack.enter_context(Part(network.inside(RESTING, "backend", f"0.0.0.0:{BACKEND_PORT}", count + count // 50 + 100)))
        enter = f"echo $$ > {group.path}/cgroup.procs && exec \"$@\""
        served = ["sh", "-c", enter, "sh", *network.inside(bench.DORMOUSE, "serve", "-c", file)]
        log = stack.enter_context(open(Path(directory) / "log", "w+"))
        gateway = stack.enter_context(Part(served, stderr=log))
        wait_for_ready(log, gateway)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        clients = stack.enter_context(Part(network.inside(RESTING, "clients", GATEWAY, count), **pipes))
        try:
            work = Run(count, network, group, gateway, clients, directory)
            end = time.monotonic() + 60 * asked.minutes
            opened = 0
            while opened < count and time.monotonic() < end:
                more = min(STEP, count - opened)
                lines.append(work.phase(f"open {more}"))
                opened += more
            if asked.hand:
                # They must answer the gateway's keepalive probes meanwhile.
                hand.prefer([backend.process.pid, clients.process.pid])
                processes = lambda: tree(gateway.process.pid)
                lines += hand.run(network, processes, file, f"{directory}/admin.sock", PROBED_PORT)
                return lines
            lines.append(work.phase(f"echo {opened}"))
            if asked.pace_s:
                # One of a hundred connections per minute.
                lines.append(work.phase(f"pace {opened / 6000:.1f} {asked.pace_s}"))
        finally:
            log.seek(0)
            warnings = [line for line in log.read().splitlines() if " INFO " not in line]
            print("\n".join(warnings[-20:]), flush=True)
    return lines


def wait_for_ready(log, gateway):
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and gateway.process.poll() is None:
        log.seek(0)
        if "ready" in log.read():
            return
        time.sleep(0.2)
    log.seek(0)
    raise servers.Failed(f"the gateway is not ready:\n{log.read()[-3000:]}")
