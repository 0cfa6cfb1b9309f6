/* GnuTLS (libgnutls28-dev). */
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

#include "stack.h"

static gnutls_certificate_credentials_t credentials;
static gnutls_datum_t session_data, ticket_key;
static const struct options *options;

static void check(int result, const char *what) {
    if (result < 0)
        fail(what, gnutls_strerror(result));
}

void tls_setup(const struct options *given) {
    options = given;
    check(gnutls_certificate_allocate_credentials(&credentials), "credentials");
    check(gnutls_certificate_set_x509_trust_file(credentials, given->authority, GNUTLS_X509_FMT_PEM),
          "authority");
    check(gnutls_certificate_set_x509_key_file(credentials, given->certificate, given->key,
                                               GNUTLS_X509_FMT_PEM),
          "certificate");
    check(gnutls_session_ticket_key_generate(&ticket_key), "ticket key");
}

struct tls *tls_open(int fd) {
    gnutls_session_t session;
    check(gnutls_init(&session, options->is_server ? GNUTLS_SERVER : GNUTLS_CLIENT), "session");
    check(gnutls_priority_set_direct(session,
                                     options->is_tls13 ? "NORMAL:-VERS-ALL:+VERS-TLS1.3"
                                                       : "NORMAL:-VERS-ALL:+VERS-TLS1.2",
                                     NULL),
          "priorities");
    check(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials), "credentials");
    if (options->is_server) {
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert(session, NULL, 0);
        check(gnutls_session_ticket_enable_server(session, &ticket_key), "tickets");
    } else {
        gnutls_server_name_set(session, GNUTLS_NAME_DNS, "localhost", 9);
        gnutls_session_set_verify_cert(session, "localhost", 0);
        if (session_data.size > 0)
            check(gnutls_session_set_data(session, session_data.data, session_data.size),
                  "session data");
    }
    gnutls_transport_set_int(session, fd);
    int result;
    do
        result = gnutls_handshake(session);
    while (result < 0 && !gnutls_error_is_fatal(result));
    check(result, "handshake");
    return (struct tls *)session;
}

int tls_read(struct tls *tls, char *bytes, int max) {
    ssize_t n;
    do
        n = gnutls_record_recv((gnutls_session_t)tls, bytes, (size_t)max);
    while (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED);
    check((int)n, "read");
    return (int)n;
}

void tls_write(struct tls *tls, const char *bytes, int count) {
    check((int)gnutls_record_send((gnutls_session_t)tls, bytes, (size_t)count), "write");
}

int tls_update(struct tls *tls) {
    if (!options->is_tls13)
        return 0;
    check(gnutls_session_key_update((gnutls_session_t)tls, GNUTLS_KU_PEER), "update");
    return 1;
}

void tls_save(struct tls *tls) {
    check(gnutls_session_get_data2((gnutls_session_t)tls, &session_data), "session data");
}

const int tls_half_closes = 1;

void tls_end(struct tls *tls) { gnutls_bye((gnutls_session_t)tls, GNUTLS_SHUT_WR); }

const char *tls_version(struct tls *tls) {
    gnutls_protocol_t version = gnutls_protocol_get_version((gnutls_session_t)tls);
    return version == GNUTLS_TLS1_3 ? "TLSv1.3" : version == GNUTLS_TLS1_2 ? "TLSv1.2" : "other";
}

int tls_is_resumed(struct tls *tls) { return gnutls_session_is_resumed((gnutls_session_t)tls) != 0; }

int tls_is_client_verified(struct tls *tls) {
    unsigned count = 0;
    return gnutls_certificate_get_peers((gnutls_session_t)tls, &count) != NULL && count > 0;
}

void tls_free(struct tls *tls) { gnutls_deinit((gnutls_session_t)tls); }
