#!/usr/bin/env python3
"""Python's requests: one Session for all, each connection closed after its answer."""

import json
import socket
import ssl

import requests
from requests.adapters import HTTPAdapter

from arguments import arguments

args = arguments()
version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[args.version]


class OneVersion(HTTPAdapter):
    def init_poolmanager(self, *positional, **named):
        context = ssl.create_default_context(cafile=args.ca)
        context.minimum_version = context.maximum_version = version
        super().init_poolmanager(*positional, ssl_context=context, **named)


look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **named: look_up(args.resolve, *rest, **named)
session = requests.Session()
session.mount("https://", OneVersion())
session.verify = args.ca
for _ in range(args.requests):
    answer = session.get(args.url + "/bytes/100", headers={"Connection": "close"}, timeout=30)
    answer.raise_for_status()
print(json.dumps({"requests": args.requests, "resumed": None}))
