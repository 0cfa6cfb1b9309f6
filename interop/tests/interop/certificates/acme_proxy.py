"""A proxy in front of an ACME server that is slow, has forgotten an account, or asks for a certificate.

    acme_proxy.py ADDRESS SERVER CERTIFICATE KEY BEHAVIOUR

slow:S:R      for S seconds after its finalization, an order is in process, with `Retry-After: R`
forgets:N     orders of the first account are refused with status N
holds         the first challenge is not passed on before a request for /let-go
asks:FILE     clients need a certificate from an authority in this file

Each request is a line on the standard output.
"""

import base64
import http.client
import http.server
import json
import ssl
import sys
import time

ADDRESS, SERVER, CERTIFICATE, KEY, BEHAVIOUR = sys.argv[1:]
HOW, *NUMBERS = BEHAVIOUR.split(":")
NUMBERS = [int(number) for number in NUMBERS if number.isdigit()]

finalized = {}
first = []
challenges = {}
held = None


def account_of(body):
    words = json.loads(body)["protected"]
    return json.loads(base64.urlsafe_b64decode(words + "=" * (-len(words) % 4))).get("kid")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def pass_on(self, method, path, body=b"", headers=None):
        context = ssl._create_unverified_context()
        server = http.client.HTTPSConnection(SERVER, context=context)
        headers = headers or {"Host": self.headers["Host"], "User-Agent": "a proxy"}
        server.request(method, path, body, headers)
        answer = server.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read()

    def answer(self, status, headers, content):
        self.send_response(status)
        for name, value in headers.items():
            if name not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.path.split("/")[1]
        print(self.command, kind, flush=True)
        if HOW == "forgets" and kind == "order-plz":
            first.append(account_of(body))
            if account_of(body) == first[0]:
                _, headers, _ = self.pass_on("HEAD", "/nonce-plz")
                headers = {"replay-nonce": headers["replay-nonce"]}
                return self.answer(NUMBERS[0], headers, b'{"detail": "not found"}')
        headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
        if HOW == "holds" and kind in ("let-go", "chalZ"):
            return self.hold(body, headers)
        status, headers, content = self.pass_on(self.command, self.path, body, headers)
        if kind == "authZ":
            for challenge in json.loads(content).get("challenges", []):
                challenges["/" + challenge["url"].split("/", 3)[3]] = challenge
        order = self.path.split("/")[-1]
        if HOW == "slow" and status == 200 and kind in ("my-order", "finalize-order"):
            if kind == "finalize-order":
                finalized[order] = time.monotonic()
            if time.monotonic() < finalized.get(order, float("-inf")) + NUMBERS[0]:
                document = json.loads(content)
                document["status"] = "processing"
                document.pop("certificate", None)
                content = json.dumps(document).encode()
                headers["retry-after"] = str(NUMBERS[1])
        self.answer(status, headers, content)

    def hold(self, body, headers):
        global held
        if self.path == "/let-go":
            self.pass_on("POST", *held)
            held = ()
            return self.answer(200, {}, b"")
        if held is None:
            held = (self.path, body, headers)
        if self.path not in held:
            return self.answer(*self.pass_on("POST", self.path, body, headers))
        _, nonce, _ = self.pass_on("HEAD", "/nonce-plz")
        challenge = dict(challenges[self.path], status="processing")
        headers = {"replay-nonce": nonce["replay-nonce"]}
        self.answer(200, headers, json.dumps(challenge).encode())

    do_GET = do_POST = do_HEAD = handle_request


host, port = ADDRESS.rsplit(":", 1)
proxy = http.server.ThreadingHTTPServer((host, int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
if HOW == "asks":
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(BEHAVIOUR.removeprefix("asks:"))
proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
print("ready", flush=True)
proxy.serve_forever()
