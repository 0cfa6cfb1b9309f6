"""prober PORT CONNECTIONS : sends a byte on one of some established connections every millisecond, and notes
how long its echo takes. Each line of the standard input is answered by a line of JSON about the time since the one before.
For `lab/rest/million --hand`; a process of its own, so that it can run in another network. Standard library only."""

import contextlib
import json
import os
import select
import socket
import ssl
import sys
import time

BETWEEN_S = 0.001

# Beyond this, an echo counts as late.
LATE_MS = 5


def connect(port):
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ssl._create_unverified_context().wrap_socket(plain)


class Prober:
    def __init__(self, port, count):
        self.connections = [connect(port) for _ in range(count)]
        self.turn = 0
        self.waiting = {}
        self.took_ms = []
        self.lost = 0

    def send(self):
        connection = self.connections[self.turn % len(self.connections)]
        self.turn += 1
        if connection not in self.waiting:
            self.waiting[connection] = time.monotonic()
            connection.send(b"x")

    def lose(self, connection):
        self.connections.remove(connection)
        self.lost += 1

    def receive(self, wait_s):
        watched = [sys.stdin, *self.waiting]
        for ready in select.select(watched, [], [], wait_s)[0]:
            if ready is sys.stdin:
                if not sys.stdin.readline():
                    sys.exit()
                self.report()
                continue
            begun = self.waiting.pop(ready)
            try:
                has_echoed = ready.recv(100) == b"x"
            except OSError:
                has_echoed = False
            if has_echoed:
                self.took_ms.append((time.monotonic() - begun) * 1000)
            else:
                self.lose(ready)

    def report(self):
        """Echoes that are still outstanding count as well."""
        now = time.monotonic()
        took = sorted(self.took_ms + [(now - begun) * 1000 for begun in self.waiting.values()])
        place = lambda part: round(took[int(len(took) * part)], 2) if took else 0
        late = sum(ms > LATE_MS for ms in took)
        line = {"echoes": len(took), "p50_ms": place(0.5), "p99_ms": place(0.99), "late": late, "lost": self.lost}
        line["longest_ms"] = round(max(took, default=0), 2)
        print(json.dumps(line), flush=True)
        self.took_ms, self.lost = [], 0

    def run(self):
        next_s = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= next_s and self.connections:
                self.send()
                # After a stall, those that were missed are not sent: the priority is above all others.
                next_s = now + BETWEEN_S
            self.receive(max(0, next_s - time.monotonic()))


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))
    Prober(*map(int, sys.argv[1:])).run()
