/* wolfSSL (libwolfssl-dev). */
#include <wolfssl/options.h>

#include <wolfssl/ssl.h>

#include "stack.h"

static WOLFSSL_CTX *context;
static WOLFSSL_SESSION *session;
static const struct options *options;

static void check(int result, const char *what, WOLFSSL *ssl) {
    if (result == WOLFSSL_SUCCESS)
        return;
    char why[WOLFSSL_MAX_ERROR_SZ];
    fail(what, wolfSSL_ERR_error_string((unsigned long)wolfSSL_get_error(ssl, result), why));
}

void tls_setup(const struct options *given) {
    options = given;
    wolfSSL_Init();
    WOLFSSL_METHOD *method;
    if (given->is_server)
        method = given->is_tls13 ? wolfTLSv1_3_server_method() : wolfTLSv1_2_server_method();
    else
        method = given->is_tls13 ? wolfTLSv1_3_client_method() : wolfTLSv1_2_client_method();
    context = wolfSSL_CTX_new(method);
    if (context == NULL)
        fail("wolfSSL_CTX_new", "no memory");
    check(wolfSSL_CTX_load_verify_locations(context, given->authority, NULL), "authority", NULL);
    check(wolfSSL_CTX_use_certificate_chain_file(context, given->certificate), "certificate", NULL);
    check(wolfSSL_CTX_use_PrivateKey_file(context, given->key, WOLFSSL_FILETYPE_PEM), "key", NULL);
    int asks = WOLFSSL_VERIFY_PEER | (given->is_server ? WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
    wolfSSL_CTX_set_verify(context, asks, NULL);
#ifdef HAVE_SESSION_TICKET
    if (!given->is_server)
        wolfSSL_CTX_UseSessionTicket(context);
#endif
}

struct tls *tls_open(int fd) {
    WOLFSSL *ssl = wolfSSL_new(context);
    wolfSSL_set_fd(ssl, fd);
    if (options->is_server) {
        check(wolfSSL_accept(ssl), "accept", ssl);
    } else {
        wolfSSL_UseSNI(ssl, WOLFSSL_SNI_HOST_NAME, "localhost", 9);
        check(wolfSSL_check_domain_name(ssl, "localhost"), "name", ssl);
        if (session != NULL)
            check(wolfSSL_set_session(ssl, session), "session", ssl);
        check(wolfSSL_connect(ssl), "connect", ssl);
    }
    return (struct tls *)ssl;
}

int tls_read(struct tls *tls, char *bytes, int max) {
    WOLFSSL *ssl = (WOLFSSL *)tls;
    int n = wolfSSL_read(ssl, bytes, max);
    if (n > 0)
        return n;
    if (wolfSSL_get_error(ssl, n) == WOLFSSL_ERROR_ZERO_RETURN)
        return 0;
    check(n, "read", ssl);
    return 0;
}

void tls_write(struct tls *tls, const char *bytes, int count) {
    WOLFSSL *ssl = (WOLFSSL *)tls;
    int n = wolfSSL_write(ssl, bytes, count);
    check(n == count ? WOLFSSL_SUCCESS : n, "write", ssl);
}

int tls_update(struct tls *tls) {
    if (!options->is_tls13)
        return 0;
    check(wolfSSL_update_keys((WOLFSSL *)tls), "update", (WOLFSSL *)tls);
    return 1;
}

void tls_save(struct tls *tls) { session = wolfSSL_get1_session((WOLFSSL *)tls); }

const int tls_half_closes = 1;

void tls_end(struct tls *tls) { wolfSSL_shutdown((WOLFSSL *)tls); }

const char *tls_version(struct tls *tls) { return wolfSSL_get_version((WOLFSSL *)tls); }

int tls_is_resumed(struct tls *tls) { return wolfSSL_session_reused((WOLFSSL *)tls); }

/* A resumed connection has no peer certificate: the full handshake before it verified one. */
int tls_is_client_verified(struct tls *tls) {
    return wolfSSL_get_peer_certificate((WOLFSSL *)tls) != NULL || tls_is_resumed(tls);
}

void tls_free(struct tls *tls) { wolfSSL_free((WOLFSSL *)tls); }
