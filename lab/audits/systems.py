"""The systems that lab/audits/audit audits: the real systems of the cases in their current versions, and clients. Standard library only.

A name is `GROUP: VARIANT`; variants of a group are together, the faulty one first, dormouse last.
"""

from servers import LAB

# Group, peer, and in order: name and variant. A variant that begins with `front ` is the peer
# without TLS and `dormouse serve` in front of it (lab/audits/system --front). peers/*/run define the
# variants.
SERVERS = [
    ("nginx", "nginx-http", {
        "builtin session cache": "builtin-cache",
        "shared session cache": "shared-cache",
        "no session cache, tickets": "default",
        "behind dormouse": "front plain",
    }),
    ("Apache", "apache", {
        "no session cache, no tickets": "no-cache",
        "session cache and tickets": "default",
        "behind dormouse": "front plain",
    }),
    ("Node.js", "node", {
        "tls.createServer and pipe": "default",
        "flags for memory, no pipe": "memory",
        "net.createServer and pipe, behind dormouse": "front plain",
    }),
    ("Twisted", "twisted", {
        "DefaultOpenSSLContextFactory": "default",
        "CertificateOptions": "memory",
        "CertificateOptions with enableSessionTickets": "sessions",
        "listenTCP, behind dormouse": "front plain",
    }),
    ("asyncio", "asyncio", {
        "streams": "default",
        "protocol and read buffers of 16 kB": "memory",
        "streams, behind dormouse": "front plain",
    }),
    ("Python with ten million objects", "asyncio", {
        "protocol and read buffers of 16 kB": "heap",
        "behind dormouse": "front heap-plain",
    }),
    ("Netty with the JDK's engine", "netty-jdk", {
        "as it comes": "default",
        "512 bytes to receive into": "small-buffers",
        "serial collector, small chunks": "memory",
        "without TLS, behind dormouse": "front plain",
        "without TLS, serial collector, small chunks, behind dormouse": "front plain-memory",
    }),
    ("Netty with tcnative", "netty-tcnative", {
        "as it comes": "default",
        "512 bytes to receive into": "small-buffers",
        "without TLS, behind dormouse": "front plain",
    }),
    ("Go", "go", {
        "io.Copy": "default",
        "1 kB to copy with": "memory",
        "io.Copy without TLS, behind dormouse": "front plain",
    }),
    ("HAProxy", "haproxy", {
        "TLS, echo server behind it": "default",
        "plain, behind dormouse": "front plain",
    }),
    ("hitch", "hitch", {
        "echo server behind it": "default",
        "dormouse in its place": "front none",
    }),
    ("stunnel", "stunnel", {
        "echo server behind it": "default",
        "half the stack": "small-stack",
        "dormouse in its place": "front none",
    }),
]

# The server whose first connection might take time in proportion to its heap, and what doubles the
# heap.
LARGER = {"Python with ten million objects": "LAB_OBJECTS=20000000 "}

CALLERS = LAB / "callers"
LWP = ["perl", CALLERS / "lwp.pl"]
HTTP_CLIENT = ["python3", CALLERS / "http_client.py"]
REQUESTS = ["/usr/bin/python3", CALLERS / "with_requests.py"]
AGENT = ["node", CALLERS / "agent.cjs"]
GO = [LAB / ".cache/callers/client"]
JAVA = ["java", "-cp", LAB / ".cache/callers", "Client", "{url}", "{ca}"]
# The authorities that every usual context trusts, the system's or certifi's: some 140.
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# Its classes and libraries are the server's.
NETTY = ["java", "-cp", f"{LAB}/.cache/netty/classes:{LAB}/.cache/netty/dependency/*", "lab.Caller"]
THROUGH = [LAB / "audits/through"]

# They make 40 requests in a loop, like the load script of the case. `lab/audits/through` puts `dormouse
# connect` in between.
CLIENTS = [
    ("LWP", {
        "a new agent each time": [*LWP, "{url}", "new"],
        "one TLS context": [*LWP, "{url}", "shared"],
        "one TLS context, TLS 1.2": [*LWP, "{url}", "shared", "TLSv1_2"],
        "one agent with keep_alive": [*LWP, "{url}", "kept"],
        "a new agent each time, through dormouse connect": [*THROUGH, *LWP, "{plain}", "new"],
    }),
    ("Python http.client", {
        "a new context each time": [*HTTP_CLIENT, "{url}", "new"],
        "one context": [*HTTP_CLIENT, "{url}", "shared"],
        "one connection": [*HTTP_CLIENT, "{url}", "kept"],
        "a new context with the system's authorities each time": [*HTTP_CLIENT, "{url}", "new", BUNDLE],
        "one context with the system's authorities": [*HTTP_CLIENT, "{url}", "shared", BUNDLE],
        "a new context each time, through dormouse connect": [*THROUGH, *HTTP_CLIENT, "{plain}", "new"],
    }),
    ("Python ssl", {
        "the session handed on": ["python3", CALLERS / "session.py", "localhost", "{port}"],
    }),
    ("Python requests", {
        "each for itself": [*REQUESTS, "{url}", "new"],
        "one Session": [*REQUESTS, "{url}", "kept"],
        "each for itself, through dormouse connect": [*THROUGH, *REQUESTS, "{plain}", "new"],
    }),
    ("Node.js https", {
        "a new agent each time": [*AGENT, "{url}", "new"],
        "one agent": [*AGENT, "{url}", "shared"],
        "one agent with keepAlive": [*AGENT, "{url}", "kept"],
        "a new agent each time, through dormouse connect": [*THROUGH, *AGENT, "{plain}", "new"],
    }),
    ("Go net/http", {
        "no session cache": [*GO, "{url}", "new"],
        "ClientSessionCache": [*GO, "{url}", "shared"],
        "connections kept": [*GO, "{url}", "kept"],
        "no session cache, through dormouse connect": [*THROUGH, *GO, "{plain}", "new"],
    }),
    ("Java HttpsURLConnection", {
        "a new SSLContext each time": [*JAVA, "new"],
        "one SSLContext": [*JAVA, "shared"],
        "connections kept": [*JAVA, "kept"],
        "a new SSLContext each time, through dormouse connect": [*THROUGH, "java", "-cp", LAB / ".cache/callers", "Client", "{plain}", "none", "new"],
    }),
    ("Netty client with tcnative", {
        "a new SslContext each time": [*NETTY, "{url}", "{ca}", "new"],
        "one SslContext": [*NETTY, "{url}", "{ca}", "shared"],
        "one SslContext, newHandler without host and port": [*NETTY, "{url}", "{ca}", "unnamed"],
        "a new SslContext each time, through dormouse connect": [*THROUGH, *NETTY, "{plain}", "none", "new"],
    }),
    ("curl", {
        "40 URLs at once": ["curl", "-sS", "-o", "/dev/null", *["{url}"] * 40],
    }),
]


def servers_of_all():
    """Name, group, peer, and the command without its port."""
    for group, peer, variants in SERVERS:
        for what, variant in variants.items():
            is_front = variant.startswith("front ")
            words = [f"{LAB}/audits/system", *["--front"] * is_front, peer, variant.removeprefix("front ")]
            yield f"{group}: {what}", group, peer, " ".join(words)


def clients_of_all():
    """Name and command."""
    for group, callers in CLIENTS:
        for what, command in callers.items():
            yield f"{group}: {what}", [str(word) for word in command]
