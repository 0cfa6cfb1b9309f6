"""One connection, with what is unusual about it: see the options. Prints what happened, a fact per line."""
import argparse, os, socket, ssl, sys, time

options = argparse.ArgumentParser()
options.add_argument("--to", default=os.environ.get("AT"), help="HOST:PORT")
options.add_argument("--name", default="site.test", help="server name; empty: none")
options.add_argument("--plain", action="store_true", help="no TLS")
options.add_argument("--before", default="", help="bytes before TLS, in hex, or @FILE")
options.add_argument("--gap", type=float, default=0.0, help="seconds between these bytes, one by one; and TLS")
options.add_argument("--joined", action="store_true", help="these bytes and the ClientHello in one segment")
options.add_argument("--chop", type=int, default=0, help="send ciphertext in pieces of so many bytes")
options.add_argument("--record", default="", help="version of the first records, in hex")
options.add_argument("--ca", help="verify the server with this file")
options.add_argument("--cert", help="certificate and key of the client")
options.add_argument("--alpn", default="")
options.add_argument("--min", default="1.2")
options.add_argument("--max", default="1.3")
options.add_argument("--ciphers")
options.add_argument("--send", default="hello")
options.add_argument("--size", type=int, default=0, help="send so many bytes instead, and count what comes back")
options.add_argument("--end", default="close", choices=["close", "eof", "reset", "wait"])
options.add_argument("--after", default="", help="bytes in hex after the greeting came back, instead of an end")
options.add_argument("--keep", type=float, default=0.0, help="seconds to stay quiet after the handshake")
options.add_argument("--times", type=int, default=1, help="so many connections, with the session of the one before")
options.add_argument("--patience", type=float, default=6.0)
args = options.parse_args()
VERSIONS = {"1.0": ssl.TLSVersion.TLSv1, "1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def context():
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if args.ca:
        made.load_verify_locations(args.ca)
        made.check_hostname = bool(args.name)
    else:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.minimum_version, made.maximum_version = VERSIONS[args.min], VERSIONS[args.max]
    if args.cert:
        made.load_cert_chain(args.cert)
    if args.ciphers:
        made.set_ciphers(args.ciphers)
    if args.alpn:
        made.set_alpn_protocols(args.alpn.split(","))
    return made


class Line:
    """A TCP connection whose TLS is in memory, so that bytes can be cut and joined."""

    def __init__(self, made, session):
        host, port = args.to.rsplit(":", 1)
        self.tcp = socket.create_connection((host.strip("[]"), int(port)), timeout=args.patience)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        before = open(args.before[1:], "rb").read() if args.before[:1] == "@" else bytes.fromhex(args.before)
        self.held, self.first = b"", bytes.fromhex(args.record)
        if before and args.joined:
            self.held = before
        elif before and args.gap:
            for byte in before:
                self.tcp.sendall(bytes([byte]))
                time.sleep(args.gap)
        elif before:
            self.tcp.sendall(before)
        self.tls = None
        if not args.plain:
            self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = made.wrap_bio(self.into, self.out, server_hostname=args.name or None, session=session)

    def flush(self):
        data, self.held = self.held + self.out.read(), b""
        if data and self.first:
            data, self.first = data[:1] + self.first + data[3:], b""
        step = args.chop or len(data) or 1
        for at in range(0, len(data), step):
            self.tcp.sendall(data[at:at + step])

    def pump(self, call):
        while True:
            try:
                result = call()
                self.flush()
                return result
            except ssl.SSLWantReadError:
                self.flush()
                data = self.tcp.recv(65536)
                if data:
                    self.into.write(data)
                else:
                    self.into.write_eof()
            except ssl.SSLError:
                self.flush()
                raise

    def read(self):
        return self.pump(lambda: self.tls.read(65536)) if self.tls else self.tcp.recv(65536)

    def write(self, data):
        self.pump(lambda: self.tls.write(data)) if self.tls else self.tcp.sendall(self.held + data)


def common_name(der):
    import subprocess
    shown = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-subject", "-nameopt", "multiline"],
                           input=der, capture_output=True).stdout.decode()
    names = [line.split("= ")[1] for line in shown.splitlines() if "commonName" in line]
    return names[0] if names else "none"


def end(line, what):
    if what == "reset":
        line.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line.tcp.close()
        return
    if what == "close" and line.tls:
        try:
            line.tls.unwrap()
        except ssl.SSLError:
            pass
        line.flush()
    if what == "eof" or not line.tls:
        line.tcp.shutdown(socket.SHUT_WR)


def last(line):
    """How the other side ends."""
    try:
        while True:
            data = line.read()
            if not data:
                return "close_notify" if line.tls else "fin"
    except ssl.SSLZeroReturnError:
        return "close_notify"
    except ssl.SSLEOFError:
        return "eof without close_notify"
    except ssl.SSLError as error:
        if "EOF" in str(error):
            return "eof without close_notify"
        return "alert: " + str(error.reason)
    except TimeoutError:
        return "no end"
    except ConnectionResetError:
        return "reset"
    except OSError as error:
        return str(error)


def connection(made, session):
    try:
        line = Line(made, session)
    except OSError as error:
        print("failed", error.strerror or error)
        return None
    try:
        if line.tls:
            line.pump(line.tls.do_handshake)
            print("version", line.tls.version(), line.tls.cipher()[0])
            if line.tls.session_reused:
                print("resumed")
            der = line.tls.getpeercert(True)
            print("subject", common_name(der) if der else "unknown")
            if args.alpn:
                print("protocol", line.tls.selected_alpn_protocol())
        time.sleep(args.keep)
        data = bytes(args.size) if args.size else args.send.encode()
        got = b""
        if data:
            half = 65536
            for at in range(0, len(data), half):
                line.write(data[at:at + half])
                want = min(at + half, len(data))
                while len(got) < want:
                    more = line.read()
                    if not more:
                        break
                    got += more
            print("answer", len(got) if args.size else got.decode("latin-1").encode("unicode_escape").decode())
        if args.after:
            line.tcp.sendall(bytes.fromhex(args.after))
        else:
            end(line, args.end)
        if args.end != "reset" or args.after:
            print("end", last(line))
        return line.tls.session if line.tls else None
    except ssl.SSLError as error:
        # Not every Python knows all reasons by name.
        said = error.reason or str(error)
        print("failed", said, said.replace("_", " ").lower())
    except TimeoutError:
        print("failed no answer")
    except OSError as error:
        print("failed", error.strerror or error)
    finally:
        line.tcp.close()


made, session = context(), None
for _ in range(args.times):
    session = connection(made, session) or session
