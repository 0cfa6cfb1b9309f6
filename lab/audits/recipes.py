"""Real programs in their usual configurations, for lab/audits/programs. Standard library only.

A recipe configures a program in a folder of its own and returns the command that runs it in the foreground, on
127.0.0.1. Configurations are those of Debian's packages or of the program's documentation, with the lab's
certificate; where a package has a configuration, only paths, port and certificate differ from it.
"""

import contextlib
import glob
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import LAB, Server, free_port

CACHE = LAB / ".cache/programs"
TLS = LAB / ".cache/tls"
ALL = []
# What a service of systemd has by default. A program may raise it to the hard limit.
SERVICE_DESCRIPTORS = 1024


class Place:
    """Where a program runs: a folder with certificate and key, a port, and variables of its environment."""

    def __init__(self, port):
        self.port, self.environment, self.beside = port, {}, []
        self.folder = Path(tempfile.mkdtemp(prefix="dormouse-lab-program-"))
        # Programs that drop their privileges read it as other users.
        self.folder.chmod(0o755)
        for name in ("cert.pem", "key.pem", "both.pem", "ca.pem"):
            shutil.copy(TLS / name, self.folder / name)
        self.cert, self.key, self.both, self.ca = (self.folder / n for n in ("cert.pem", "key.pem", "both.pem", "ca.pem"))

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def belongs_to(self, user, *names):
        """Gives the folder, or these parts of it, to a user, and returns the command that runs a program as this user."""
        entry = pwd.getpwnam(user)
        for name in names or [""]:
            root = self.folder / name
            for path in [root, *root.rglob("*")]:
                os.chown(path, entry.pw_uid, entry.pw_gid)
        return ["setpriv", f"--reuid={user}", f"--regid={entry.pw_gid}", "--init-groups"]

    def keystore(self):
        """Certificate and key as PKCS #12, for the JVM; the password is `dormouse`."""
        file = self.folder / "keystore.p12"
        subprocess.run(["openssl", "pkcs12", "-export", "-in", self.cert, "-inkey", self.key, "-out", file, "-name",
                        "server", "-passout", "pass:dormouse"], check=True)
        return file

    def __enter__(self):
        return self

    def start_beside(self, command, folder):
        """Starts a program that the audited one needs, such as its backend; it is no part of what is audited."""
        self.beside.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def __exit__(self, *_):
        for process in self.beside:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Recipe:
    """A program: its Debian packages, further steps of its installation, and the audit's options."""

    def __init__(self, name, configure, packages, prepare, options):
        self.name, self.configure, self.packages, self.prepare, self.options = name, configure, packages, prepare, options
        self.file = "-".join(re.findall(r"[a-z0-9]+", name.lower()))

    def install(self):
        CACHE.mkdir(parents=True, exist_ok=True)
        if self.packages:
            subprocess.run([LAB / "tools/apt", *self.packages], check=True, stdout=sys.stderr)
        if self.prepare:
            self.prepare()

    @contextlib.contextmanager
    def started(self):
        """Installs, configures and runs the program until the end of the block."""
        self.install()
        with Place(free_port()) as place:
            command = self.configure(place)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            limit = ["prlimit", f"--nofile={SERVICE_DESCRIPTORS}:{hard}", "--", "env", "-C", str(place.folder)]
            with Server([*limit, *command], place.port, place.environment) as server:
                yield server


def recipe(name, packages=(), prepare=None, options=()):
    """Adds the function below to the programs."""
    def add(configure):
        ALL.append(Recipe(name, configure, list(packages), prepare, list(options)))
        return configure
    return add


def unpacked(package):
    """A Debian package, unpacked and not installed: it would replace another one."""
    folder = CACHE / package
    if not folder.exists():
        with tempfile.TemporaryDirectory() as download:
            os.chmod(download, 0o777)
            subprocess.run(["apt-get", "download", "-q", package], cwd=download, check=True, stdout=sys.stderr)
            [file] = Path(download).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
    return folder


def starttls(protocol):
    return ["--starttls", protocol]


# Databases.


@recipe("PostgreSQL", ["postgresql"], options=starttls("postgres"))
def postgresql(place):
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    data = place.folder / "data"
    place.key.chmod(0o600)
    as_user = place.belongs_to("postgres")
    subprocess.run([*as_user, f"{programs}/initdb", "-D", data, "--auth-host=scram-sha-256", "--auth-local=peer"],
                   check=True, stdout=subprocess.DEVNULL)
    return [*as_user, f"{programs}/postgres", "-D", data, "-p", place.port, "-k", place.folder, "-c", "ssl=on",
            "-c", f"ssl_cert_file={place.cert}", "-c", f"ssl_key_file={place.key}"]


@recipe("MariaDB", ["mariadb-server-core", "mariadb-client-core"], options=starttls("mysql"))
def mariadb(place):
    data = place.folder / "data"
    subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
                    "--auth-root-authentication-method=normal"], check=True, stdout=subprocess.DEVNULL)
    return ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={place.folder}/socket",
            f"--pid-file={place.folder}/pid", "--bind-address=127.0.0.1", f"--port={place.port}",
            f"--ssl-cert={place.cert}", f"--ssl-key={place.key}", f"--ssl-ca={place.ca}"]


@recipe("Redis", ["redis-server"], options=["--send", "PING\\r\\n", "--expect", "any"])
def redis(place):
    usual = Path("/etc/redis/redis.conf").read_text()
    own = (f"\ndaemonize no\nlogfile {place.folder}/log\ndir {place.folder}\npidfile {place.folder}/pid\nport 0\n"
           f"tls-port {place.port}\ntls-cert-file {place.cert}\ntls-key-file {place.key}\ntls-ca-cert-file {place.ca}\n"
           "tls-auth-clients no\n")
    return ["redis-server", place.write("redis.conf", usual + own)]


@recipe("memcached", ["memcached"], options=["--send", "version\\r\\n", "--expect", "any"])
def memcached(place):
    as_user = place.belongs_to("nobody")
    return [*as_user, "memcached", "-l", "127.0.0.1", "-p", place.port, "--enable-ssl", "-o",
            f"ssl_chain_cert={place.cert},ssl_key={place.key}"]


@recipe("OpenLDAP slapd", ["slapd"], options=starttls("ldap"))
def slapd(place):
    place.write("data/.keep", "")
    conf = place.write("slapd.conf", "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n"
                       f"TLSCACertificateFile {place.ca}\nTLSCertificateFile {place.cert}\nTLSCertificateKeyFile {place.key}\n"
                       f"database mdb\nmaxsize 1073741824\nsuffix dc=example,dc=org\ndirectory {place.folder}/data\n")
    return ["slapd", "-d", "0", "-h", f"ldap://127.0.0.1:{place.port}", "-f", conf]


@recipe("etcd", ["etcd-server"])
def etcd(place):
    url, peer = f"https://127.0.0.1:{place.port}", "http://127.0.0.1:0"
    return ["etcd", "--data-dir", place.folder / "data", "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peer, "--cert-file", place.cert, "--key-file", place.key]


# Mail.


def dovecot(place, listeners):
    conf = (f"base_dir = {place.folder}/run\nstate_dir = {place.folder}/state\nlog_path = {place.folder}/log\n"
            f"protocols = imap\nlisten = 127.0.0.1\nssl = yes\nssl_cert = <{place.cert}\nssl_key = <{place.key}\n"
            f"service imap-login {{\n{listeners}}}\n"
            "passdb {\n  driver = pam\n}\nuserdb {\n  driver = passwd\n}\n")
    return ["dovecot", "-F", "-c", place.write("dovecot.conf", conf)]


def listener(name, port):
    return f"  inet_listener {name} {{\n    port = {port}\n  }}\n"


@recipe("Dovecot, STARTTLS", ["dovecot-imapd"], options=starttls("imap"))
def dovecot_starttls(place):
    return dovecot(place, listener("imap", place.port) + listener("imaps", 0))


@recipe("Dovecot, imaps", ["dovecot-imapd"], options=["--send", "a NOOP\\r\\n", "--expect", "any"])
def dovecot_imaps(place):
    return dovecot(place, listener("imap", 0) + listener("imaps", place.port))


@recipe("Postfix", ["postfix"], options=starttls("smtp"))
def postfix(place):
    queue = place.folder / "queue"
    for name in ("active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private", "saved",
                 "trace", "maildrop", "public", "pid"):
        (queue / name).mkdir(parents=True)
    place.write("data/.keep", "")
    place.belongs_to("postfix", "queue", "data")
    os.chown(queue, 0, 0)
    os.chown(queue / "pid", 0, 0)
    for name, mode in (("maildrop", 0o1730), ("public", 0o2710)):
        shutil.chown(queue / name, group="postdrop")
        (queue / name).chmod(mode)
    usual = Path("/usr/share/postfix/master.cf.dist").read_text()
    services = re.sub(r"^smtp +inet", f"127.0.0.1:{place.port} inet", usual, flags=re.M)
    # maillog_file needs this service.
    place.write("conf/master.cf", services + "\npostlog unix-dgram n - n - 1 postlogd\n")
    place.write("conf/main.cf",
                f"compatibility_level = 3.6\nqueue_directory = {queue}\ndata_directory = {place.folder}/data\n"
                "inet_interfaces = loopback-only\ninet_protocols = ipv4\nmyhostname = localhost.localdomain\nalias_maps =\n"
                f"maillog_file = {place.folder}/log\nmaillog_file_prefixes = {place.folder}\n"
                f"smtpd_tls_cert_file = {place.cert}\nsmtpd_tls_key_file = {place.key}\nsmtpd_tls_security_level = may\n"
                "smtp_tls_security_level = may\nsmtp_tls_session_cache_database = btree:${data_directory}/smtp_scache\n")
    return ["/usr/lib/postfix/sbin/master", "-d", "-c", place.folder / "conf"]


def exim_unpacked():
    subprocess.run([LAB / "tools/apt", "libgnutls-dane0", "libdb5.3", "libidn12"], check=True, stdout=sys.stderr)
    unpacked("exim4-daemon-light")
    # The package's program looks up this name.
    subprocess.run("id Debian-exim || useradd --system --no-create-home Debian-exim", shell=True, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@recipe("Exim", prepare=exim_unpacked, options=starttls("smtp"))
def exim(place):
    place.write("spool/.keep", "")
    place.belongs_to("Debian-exim", "spool", "cert.pem", "key.pem")
    conf = place.write("exim.conf", f"primary_hostname = localhost\nspool_directory = {place.folder}/spool\n"
                       f"log_file_path = {place.folder}/spool/%slog\nlocal_interfaces = 127.0.0.1\n"
                       f"daemon_smtp_ports = {place.port}\ntls_advertise_hosts = *\ntls_certificate = {place.cert}\n"
                       f"tls_privatekey = {place.key}\nhost_lookup =\nrfc1413_query_timeout = 0s\n"
                       "acl_smtp_rcpt = acl_rcpt\nbegin acl\nacl_rcpt:\n  deny\n")
    return [CACHE / "exim4-daemon-light/usr/sbin/exim4", "-C", conf, "-bdf", "-q30m"]


# Messaging.

# CONNECT of MQTT 3.1.1: a clean session, 60 s to keep alive, no client id.
MQTT_CONNECT = "\x10\x0c\\0\x04MQTT\x04\x02\\0\x3c\\0\\0"


@recipe("mosquitto", ["mosquitto"], options=["--send", MQTT_CONNECT, "--expect", "any"])
def mosquitto(place):
    place.write("data/.keep", "")
    as_user = place.belongs_to("mosquitto")
    conf = place.write("mosquitto.conf", f"persistence true\npersistence_location {place.folder}/data/\n"
                       f"log_dest file {place.folder}/log\nlistener {place.port} 127.0.0.1\ncafile {place.ca}\n"
                       f"certfile {place.cert}\nkeyfile {place.key}\nallow_anonymous true\n")
    return [*as_user, "mosquitto", "-c", conf]


@recipe("Prosody", ["prosody", "lua-sec"], options=starttls("xmpp"))
def prosody(place):
    usual = Path("/etc/prosody/prosody.cfg.lua").read_text()
    [beginning] = re.findall(r"\A(.*?)^Include ", usual, re.S | re.M)
    beginning = re.sub(r"^(certificates|VirtualHost|pidfile|Include)\b.*$", "", beginning, flags=re.M)
    beginning = re.sub(r"^log = \{.*?^\}", "", beginning, flags=re.S | re.M)
    place.write("data/.keep", "")
    as_user = place.belongs_to("prosody")
    own = (f"data_path = '{place.folder}/data'\npidfile = '{place.folder}/pid'\nlog = {{ info = '{place.folder}/log' }}\n"
           f"interfaces = {{ '127.0.0.1' }}\nc2s_ports = {{ {place.port} }}\ns2s_ports = {{ }}\n"
           f"ssl = {{ certificate = '{place.cert}', key = '{place.key}' }}\nVirtualHost 'localhost'\n")
    return [*as_user, "prosody", "-F", "--config", place.write("prosody.cfg.lua", beginning + own)]


@recipe("RabbitMQ", ["rabbitmq-server"], options=["--send", "AMQP\\0\\0\t\x01", "--expect", "any"])
def rabbitmq(place):
    conf = place.write("rabbitmq.conf", f"listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{place.port}\n"
                       f"ssl_options.cacertfile = {place.ca}\nssl_options.certfile = {place.cert}\n"
                       f"ssl_options.keyfile = {place.key}\nssl_options.verify = verify_none\n")
    mapper = free_port()
    place.environment = {
        "RABBITMQ_CONFIG_FILE": str(conf), "RABBITMQ_MNESIA_BASE": f"{place.folder}/mnesia", "HOME": str(place.folder),
        "RABBITMQ_LOG_BASE": f"{place.folder}/log", "RABBITMQ_NODENAME": "lab@localhost", "ERL_EPMD_PORT": str(mapper),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_ENABLED_PLUGINS_FILE": f"{place.folder}/plugins",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    # The name server of Erlang would outlive the node: it is its child here.
    return ["sh", "-c", "epmd & exec /usr/lib/rabbitmq/bin/rabbitmq-server"]


@recipe("ejabberd", ["ejabberd"], options=starttls("xmpp"))
def ejabberd(place):
    conf = place.write("conf/ejabberd.yml", f"hosts:\n  - localhost\nloglevel: warning\ncertfiles:\n  - {place.both}\n"
                       f"listen:\n  - port: {place.port}\n    ip: 127.0.0.1\n    module: ejabberd_c2s\n    starttls_required: true\n"
                       "modules:\n  mod_disco: {}\n  mod_roster: {}\n")
    for name in ("spool", "log"):
        place.write(f"{name}/.keep", "")
    as_user = place.belongs_to("ejabberd")
    place.environment = {"HOME": str(place.folder), "ERL_EPMD_PORT": str(free_port()), "ERL_EPMD_ADDRESS": "127.0.0.1"}
    words = f"-f {conf} -d {conf.parent} -s {place.folder}/spool -l {place.folder}/log -n lab@localhost foreground"
    return [*as_user, "sh", "-c", f"epmd & exec ejabberdctl {words}"]


@recipe("NATS", ["nats-server"])
def nats(place):
    conf = place.write("nats.conf", f'listen: "127.0.0.1:{place.port}"\ntls {{ cert_file: "{place.cert}", key_file: "{place.key}" }}\n')
    return ["nats-server", "-c", conf]


@recipe("ngIRCd", ["ngircd"], options=["--send", "PING x\\r\\n", "--expect", "any"])
def ngircd(place):
    as_user = place.belongs_to("irc")
    conf = place.write("ngircd.conf", "[Global]\nName = irc.example.org\nInfo = lab\nListen = 127.0.0.1\nPorts = 0\n"
                       "[Options]\nDNS = no\nIdent = no\nPAM = no\n"
                       f"[SSL]\nCertFile = {place.cert}\nKeyFile = {place.key}\nPorts = {place.port}\n")
    return [*as_user, "ngircd", "-n", "-f", conf]


# File transfer and names.


@recipe("vsftpd, implicit TLS", ["libwrap0", "libcap2"], prepare=lambda: unpacked("vsftpd"),
        options=["--send", "FEAT\\r\\n", "--expect", "any"])
def vsftpd(place):
    usual = (CACHE / "vsftpd/etc/vsftpd.conf").read_text()
    place.write("empty/.keep", "").unlink()
    usual = re.sub(r"^(listen|listen_ipv6|ssl_enable|rsa_cert_file|rsa_private_key_file|secure_chroot_dir)=.*$", "", usual, flags=re.M)
    own = (f"\nlisten=YES\nlisten_address=127.0.0.1\nlisten_port={place.port}\nbackground=NO\nssl_enable=YES\n"
           f"implicit_ssl=YES\nrsa_cert_file={place.cert}\nrsa_private_key_file={place.key}\nsecure_chroot_dir={place.folder}/empty\n")
    return [CACHE / "vsftpd/usr/sbin/vsftpd", place.write("vsftpd.conf", usual + own)]


@recipe("ProFTPD, implicit TLS", ["proftpd-core", "proftpd-mod-crypto"], options=["--send", "FEAT\\r\\n", "--expect", "any"])
def proftpd(place):
    conf = place.write("proftpd.conf", "ModulePath /usr/lib/proftpd\nLoadModule mod_tls.c\nServerType standalone\n"
                       f"DefaultAddress 127.0.0.1\nPort {place.port}\nUser nobody\nGroup nogroup\nMaxInstances 30\n"
                       f"UseIPv6 off\nUseReverseDNS off\nPidFile {place.folder}/pid\nScoreboardFile {place.folder}/scoreboard\n"
                       f"TransferLog {place.folder}/transfers\nSystemLog {place.folder}/log\n<IfModule mod_tls.c>\n"
                       f"TLSEngine on\nTLSLog {place.folder}/tls.log\nTLSRSACertificateFile {TLS}/rsa-cert.pem\n"
                       f"TLSRSACertificateKeyFile {TLS}/rsa-key.pem\nTLSOptions UseImplicitSSL NoSessionReuseRequired\n</IfModule>\n")
    return ["proftpd", "-n", "-c", conf]


# A query for the root's name servers over TCP: its length, then the message.
DNS_QUERY = "\\0\x11\x12\x34\x01\\0\\0\x01\\0\\0\\0\\0\\0\\0\\0\\0\x02\\0\x01"


@recipe("Unbound, DNS over TLS", ["unbound"], options=["--send", DNS_QUERY, "--expect", "any"])
def unbound(place):
    conf = place.write("unbound.conf", f"server:\n  interface: 127.0.0.1@{place.port}\n  tls-port: {place.port}\n"
                       f"  tls-service-key: {place.key}\n  tls-service-pem: {place.cert}\n  username: ''\n  chroot: ''\n"
                       f"  pidfile: {place.folder}/pid\n  logfile: {place.folder}/log\n  directory: {place.folder}\n"
                       "  local-zone: '.' static\n  local-data: '. NS a.example.'\nremote-control:\n  control-enable: no\n")
    return ["unbound", "-d", "-c", conf]


@recipe("dnsdist, DNS over TLS", ["dnsdist"], options=["--send", DNS_QUERY, "--expect", "any"])
def dnsdist(place):
    conf = place.write("dnsdist.conf", f"addTLSLocal('127.0.0.1:{place.port}', '{place.cert}', '{place.key}')\n"
                       "addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))\n")
    return ["dnsdist", "--supervised", "--disable-syslog", "-C", conf]
