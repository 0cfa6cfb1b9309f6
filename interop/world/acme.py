"""An ACME server at $SERVER that validates nothing, with what is unusual about it: `acme.py [ODDITY…]`.

It has acme.pem and acme.key, and issues certificates of inter.pem with the subject CN=fresh.
"""
import base64, email.utils, http.server, json, os, ssl, subprocess, sys, time

ODDITIES = sys.argv[1:]
HERE = "https://" + os.environ["SERVER"]
state = {"nonce": 0, "order": "pending", "polls": 0, "identifiers": [], "refused": set()}


def odd(name):
    return name in ODDITIES


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def directory():
    found = {name: f"{HERE}/{path}" for name, path in [
        ("newNonce", "nonce"), ("newAccount", "account"), ("newOrder", "order"), ("revokeCert", "revoke"),
        ("keyChange", "change")]}
    if odd("incomplete"):
        del found["newOrder"]
    if odd("modern"):
        found |= {"newAuthz": None, "meta": {"profiles": {"classic": "x"}, "caaIdentities": [], "website": None}}
    return found


def order():
    found = {"status": state["order"], "identifiers": state["identifiers"], "authorizations": [HERE + "/authz/1"],
             "finalize": HERE + "/finalize/1", "expires": "2099-01-01T00:00:00Z"}
    if state["order"] == "valid":
        found["certificate"] = HERE + "/certificate/1"
    return found


def challenge():
    status = {"pending": "pending", "invalid": "invalid"}.get(state["order"], "valid")
    found = {"type": "tls-alpn-01", "url": HERE + "/challenge/1", "status": status, "token": "t" * 43}
    if status == "invalid":
        found["error"] = {"type": "urn:ietf:params:acme:error:connection", "detail": "no route to site.test"}
    return found


def authorization():
    status = {"pending": "pending", "invalid": "invalid"}.get(state["order"], "valid")
    challenges = [challenge()]
    if odd("modern"):
        news = [{"type": kind, "url": HERE + "/challenge/2", "status": "pending"} for kind in ("dns-persist-01", "x-02")]
        challenges = news + challenges
    if odd("dns-only"):
        challenges = [{"type": "dns-01", "url": HERE + "/challenge/2", "status": "pending", "token": "t" * 43}]
    return {"status": status, "identifier": state["identifiers"][0], "challenges": challenges}


def run(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def issue(request):
    with open("request.der", "wb") as file:
        file.write(request)
    run("req", "-inform", "der", "-in", "request.der", "-out", "request.pem")
    if odd("other-key"):
        run("req", "-new", "-key", "other.key", "-subj", "/CN=x", "-addext", "subjectAltName=DNS:site.test", "-out",
            "request.pem")
    extensions = ["-copy_extensions", "copyall"]
    if odd("other-name"):
        with open("extensions", "w") as file:
            file.write("subjectAltName=DNS:elsewhere.test\n")
        extensions = ["-extfile", "extensions"]
    run("x509", "-req", "-in", "request.pem", "-CA", "inter.pem", "-CAkey", "inter.key", "-CAcreateserial", "-days", "60",
        "-subj", "/CN=fresh", "-out", "fresh.pem", *extensions)


def chain():
    files = ["fresh.pem", "inter.pem"] + (["root.pem"] if odd("with-root") else [])
    text = "".join(open(name).read() + ("\n" if odd("crlf") else "") for name in files)
    if odd("crlf"):
        text = text.replace("\n", "\r\n")
    return "<html><body>504 Gateway Time-out</body></html>" if odd("page") else text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content, headers=None, kind="application/json", nonce=True):
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if nonce:
            state["nonce"] += 1
            self.send_header("Replay-Nonce", f"n{state['nonce']}")
        if odd("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            pieces = [body[at:at + 100] for at in range(0, len(body), 100)]
            body = b"".join(b"%x;x=y\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nx-end: 1\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def problem(self, status, kind, detail, headers=None, nonce=True):
        content = {"type": "urn:ietf:params:acme:error:" + kind, "detail": detail, "status": status}
        self.answer(status, content, headers, "application/problem+json", nonce)

    def do_HEAD(self):
        self.answer(200, "")

    def do_GET(self):
        if odd("huge"):
            return self.answer(200, "[" + "1, " * 7_000_000 + "1]")
        self.answer(200, directory())

    def do_POST(self):
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["payload"]
        payload = json.loads(decoded(payload) or "{}")
        kind = self.path.split("/")[1]
        fresh = self.path not in state["refused"]
        state["refused"].add(self.path)
        if fresh and (odd("bad-nonce") or odd("bad-nonce-bare") and self.path == "/order"):
            return self.problem(400, "badNonce", "used before", nonce=not odd("bad-nonce-bare"))
        getattr(self, kind)(payload)

    def account(self, _):
        headers = {} if odd("no-location") else {"Location": HERE + "/account/1"}
        self.answer(200 if odd("known") else 201, {"status": "valid"}, headers)

    def order(self, payload):
        if odd("busy"):
            return self.problem(503, "rateLimited", "later", {"Retry-After": "7200"})
        if odd("busy-date"):
            later = email.utils.formatdate(time.time() + 7200, usegmt=True)
            return self.problem(429, "rateLimited", "later", {"Retry-After": later})
        if odd("gateway"):
            return self.answer(502, "<html><h1>502 Bad Gateway</h1></html>", kind="text/html", nonce=False)
        if odd("escape"):
            return self.problem(403, "unauthorized", "no \x1b[31m\x07such\r\nfake line")
        if self.path == "/order":
            state["identifiers"] = payload["identifiers"]
            state["order"] = "ready" if odd("known-name") else "pending"
            location = "/order/1" if odd("relative") else HERE + "/order/1"
            return self.answer(201, order(), {"Location": location})
        if state["order"] == "processing":
            state["polls"] += 1
            state["order"] = "valid" if state["polls"] > 1 else "processing"
        self.answer(200, order(), {"Retry-After": "1"})

    def authz(self, _):
        self.answer(200, authorization())

    def challenge(self, _):
        state["order"] = "invalid" if odd("invalid") else "ready"
        self.answer(200, challenge())

    def finalize(self, payload):
        issue(decoded(payload["csr"]))
        state["order"] = "processing" if odd("slow") else "valid"
        self.answer(200, order(), {"Retry-After": "1", "Location": HERE + "/order/1"})

    def certificate(self, _):
        kind = "application/pem-certificate-chain" + ("; charset=utf-8" if odd("charset") else "")
        self.answer(200, chain(), {"Link": f'<{HERE}/certificate/2>;rel="alternate"'}, kind)


host, port = os.environ["SERVER"].rsplit(":", 1)
server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("acme.pem", "acme.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
