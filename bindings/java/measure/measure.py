"""Measures echo servers of Netty and of plain NIO, each several times, in turn: bytes of quiet connections. `../../cpu.py` measures
CPU time.

    measure.py CLASSPATH [--connections 4900] [--runs 2] [--servers SERVER…] [--only TLS…] [--dump] [--dry]

With `--dump` it counts large arrays instead, in heap dumps before and after the connections.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import heap_dump

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
import side_by_side  # noqa: E402
from side_by_side import echo, interval  # noqa: E402

TLS = ["plain", "dormouse", "engine", "tcnative", "jdk"]
# Servers, their programs, their kinds of TLS, and the bytes that Dormouse may add to plaintext at most.
SERVERS = {
    "Netty": ("dormouse.measure.EchoServer", TLS, 512),
    "plain NIO": ("dormouse.measure.NioEchoServer", ["plain", "dormouse", "jdk"], 768),
}
# The native part of a connection at rest.
STATE = 136
WARM_UP = 2_000
# The buffers that the JDK's engine and others keep for each connection are at least so large.
LARGE_ARRAY = 16_000
# The whole heap is resident from the start: a change of resident memory is then outside of it.
# The second compiler would take and return tens of megabytes meanwhile.
JVM = ["-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1"]


class Server(side_by_side.Server):
    def __init__(self, program, tls, classpath, files, jvm):
        command = ["java", *jvm, "-cp", classpath, program, tls, *files]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        super().__init__(process, None if tls == "plain" else files[0])

    def collect(self):
        self.process.stdin.write("collect\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def memory(self):
        """Bytes of live objects, and resident bytes outside the heap (plus the heap's size, which is constant)."""
        self.await_quiet()
        live = self.collect()
        # Memory that the JIT compiler has freed belongs to no connection.
        self.jcmd("System.trim_native_heap")
        return live, self.pss()

    def jcmd(self, *command):
        command = ["jcmd", str(self.process.pid), *command]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def await_quiet(self):
        """Waits until the JIT compiler has no work left."""
        for _ in range(60):
            before = self.cpu()
            time.sleep(1)
            if self.cpu() - before <= 0.02:
                return

    def cpu(self):
        """Seconds of CPU time."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def histogram(self):
        """Bytes of live objects by their class."""
        found = re.findall(r"^ *\d+: +(\d+) +(\d+) +(\S+)", self.jcmd("GC.class_histogram"), re.M)
        return {name: (int(count), int(size)) for count, size, name in found}

    def large_arrays(self, folder):
        """Lengths of the large arrays in a heap dump of live objects."""
        file = Path(folder) / "heap.hprof"
        self.jcmd("GC.heap_dump", str(file))
        lengths = heap_dump.large_arrays(file, LARGE_ARRAY)
        file.unlink()
        return lengths


def warm_up(server, count):
    for number in range(count):
        with server.connect() as sock:
            echo(sock)
        if number % 200 == 0:
            # Otherwise later connections would reuse the memory of closed ones.
            server.collect()


def measure_bytes(program, tls, classpath, files, connections):
    """Bytes for each connection."""
    server = Server(program, tls, classpath, files, JVM)
    try:
        warm_up(server, WARM_UP)
        histogram_before = server.histogram()
        heap, outside = server.memory()
        socks = server.connect_and_echo(connections)
        heap_after, outside_after = server.memory()
        histogram = difference(server.histogram(), histogram_before)
        for sock in socks:
            sock.close()
    finally:
        server.stop()
    return {
        "heap": (heap_after - heap) / connections,
        "outside": (outside_after - outside) / connections,
        "bytes": (heap_after - heap + outside_after - outside) / connections,
        "histogram": histogram,
    }


def difference(after, before):
    """What there is more of."""
    found = {}
    for name, (count, size) in after.items():
        count_before, size_before = before.get(name, (0, 0))
        found[name] = (count - count_before, size - size_before)
    return found


def show_histogram(out, histogram, connections):
    """Objects per connection."""
    shown = [(size, count, name) for name, (count, size) in histogram.items() if count >= 0.9 * connections]
    for size, count, name in sorted(shown, reverse=True)[:24]:
        out(f"    {size / connections:8.0f} bytes  {count / connections:6.1f}  {name}")


def main():
    arguments = side_by_side.arguments(2, TLS)
    arguments.add_argument("classpath")
    arguments.add_argument("--servers", nargs="*", default=list(SERVERS), choices=SERVERS, metavar="SERVER")
    arguments.add_argument("--dump", action="store_true", help="count large arrays in heap dumps")
    chosen = arguments.parse_args()
    side_by_side.limit_connections(chosen)
    selected = [name.lower().replace(" ", "-") for name in chosen.servers if chosen.servers != list(SERVERS)]
    out = side_by_side.Report("java-heap" if chosen.dump else "-".join(["java", *selected]), chosen.dry)
    out(f"Echo servers with {chosen.connections} quiet connections, one echo each; {1 if chosen.dump else chosen.runs} runs in turn")
    version = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[1]
    out.machine(version)
    out("Netty: dormouse: DormouseHandler; engine, jdk: SslHandler with an SSLEngine of Dormouse or of the JDK; tcnative: BoringSSL")
    out("with Netty's own engine. Plain NIO: a Selector and an SSLEngine, without a framework")
    if chosen.dump:
        compare_dumps(chosen, out)
    else:
        figures = {name: compare(name, chosen, out) for name in chosen.servers}
    out.load("after")
    out.write()
    if not chosen.dump:
        out.keep("Java", "bytes", figures)


def compare_dumps(chosen, out):
    """The seed of the project: what a server's heap has more of with its connections."""
    out(f"Arrays of at least {LARGE_ARRAY:,} bytes in heap dumps (live objects)")
    out()
    out(f"{'':10}{'before':>10}{'after':>10}{'bytes in those that came':>28}")
    with tempfile.TemporaryDirectory() as folder:
        files = side_by_side.certificate(folder)
        for tls in chosen.only:
            server = Server(SERVERS["Netty"][0], tls, chosen.classpath, files, JVM)
            try:
                warm_up(server, WARM_UP)
                before = server.large_arrays(folder)
                socks = server.connect_and_echo(chosen.connections)
                after = server.large_arrays(folder)
                for sock in socks:
                    sock.close()
            finally:
                server.stop()
            out(f"{tls:10}{len(before):10,}{len(after):10,}{sum(after) - sum(before):28,}")


def compare(name, chosen, out):
    """Returns the figures of each kind of TLS, without its objects."""
    program, kinds, goal = SERVERS[name]
    kinds = [tls for tls in kinds if tls in chosen.only]
    out()
    out(f"{name}")
    out(f"JVM: {' '.join(JVM)}")
    out("bytes: live objects after a collection, plus resident memory outside the heap, trimmed")
    out()
    with tempfile.TemporaryDirectory() as folder:
        files = side_by_side.certificate(folder)
        found = {}
        for _ in range(chosen.runs):
            for tls in kinds:
                result = measure_bytes(program, tls, chosen.classpath, files, chosen.connections)
                found.setdefault(tls, []).append(result)
                print(f"{name}, {tls}: {result['bytes']:.0f} bytes", file=sys.stderr, flush=True)
    out(f"{'':10}{'bytes':>18}{'of them objects':>18}{'outside the heap':>18}")
    for tls in kinds:
        of = lambda figure: [one[figure] for one in found[tls]]  # noqa: B023, E731
        out(f"{tls:10}{interval(of('bytes')):>18}{interval(of('heap')):>18}{interval(of('outside')):>18}")
    out()
    out(f"Outside the heap, dormouse and engine have {STATE} bytes in chunks of 64 KiB, which earlier connections have filled in part.")
    for tls in sorted({"dormouse", "engine"} & set(kinds)) if "plain" in kinds else ():
        pairs = zip(found[tls], found["plain"])
        objects = [ours["heap"] - plain["heap"] for ours, plain in pairs]
        added = statistics.median(objects) + STATE
        reached = f"; goal {goal}: {'reached' if added <= goal else 'NOT REACHED'}" if tls == "dormouse" else ""
        out(f"{tls} adds {interval(objects)} bytes of objects, with those {added:,.0f}{reached}")
    out()
    for tls in kinds:
        out(f"Objects of each connection, {tls} (last run):")
        show_histogram(out, found[tls][-1]["histogram"], chosen.connections)
    return {
        tls: [{figure: value for figure, value in run.items() if figure != "histogram"} for run in runs]
        for tls, runs in found.items()
    }


main()
