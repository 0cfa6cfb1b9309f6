/* Mbed TLS 2.28 (libmbedtls-dev of Debian 12), which has no TLS 1.3 for servers, and only an incomplete one for clients; and
 * 3.6 (Debian 13), with TLS 1.2 only, too. */
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_ticket.h>
#include <mbedtls/version.h>
#include <stdlib.h>
#include <string.h>

#if MBEDTLS_VERSION_MAJOR >= 3
#include <psa/crypto.h>
#define STATE MBEDTLS_PRIVATE(state)
#else
#define STATE state
#endif

#include "stack.h"

static mbedtls_entropy_context entropy;
static mbedtls_ctr_drbg_context random_bytes;
static mbedtls_x509_crt certificate, authority;
static mbedtls_pk_context key;
static mbedtls_ssl_config config;
static mbedtls_ssl_ticket_context tickets;
static mbedtls_ssl_session session;
static int has_session;
static const struct options *options;

struct tls {
    mbedtls_ssl_context ssl;
    mbedtls_net_context net;
    int is_resumed;
};

static void check(int result, const char *what) {
    char why[128];
    if (result >= 0)
        return;
    mbedtls_strerror(result, why, sizeof why);
    fail(what, why);
}

void tls_setup(const struct options *given) {
    options = given;
    if (given->is_tls13)
        fail("version", "this Mbed TLS has no TLS 1.3");
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random_bytes);
    check(mbedtls_ctr_drbg_seed(&random_bytes, mbedtls_entropy_func, &entropy, NULL, 0), "random");
    mbedtls_x509_crt_init(&certificate);
    mbedtls_x509_crt_init(&authority);
    mbedtls_pk_init(&key);
    check(mbedtls_x509_crt_parse_file(&certificate, given->certificate), "certificate");
    check(mbedtls_x509_crt_parse_file(&authority, given->authority), "authority");
#if MBEDTLS_VERSION_MAJOR >= 3
    check(psa_crypto_init(), "cryptography");
    check(mbedtls_pk_parse_keyfile(&key, given->key, NULL, mbedtls_ctr_drbg_random, &random_bytes),
          "key");
#else
    check(mbedtls_pk_parse_keyfile(&key, given->key, NULL), "key");
#endif
    mbedtls_ssl_config_init(&config);
    check(mbedtls_ssl_config_defaults(&config,
                                      given->is_server ? MBEDTLS_SSL_IS_SERVER
                                                       : MBEDTLS_SSL_IS_CLIENT,
                                      MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT),
          "defaults");
#if MBEDTLS_VERSION_MAJOR >= 3
    mbedtls_ssl_conf_max_tls_version(&config, MBEDTLS_SSL_VERSION_TLS1_2);
#endif
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random_bytes);
    mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_ssl_conf_ca_chain(&config, &authority, NULL);
    check(mbedtls_ssl_conf_own_cert(&config, &certificate, &key), "own certificate");
    if (given->is_server) {
        mbedtls_ssl_ticket_init(&tickets);
        check(mbedtls_ssl_ticket_setup(&tickets, mbedtls_ctr_drbg_random, &random_bytes,
                                       MBEDTLS_CIPHER_AES_256_GCM, 3600),
              "tickets");
        mbedtls_ssl_conf_session_tickets_cb(&config, mbedtls_ssl_ticket_write,
                                            mbedtls_ssl_ticket_parse, &tickets);
    }
    mbedtls_ssl_session_init(&session);
}

struct tls *tls_open(int fd) {
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        fail("open", "no memory");
    mbedtls_ssl_init(&tls->ssl);
    check(mbedtls_ssl_setup(&tls->ssl, &config), "setup");
    tls->net.fd = fd;
    mbedtls_ssl_set_bio(&tls->ssl, &tls->net, mbedtls_net_send, mbedtls_net_recv, NULL);
    if (!options->is_server) {
        check(mbedtls_ssl_set_hostname(&tls->ssl, "localhost"), "name");
        if (has_session)
            check(mbedtls_ssl_set_session(&tls->ssl, &session), "session");
    }
    int result;
    /* A resumed handshake verifies no certificate, and has no key exchange to wait for. */
    int has_exchanged_keys = 0;
    while (tls->ssl.STATE != MBEDTLS_SSL_HANDSHAKE_OVER) {
        if (tls->ssl.STATE == MBEDTLS_SSL_CLIENT_KEY_EXCHANGE)
            has_exchanged_keys = 1;
        result = mbedtls_ssl_handshake_step(&tls->ssl);
        if (result != MBEDTLS_ERR_SSL_WANT_READ && result != MBEDTLS_ERR_SSL_WANT_WRITE)
            check(result, "handshake");
    }
    tls->is_resumed = !has_exchanged_keys;
    return tls;
}

int tls_read(struct tls *tls, char *bytes, int max) {
    int n = mbedtls_ssl_read(&tls->ssl, (unsigned char *)bytes, (size_t)max);
    if (n == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY)
        return 0;
    if (n == 0)
        fail("read", "an end without close_notify");
    check(n, "read");
    return n;
}

void tls_write(struct tls *tls, const char *bytes, int count) {
    while (count > 0) {
        int n = mbedtls_ssl_write(&tls->ssl, (const unsigned char *)bytes, (size_t)count);
        check(n, "write");
        bytes += n;
        count -= n;
    }
}

int tls_update(struct tls *tls) {
    (void)tls;
    return 0;
}

void tls_save(struct tls *tls) {
    check(mbedtls_ssl_get_session(&tls->ssl, &session), "session");
    has_session = 1;
}

const int tls_half_closes = 1;

void tls_end(struct tls *tls) { mbedtls_ssl_close_notify(&tls->ssl); }

const char *tls_version(struct tls *tls) { return mbedtls_ssl_get_version(&tls->ssl); }

int tls_is_resumed(struct tls *tls) { return tls->is_resumed; }

/* A resumed connection has no peer certificate: the full handshake before it verified one. */
int tls_is_client_verified(struct tls *tls) {
    return mbedtls_ssl_get_peer_cert(&tls->ssl) != NULL || tls->is_resumed;
}

void tls_free(struct tls *tls) {
    mbedtls_ssl_free(&tls->ssl);
    free(tls);
}
