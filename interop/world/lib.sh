# Functions for the rows of interop/world. Sourced before the shell lines of each row.

# The program under test.
dormouse() { "$DORMOUSE" "$@"; }

# A self-signed authority: `authority NAME [more arguments of openssl req]`.
authority() {
    name=$1; shift
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=$name" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout "$name.key" -out "$name.pem" "$@" 2>/dev/null
}

# A certificate signed by an authority: `issue NAME AUTHORITY EXTENSIONS [FROM [TO]]`. The key NAME.key is made unless it
# is there; extensions are lines as in openssl.cnf; dates are YYYYMMDDHHMMSSZ; SUBJECT is the subject unless CN is enough.
issue() {
    [ -e "$1.key" ] || openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -new -key "$1.key" -utf8 -subj "${SUBJECT-/CN=$1}" -out "$1.csr" 2>/dev/null
    ledger "$2"
    printf '%b' "$3" >"$1.ext"
    openssl ca -batch -notext -config "$2.ca/cnf" -cert "$2.pem" -keyfile "$2.key" -in "$1.csr" -out "$1.pem" \
        -extfile "$1.ext" -startdate "${4-20200101000000Z}" -enddate "${5-20491231235959Z}" ${MORE-} 2>"$1.issued" ||
        { cat "$1.issued"; return 1; }
    rm -f "$1.csr" "$1.ext" "$1.issued"
}

# A certificate of version 1 for a request, as `openssl x509 -req` made them until OpenSSL 3.2: `version_1 REQUEST NAME.pem
# KEY` is self-signed, `version_1 REQUEST NAME.pem KEY AUTHORITY.pem` is signed by an authority with this key.
version_1() {
    if [ $# -eq 3 ]; then
        openssl req -x509v1 -in "$1" -key "$3" -days 30 -out "$2" 2>/dev/null ||
            openssl x509 -req -in "$1" -signkey "$3" -days 30 -out "$2" 2>/dev/null
    else
        openssl req -x509v1 -in "$1" -CA "$4" -CAkey "$3" -days 30 -out "$2" 2>/dev/null ||
            openssl x509 -req -in "$1" -CA "$4" -CAkey "$3" -CAcreateserial -days 30 -out "$2" 2>/dev/null
    fi
}

# The database of an authority.
ledger() {
    [ -d "$1.ca" ] && return
    mkdir "$1.ca"; : >"$1.ca/index"; openssl rand -hex 15 | sed 's/^/4a/' >"$1.ca/serial"; echo 01 >"$1.ca/number"
    cat >"$1.ca/cnf" <<END
[ca]
default_ca = x
[x]
database = $1.ca/index
serial = $1.ca/serial
crlnumber = $1.ca/number
new_certs_dir = $1.ca
policy = any
unique_subject = no
default_md = sha256
default_days = 3650
default_crl_days = 3650
crl_extensions = list
[list]
authorityKeyIdentifier = keyid
[any]
commonName = optional
organizationName = optional
organizationalUnitName = optional
countryName = optional
localityName = optional
emailAddress = optional
END
}

# Marks a certificate as revoked: `revoke NAME AUTHORITY`.
revoke() { openssl ca -batch -config "$2.ca/cnf" -cert "$2.pem" -keyfile "$2.key" -revoke "$1.pem" 2>/dev/null; }

# The revocation list of an authority, NAME.crl: `list AUTHORITY [more arguments of openssl ca]`.
list() {
    name=$1; shift
    ledger "$name"
    openssl ca -batch -config "$name.ca/cnf" -cert "$name.pem" -keyfile "$name.key" -gencrl -out "$name.crl" "$@" 2>/dev/null
}

# `cat` of two files, of which the first has no line break at its end.
glue() { printf %s "$(cat "$1")"; cat "$2"; }

# Extensions of a server's certificate, and of a client's.
server() { printf 'basicConstraints=critical,CA:FALSE\\nextendedKeyUsage=serverAuth\\nsubjectAltName=%s\\n' "$1"; }
client_only='basicConstraints=critical,CA:FALSE\nextendedKeyUsage=clientAuth\n'
authority_only='basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n'

# Files that every row finds in its folder: a root, an authority below it, a certificate for site.test with its chain, the
# same with RSA, one for other.test, and a client's certificate.
common() {
    authority root; authority stranger
    issue inter root "$authority_only"
    issue site inter "$(server DNS:site.test,DNS:localhost)"
    issue other root "$(server DNS:other.test)"
    openssl genrsa -out rsa.key 2048 2>/dev/null
    issue rsa inter "$(server DNS:site.test,DNS:localhost)"
    issue alice root "$client_only"
    cat site.pem inter.pem >chain.pem
    cat rsa.pem inter.pem >rsachain.pem
    cat alice.pem alice.key >alice.both
}

# A connection of OpenSSL's client that sends nothing: `ask [arguments]`.
ask() { openssl s_client -connect "$AT" -CAfile root.pem "$@" </dev/null 2>&1; }

# The names of all certificates that are shown for site.test, on one line.
shown() { ask -servername site.test -showcerts "$@" | sed -n 's/^ *[0-9]* s:.*CN *= *//p' | tr '\n' ' '; }

# Waits until the file `said` has this text, for 10 s at most.
wait_for() {
    tries=0
    until grep -qa "$1" said 2>/dev/null || [ $tries -gt 100 ]; do tries=$((tries + 1)); sleep 0.1; done
}

# Waits until the program's log has this text, for 15 s at most.
await() {
    tries=0
    until grep -qa "$1" "$LOG" || [ $tries -gt 150 ]; do tries=$((tries + 1)); sleep 0.1; done
}

# A session of OpenSSL's client, in the file `s`: `session [arguments]`.
session() {
    rm -f s; { wait_for 'Verify return'; echo hello; wait_for '^hello'; } |
        openssl s_client -connect "$AT" -sess_out s "$@" >said 2>&1
}

# One connection of client.py, which says hello: `talk [arguments]`.
talk() { python3 "$WORLD/client.py" "$@"; }

# Sends a text (with escapes as in Python) to a port of the program, and prints what comes back: `plain PORT TEXT`.
plain() {
    python3 -c '
import socket, sys
try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 8)
    peer.sendall(sys.argv[3].encode("latin-1").decode("unicode_escape").encode("latin-1"))
    while data := peer.recv(4096):
        sys.stdout.write(data.decode("latin-1"))
    print("end fin")
except OSError as error:
    print("end", error)' "$HOST" "$@"
}

# Makes the running program read its files again.
reload() {
    case $PROGRAM in
    dormouse) dormouse reload -c dormouse.toml 2>&1 ;;
    nginx) kill -HUP "$PID"; sleep 0.5 ;;
    esac
}

# A ClientHello in hex, with these extensions and what follows them, both in hex: `hello EXTENSIONS [TAIL]`.
hello() {
    python3 -c '
import sys
def sized(data, n): return len(data).to_bytes(n, "big") + data
extensions, tail = [bytes.fromhex(text) for text in (sys.argv[1:] + [""])[:2]]
body = b"\3\3" + bytes(32) + b"\0" + sized(b"\xc0\x2b\xc0\x2f", 2) + b"\1\0" + sized(extensions, 2) + tail
print((b"\x16\3\1" + sized(b"\1" + sized(body, 3), 2)).hex())' "$@"
}

# Extensions for it: the name site.test; a group and a signature.
site_name=0000000e000c000009736974652e74657374
usual=000a000400020017000d000400020403

# The extension with these server names, which are in hex: `names NAME…`.
names() {
    python3 -c '
import sys
def sized(data): return len(data).to_bytes(2, "big") + data
names = [b"\0" + sized(bytes.fromhex(name)) for name in sys.argv[1:]]
print((b"\0\0" + sized(sized(b"".join(names)))).hex())' "$@"
}

# A text in hex: `hex FORMAT`.
hex() { printf "$@" | od -An -v -tx1 | tr -d ' \n'; }

# Serves with Redis at SERVER what a command has made there, from the first connection on: `store_with COMMAND…`.
store_with() {
    redis-server --port 0 --unixsocket "$PWD/first" --dir "$PWD" >/dev/null &
    until redis-cli -s "$PWD/first" "$@" >/dev/null 2>&1; do sleep 0.05; done
    redis-cli -s "$PWD/first" shutdown save
    wait
    exec redis-server --bind "${SERVER%:*}" --port "${SERVER#*:}" --dir "$PWD" --save ''
}

# What the client of the row before has printed.
rm -f said
