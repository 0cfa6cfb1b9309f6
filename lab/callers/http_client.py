"""http_client.py URL new|shared|kept: 40 requests with http.client: a new context for each, one for all, one
connection for all. http:// goes without TLS."""

import http.client
import ssl
import sys
import urllib.parse

url, how = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]
shared = ssl.create_default_context()


def connect():
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port)
    context = ssl.create_default_context() if how == "new" else shared
    return http.client.HTTPSConnection(url.hostname, url.port, context=context)


kept = connect() if how == "kept" else None
for _ in range(40):
    connection = kept or connect()
    connection.request("GET", "/")
    connection.getresponse().read()
    if not kept:
        connection.close()
