"""http_client.py URL new|shared|kept [BUNDLE]: 40 requests with http.client: a new context for each, one for all, one
connection for all. Each context trusts the authorities of BUNDLE as well. http:// means no TLS."""

import http.client
import ssl
import sys
import urllib.parse

url, how = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]


def trusting():
    context = ssl.create_default_context()
    if len(sys.argv) > 3:
        context.load_verify_locations(sys.argv[3])
    return context


shared = trusting()


def connect():
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port)
    context = trusting() if how == "new" else shared
    return http.client.HTTPSConnection(url.hostname, url.port, context=context)


kept = connect() if how == "kept" else None
for _ in range(40):
    connection = kept or connect()
    connection.request("GET", "/")
    connection.getresponse().read()
    if not kept:
        connection.close()
