/* NSS, the library of Firefox (libnss3-dev). */
#include <nss.h>
#include <pk11pub.h>
#include <cert.h>
#include <certdb.h>
#include <nssb64.h>
#include <private/pprio.h>
#include <ssl.h>
#include <sslexp.h>
#include <sslproto.h>
#include <prerror.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stack.h"

static const struct options *options;
static CERTCertificate *own;
static SECKEYPrivateKey *own_key;

static void check(int ok, const char *what) {
    if (!ok)
        fail(what, PR_ErrorToName(PR_GetError()));
}

/* The contents of the first PEM block of a file. */
static SECItem *read_pem(const char *path) {
    static char text[16384];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("open", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    char *from = strstr(text, "-----\n"), *to = from ? strstr(from, "\n-----") : NULL;
    if (to == NULL)
        fail("PEM", path);
    from += 6;
    SECItem *item = NSSBase64_DecodeBuffer(NULL, NULL, from, (unsigned)(to - from));
    check(item != NULL, path);
    return item;
}

static CERTCertificate *read_certificate(const char *path) {
    CERTCertificate *made = CERT_NewTempCertificate(CERT_GetDefaultCertDB(), read_pem(path), NULL,
                                                    PR_FALSE, PR_TRUE);
    check(made != NULL, path);
    return made;
}

static SECStatus show_own(void *unused, PRFileDesc *fd, CERTDistNames *names,
                          CERTCertificate **certificate, SECKEYPrivateKey **key) {
    (void)unused, (void)fd, (void)names;
    *certificate = CERT_DupCertificate(own);
    *key = SECKEY_CopyPrivateKey(own_key);
    return SECSuccess;
}

void tls_setup(const struct options *given) {
    options = given;
    check(NSS_NoDB_Init(NULL) == SECSuccess, "NSS_NoDB_Init");
    NSS_SetDomesticPolicy();
    CERTCertificate *authority = read_certificate(given->authority);
    CERTCertTrust trust = {.sslFlags = CERTDB_TRUSTED_CA | CERTDB_TRUSTED_CLIENT_CA |
                                       CERTDB_VALID_CA};
    check(CERT_ChangeCertTrust(CERT_GetDefaultCertDB(), authority, &trust) == SECSuccess, "trust");
    own = read_certificate(given->certificate);
    check(PK11_ImportDERPrivateKeyInfoAndReturnKey(PK11_GetInternalKeySlot(), read_pem(given->key),
                                                   NULL, NULL, PR_FALSE, PR_FALSE, KU_ALL, &own_key,
                                                   NULL) == SECSuccess,
          "key");
    if (given->is_server)
        check(SSL_ConfigServerSessionIDCache(0, 0, 0, NULL) == SECSuccess, "session cache");
}

struct tls *tls_open(int socket) {
    PRFileDesc *tcp = PR_ImportTCPSocket(socket);
    PRSocketOptionData blocking = {.option = PR_SockOpt_Nonblocking, .value.non_blocking = PR_FALSE};
    PR_SetSocketOption(tcp, &blocking);
    PRFileDesc *fd = SSL_ImportFD(NULL, tcp);
    PRUint16 version = options->is_tls13 ? SSL_LIBRARY_VERSION_TLS_1_3 : SSL_LIBRARY_VERSION_TLS_1_2;
    SSLVersionRange versions = {version, version};
    check(SSL_VersionRangeSet(fd, &versions) == SECSuccess, "versions");
    SSL_OptionSet(fd, SSL_ENABLE_SESSION_TICKETS, PR_TRUE);
    SSL_OptionSet(fd, SSL_ENABLE_EXTENDED_MASTER_SECRET, PR_TRUE);
    if (options->is_server) {
        SSL_OptionSet(fd, SSL_REQUEST_CERTIFICATE, PR_TRUE);
        SSL_OptionSet(fd, SSL_REQUIRE_CERTIFICATE, SSL_REQUIRE_ALWAYS);
        check(SSL_ConfigServerCert(fd, own, own_key, NULL, 0) == SECSuccess, "certificate");
    } else {
        SSL_SetURL(fd, "localhost");
        SSL_SetSockPeerID(fd, options->port);
        SSL_GetClientAuthDataHook(fd, show_own, NULL);
    }
    check(SSL_ResetHandshake(fd, options->is_server) == SECSuccess, "reset");
    check(SSL_ForceHandshake(fd) == SECSuccess, "handshake");
    return (struct tls *)fd;
}

int tls_read(struct tls *tls, char *bytes, int max) {
    int n = PR_Recv((PRFileDesc *)tls, bytes, max, 0, PR_INTERVAL_NO_TIMEOUT);
    check(n >= 0, "read");
    return n;
}

void tls_write(struct tls *tls, const char *bytes, int count) {
    int n = PR_Send((PRFileDesc *)tls, bytes, count, 0, PR_INTERVAL_NO_TIMEOUT);
    check(n == count, "write");
}

int tls_update(struct tls *tls) {
    if (!options->is_tls13)
        return 0;
    check(SSL_KeyUpdate((PRFileDesc *)tls, PR_TRUE) == SECSuccess, "update");
    return 1;
}

/* NSS keeps sessions on its own. */
void tls_save(struct tls *tls) { (void)tls; }

const int tls_half_closes = 1;

void tls_end(struct tls *tls) { PR_Shutdown((PRFileDesc *)tls, PR_SHUTDOWN_SEND); }

const char *tls_version(struct tls *tls) {
    SSLChannelInfo info;
    check(SSL_GetChannelInfo((PRFileDesc *)tls, &info, sizeof info) == SECSuccess, "info");
    return info.protocolVersion == SSL_LIBRARY_VERSION_TLS_1_3   ? "TLSv1.3"
           : info.protocolVersion == SSL_LIBRARY_VERSION_TLS_1_2 ? "TLSv1.2"
                                                                 : "other";
}

int tls_is_resumed(struct tls *tls) {
    SSLChannelInfo info;
    check(SSL_GetChannelInfo((PRFileDesc *)tls, &info, sizeof info) == SECSuccess, "info");
    return info.resumed;
}

int tls_is_client_verified(struct tls *tls) {
    return SSL_PeerCertificate((PRFileDesc *)tls) != NULL;
}

void tls_free(struct tls *tls) { PR_Close((PRFileDesc *)tls); }
