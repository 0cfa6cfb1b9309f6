"""The life of the service under a real systemd, from the installation of the package to its purge.

Run as root by `try`, in a system that is discarded afterwards. Prints each result, with `FAILED` if it is wrong.
"""
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import time

CONFIG = pathlib.Path("/etc/dormouse/dormouse.toml")
UNIT = "dormouse.service"
KEYS = pathlib.Path("/etc/keys")
PORT = 443
CONNECTIONS = 200
failures = []


def run(*words, ok=True, timeout=60):
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    if ok and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")
    return done


def show(*names):
    out = run("systemctl", "show", UNIT, "--property=" + ",".join(names)).stdout
    values = dict(line.split("=", 1) for line in out.splitlines())
    return [values.get(name, "") for name in names]


def expect(true, what):
    print(("ok      " if true else "FAILED  ") + what, flush=True)
    if not true:
        failures.append(what)


def step(title):
    print(f"\n{title}", flush=True)


def wait(what, condition, seconds=20):
    by = time.monotonic() + seconds
    while time.monotonic() < by:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError(f"waited {seconds} s without success for {what}")


def context():
    insecure = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    insecure.check_hostname = False
    insecure.verify_mode = ssl.CERT_NONE
    return insecure


def connect(port=PORT, host="127.0.0.1"):
    plain = socket.create_connection((host, port), timeout=20)
    return context().wrap_socket(plain, server_hostname="localhost")


def echoes(tls):
    try:
        tls.sendall(b"are you there")
        return tls.recv(64) == b"are you there"
    except OSError:
        return False


def alive(connections):
    return sum(map(echoes, connections))


def shown():
    """The certificate that a new client gets."""
    with connect() as tls:
        return tls.getpeercert(binary_form=True)


def new_certificate():
    KEYS.mkdir(mode=0o700, exist_ok=True)
    run(
        *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30".split(),
        *"-subj /CN=localhost -addext subjectAltName=DNS:localhost".split(),
        *f"-keyout {KEYS}/site.key -out {KEYS}/site.pem".split(),
    )
    os.chmod(KEYS / "site.key", 0o600)


def configure(extra="", cert=KEYS / "site.pem", key=KEYS / "site.key", port=PORT):
    CONFIG.write_text(
        f'workers = 2\n{extra}\n[[route]]\nlisten = "127.0.0.1:{port}"\nto = "echo:"\n'
        f'certificates = [{{ cert = "{cert}", key = "{key}" }}]\n'
    )


def drop_in(text):
    folder = pathlib.Path(f"/etc/systemd/system/{UNIT}.d")
    folder.mkdir(exist_ok=True)
    (folder / "try.conf").write_text(text)
    run("systemctl", "daemon-reload")


def no_drop_in():
    pathlib.Path(f"/etc/systemd/system/{UNIT}.d/try.conf").unlink(missing_ok=True)
    run("systemctl", "daemon-reload")


def processes():
    """The processes of the service: pid -> name."""
    pids = wait("processes", lambda: group_pids())
    return {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}


def group_pids():
    group = show("ControlGroup")[0]
    for hierarchy in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        file = pathlib.Path(hierarchy + group + "/cgroup.procs")
        if file.exists():
            return [int(pid) for pid in file.read_text().split()]
    return []


def named(name):
    return [pid for pid, found in processes().items() if found == name]


def status(pid, name):
    found = re.search(rf"^{name}:\s*(.+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return found[1].split()[0]


def journal(*words):
    out = run("journalctl", "-u", UNIT, "-o", "json", "--no-pager", *words).stdout
    return [json.loads(line) for line in out.splitlines()]


def cursor():
    run("journalctl", "--sync")
    lines = run("journalctl", "-n1", "-o", "json").stdout
    return "--after-cursor=" + json.loads(lines)["__CURSOR"]


def install():
    step("The package")
    run("dpkg", "-i", "/share/dormouse.deb")
    print("        " + run("dormouse", "--version").stdout.splitlines()[0])
    expect(show("ActiveState")[0] == "inactive", "installed, but not started by the installation")
    expect(run("systemctl", "is-enabled", UNIT, ok=False).stdout.strip() == "disabled", "and not enabled")
    complaints = run("systemd-analyze", "verify", UNIT, "dormouse.socket", ok=False).stderr
    ours = [line for line in complaints.splitlines() if "dormouse" in line and "man dormouse" not in line]
    expect(not ours, f"systemd-analyze verify reports nothing {ours or ''}")
    score = run("systemd-analyze", "security", UNIT).stdout.splitlines()[-1]
    print("        " + score.strip("→ "))
    run("systemctl", "start", UNIT)
    with connect(8443) as tls:
        expect(echoes(tls), "its own configuration starts and echoes")
    run("systemctl", "stop", UNIT)


def start():
    step("Start, with a key that only root may read, on port 443")
    new_certificate()
    configure()
    before = time.monotonic()
    run("systemctl", "start", UNIT)
    ready_ms = (time.monotonic() - before) * 1000
    state, kind, text, main = show("ActiveState", "Type", "StatusText", "MainPID")
    expect(state == "active", f"Type={kind}: active after {ready_ms:.0f} ms, “{text}”")
    connections = [connect() for _ in range(CONNECTIONS)]
    expect(alive(connections) == CONNECTIONS, f"{CONNECTIONS} connections echo")
    names = processes()
    print("        " + ", ".join(sorted(names.values())))
    expect(status(main, "Uid") != "0", f"main is user {status(main, 'Uid')}")
    expect(status(main, "CapEff") == "0000000000000404", "main has the two capabilities")
    others = [pid for pid in names if pid != int(main)]
    expect(all(status(pid, "CapPrm") == "0" * 16 for pid in others), "no other process has capabilities")
    workers = named("worker-0") + named("worker-1")
    expect(len(workers) == 2, "two workers")
    for pid in workers:
        filters = int(status(pid, "Seccomp_filters"))
        expect(filters >= 2, f"worker {names[pid]} is in its sandbox ({filters} filters)")
    score = [int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in [int(main), workers[0]]]
    expect(score[1] == score[0] + 300, f"the OOM killer prefers a worker (oom_score_adj {score[1]}, main {score[0]})")
    return connections


def seen():
    step("Log, sandbox and status")
    lines = journal()
    ready = [line for line in lines if "ready" in str(line["MESSAGE"]) and line.get("_COMM") != "systemd"]
    expect(ready and all(line["PRIORITY"] == "6" for line in ready), "the journal has the service's lines, as information (6)")
    expect(not any(re.match(r"<\d>|\d{4}-", str(line["MESSAGE"])) for line in ready), "without a second timestamp or priority")
    incomplete = [line["MESSAGE"] for line in lines if "sandbox is incomplete" in str(line["MESSAGE"])]
    expect(not incomplete, f"the sandbox is complete {incomplete or ''}")
    done = run("dormouse", "status", ok=False)
    expect(done.returncode == 0, f"`dormouse status` without arguments: {done.stdout.splitlines()[:1] or done.stderr}")
    answer = json.loads(run("dormouse", "status", "--json").stdout)
    print("        " + json.dumps(answer)[:300])
    seen_by_control = all(worker["alive"] and worker["resident_bytes"] for worker in answer["workers"])
    expect(seen_by_control, "the control process sees the workers and their memory")


def reload(connections):
    step("Reload")
    former = shown()
    new_certificate()
    before = time.monotonic()
    run("systemctl", "reload", UNIT)
    took_ms = (time.monotonic() - before) * 1000
    expect(shown() != former, f"a renewed key that only root may read is in use when `systemctl reload` returns ({took_ms:.0f} ms)")
    since = cursor()
    text = CONFIG.read_text()
    CONFIG.write_text("max_conections = 7\n" + text)
    done = run("systemctl", "reload", UNIT, ok=False)
    expect(done.returncode != 0, "a configuration with a mistake: `systemctl reload` fails")
    run("journalctl", "--sync")
    errors = [str(line["MESSAGE"]) for line in journal(since, "-p", "err") if line.get("_COMM") != "systemd"]
    words = [line for line in errors if "max_conections" in line]
    expect(words, f"the journal says why, as an error (3): {words[:1]}")
    CONFIG.write_text(text)
    run("systemctl", "reload", UNIT)
    expect(show("ActiveState", "SubState") == ["active", "running"], "the next reload succeeds")
    expect(alive(connections) == CONNECTIONS, f"all {CONNECTIONS} connections echo")


def crash(connections):
    step("kill -9 of both workers, one after the other")
    for name in ("worker-0", "worker-1"):
        former = named(name)[0]
        os.kill(former, 9)
        wait("another " + name, lambda: named(name) and named(name)[0] != former)
    expect(alive(connections) == CONNECTIONS, f"all {CONNECTIONS} connections echo")
    expect(show("ActiveState", "NRestarts") == ["active", "0"], "systemd has not restarted the service")
    died = [line for line in journal() if "worker died" in str(line["MESSAGE"])]
    expect(died and all(line["PRIORITY"] in "34" for line in died), "the journal has the death, as a warning or an error")


def upgrade(connections):
    step("Upgrade of the binary")
    main = show("MainPID")[0]
    run("cp", "/usr/bin/dormouse", "/usr/bin/dormouse.new")
    os.rename("/usr/bin/dormouse.new", "/usr/bin/dormouse")
    done = run("dormouse", "upgrade", ok=False)
    expect(done.returncode == 0, f"`dormouse upgrade`: {(done.stdout + done.stderr).strip()}")
    expect(show("MainPID", "ActiveState", "NRestarts") == [main, "active", "0"], "systemd sees the same main process")
    expect(alive(connections) == CONNECTIONS, f"all {CONNECTIONS} connections echo")
    others = [pid for pid in processes() if pid != int(main)]
    expect(all(status(pid, "CapPrm") == "0" * 16 for pid in others), "still only main has capabilities")
    run("systemctl", "reload", UNIT)
    expect(alive(connections) == CONNECTIONS, "and after another reload")


def audit():
    step("dormouse audit server --unit")
    words = ["dormouse", "audit", "server", f"127.0.0.1:{PORT}", "--insecure", "--quick", "--json", "-"]
    done = run(*words, "--unit", UNIT, ok=False, timeout=120)
    try:
        found = json.loads(done.stdout)
        told = json.dumps(found)
        expect(done.returncode == 0 and show("MainPID")[0] in told, f"it measured process {show('MainPID')[0]}")
    except ValueError:
        expect(False, f"{done.returncode}: {done.stderr[-600:]}")
    done = run(*words, "--unit", "nobody-has-this", ok=False)
    expect(done.returncode == 3 and "no such unit" in done.stderr, f"unknown unit: {done.stderr.strip()}")


def stop(connections):
    step("Stop and restart")
    since = cursor()
    before = time.monotonic()
    run("systemctl", "stop", UNIT, timeout=30)
    took_ms = (time.monotonic() - before) * 1000
    ended = sum(1 for tls in connections if tls.recv(1) == b"")
    expect(ended == CONNECTIONS, f"stopped after {took_ms:.0f} ms; all {ended} connections were closed with close_notify")
    expect(show("Result", "ExecMainStatus") == ["success", "0"], "with success")
    expect(not group_pids(), "no process is left")
    expect(not pathlib.Path("/run/dormouse").exists(), "no socket is left")
    errors = [line["MESSAGE"] for line in journal(since, "-p", "warning")]
    expect(not errors, f"and no warning {errors or ''}")


def watchdog():
    step("Watchdog (2 s here)")
    drop_in("[Service]\nWatchdogSec=2s\n")
    run("systemctl", "start", UNIT)
    time.sleep(5)
    expect(show("ActiveState", "NRestarts") == ["active", "0"], "5 s later it runs")
    run("dormouse", "upgrade")
    time.sleep(5)
    expect(show("ActiveState", "NRestarts") == ["active", "0"], "and 5 s after an upgrade")
    os.kill(int(show("MainPID")[0]), 19)
    stopped = time.monotonic()
    wait("a restart", lambda: show("NRestarts") == ["1"])
    wait("readiness", lambda: show("ActiveState") == ["active"])
    took_s = time.monotonic() - stopped
    with connect() as tls:
        expect(echoes(tls), f"a hanging main process is killed, and a new one serves {took_s:.0f} s later")
    run("systemctl", "stop", UNIT)
    run("systemctl", "reset-failed", UNIT, ok=False)
    no_drop_in()


def socket_activation():
    step("Socket activation, with the unit unchanged, for IPv4 and IPv6")
    CONFIG.write_text(CONFIG.read_text().replace(f'"127.0.0.1:{PORT}"', f'":{PORT}"'))
    # The port is available through the socket unit only.
    drop_in("[Service]\nAmbientCapabilities=\nAmbientCapabilities=CAP_DAC_READ_SEARCH\n")
    run("systemctl", "start", "dormouse.socket")
    expect(show("ActiveState")[0] == "inactive", "the port is open, the service not started")
    with connect() as tls:
        expect(echoes(tls), "the first connection starts it, and echoes")
    with connect(host="::1") as tls:
        expect(echoes(tls), "another echoes by IPv6")
    run("systemctl", "restart", "--no-block", UNIT)
    by, served = time.monotonic() + 3, 0
    while time.monotonic() < by:
        try:
            with connect() as tls:
                served += echoes(tls)
        except ConnectionRefusedError as error:
            expect(False, f"during the restart: {error}")
            break
        except OSError:
            # Accepted by the process that exited.
            pass
    expect(served > 1, f"during the restart no connection is refused ({served} connections served)")
    run("systemctl", "stop", "dormouse.socket", UNIT)
    no_drop_in()
    configure()


def credentials():
    step("Keys as credentials, without the capability to read them")
    handed = pathlib.Path(f"/run/credentials/{UNIT}")
    drop_in(
        "[Service]\nAmbientCapabilities=\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"
        f"LoadCredential=site.pem:{KEYS}/site.pem\nLoadCredential=site.key:{KEYS}/site.key\n"
    )
    configure(cert=handed / "site.pem", key=handed / "site.key")
    done = run("systemctl", "start", UNIT, ok=False)
    expect(done.returncode == 0, "it starts")
    former = shown()
    new_certificate()
    run("systemctl", "reload", UNIT)
    renewed = shown() != former
    print(f"        a reload {'uses' if renewed else 'does NOT use'} a renewed key: systemd copies credentials at the start")
    run("systemctl", "stop", UNIT)
    no_drop_in()
    configure()


def notify_reload(version):
    step("Type=notify-reload instead of ExecReload")
    drop_in("[Service]\nType=notify-reload\nExecReload=\n")
    run("systemctl", "start", UNIT)
    former = shown()
    new_certificate()
    done = run("systemctl", "reload", UNIT, ok=False)
    if version >= 253:
        expect(done.returncode == 0 and shown() != former, "a reload returns when the renewed key is in use")
        expect("edition" in show("StatusText")[0], f"“{show('StatusText')[0]}”")
    else:
        expect(done.returncode != 0, f"systemd {version} does not know notify-reload: {done.stderr.strip().splitlines()[:1]}")
    run("systemctl", "stop", UNIT)
    no_drop_in()


def remove():
    step("Removal and purge")
    run("systemctl", "enable", "--now", UNIT)
    run("dpkg", "-r", "dormouse")
    expect(not group_pids(), "removal stops the service")
    expect(CONFIG.exists() and not pathlib.Path("/usr/bin/dormouse").exists(), "the configuration stays, the binary goes")
    CONFIG.unlink()
    subprocess.run(["rm", "-rf", f"/etc/systemd/system/{UNIT}.d"])
    run("dpkg", "-P", "dormouse")
    found = run("find", "/", "-xdev", "-name", "*dormouse*", "-not", "-path", "/proc/*", "-not", "-path", "/share/*").stdout.split()
    expect(not found, f"nothing is left {found or ''}")


def main():
    first = run("systemctl", "--version").stdout.splitlines()[0]
    version = int(first.split()[1])
    print(f"{first}; process 1 is {os.readlink('/proc/1/exe')}")
    controllers = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
    hierarchy = f"version 2 ({controllers.read_text().strip() or 'no controllers'})" if controllers.exists() else "hybrid"
    print(f"control groups: {hierarchy}; so MemorySwapMax= and OOMPolicy= are not tested here")
    try:
        install()
        connections = start()
        seen()
        reload(connections)
        crash(connections)
        upgrade(connections)
        audit()
        stop(connections)
        watchdog()
        socket_activation()
        credentials()
        notify_reload(version)
        remove()
    except Exception as error:  # whatever it is, the journal tells more
        expect(False, f"{type(error).__name__}: {error}")
        for pid in group_pids():
            state, parent = status(pid, "State"), status(pid, "PPid")
            name, at = (pathlib.Path(f"/proc/{pid}/{what}").read_text().strip() for what in ("comm", "wchan"))
            print(f"        {pid} {name}, child of {parent}, {state} in {at}")
        print(run("journalctl", "--no-pager", "-o", "short-precise", "-n", "60", "-u", UNIT).stdout)
    print("\nall checks passed" if not failures else f"\n{len(failures)} checks failed")
    sys.exit(0)


main()
