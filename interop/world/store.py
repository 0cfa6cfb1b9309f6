"""A store at $SERVER that answers everything with the same: `store.py ANSWER [close]`, with escapes in ANSWER."""
import os, socketserver, sys

ANSWER = sys.argv[1].encode("latin-1").decode("unicode_escape").encode("latin-1")


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(65536):
            self.request.sendall(ANSWER)
            if sys.argv[2:] == ["close"]:
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


host, port = os.environ["SERVER"].rsplit(":", 1)
Server((host, int(port)), Handler).serve_forever()
