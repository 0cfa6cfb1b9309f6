/* An echo server on OpenSSL alone, as a program in C is written today: one context, one thread, epoll.
 *
 *   openssl-echo VARIANT PORT CERT KEY      (run describes the variants)
 *
 * Bytes that a peer does not take are kept, and nothing more is read from it until it has taken them. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, BACKLOG = 4096, CACHE_SMALL = 100 };

struct connection {
    SSL *ssl;
    int fd;
    int length; /* of what the peer did not take, or 0 */
    char *kept;
};

static int poller;
static char scratch[16384];

static void die(const char *what)
{
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(3);
}

static void watch(struct connection *connection, unsigned events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(poller, operation, connection->fd, &event) != 0)
        die("epoll_ctl");
}

static void drop(struct connection *connection)
{
    /* Without it OpenSSL takes the session out of its cache again. */
    if (SSL_is_init_finished(connection->ssl))
        SSL_shutdown(connection->ssl);
    ERR_clear_error();
    SSL_free(connection->ssl);
    close(connection->fd);
    free(connection->kept);
    free(connection);
}

/* The event to wait for after an incomplete call; 0: the connection is over. */
static unsigned awaited(struct connection *connection, int result)
{
    switch (SSL_get_error(connection->ssl, result)) {
    case SSL_ERROR_WANT_READ: return EPOLLIN;
    case SSL_ERROR_WANT_WRITE: return EPOLLOUT;
    default: ERR_clear_error(); return 0;
    }
}

/* Works as far as possible, and returns the event to wait for. */
static unsigned work(struct connection *connection)
{
    for (;;) {
        if (connection->length > 0) {
            int sent = SSL_write(connection->ssl, connection->kept, connection->length);
            if (sent <= 0)
                return awaited(connection, sent);
            free(connection->kept);
            connection->kept = NULL;
            connection->length = 0;
        }
        int got = SSL_read(connection->ssl, scratch, sizeof scratch);
        if (got <= 0)
            return awaited(connection, got);
        int sent = SSL_write(connection->ssl, scratch, got);
        if (sent <= 0) {
            unsigned events = awaited(connection, sent);
            if (events == 0 || (connection->kept = malloc(got)) == NULL)
                return 0;
            memcpy(connection->kept, scratch, got);
            connection->length = got;
            return events;
        }
    }
}

/* A fixed key that several servers share: for a laboratory only. */
static int ticket_key(SSL *ssl, unsigned char name[16], unsigned char iv[EVP_MAX_IV_LENGTH], EVP_CIPHER_CTX *cipher,
                      EVP_MAC_CTX *mac, int seals)
{
    static unsigned char key[32];
    (void)ssl;
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key, sizeof key),
                               OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0), OSSL_PARAM_END};
    if (seals) {
        memset(name, 0, 16);
        for (int i = 0; i < 16; i++)
            iv[i] = (unsigned char)rand();
    }
    return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key, iv, seals) && EVP_MAC_CTX_set_params(mac, parameters);
}

static SSL_CTX *context_of(const char *variant, const char *certificate, const char *key)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        die(certificate);
    SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"lab", 3);
    if (strcmp(variant, "memory") == 0)
        SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    if (strcmp(variant, "small-cache") == 0)
        SSL_CTX_sess_set_cache_size(context, CACHE_SMALL);
    if (strcmp(variant, "cache-off") == 0)
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (strcmp(variant, "compression") == 0) {
        SSL_CTX_clear_options(context, SSL_OP_NO_COMPRESSION);
        SSL_CTX_set_security_level(context, 0);
        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    }
    if (strcmp(variant, "ticket-key") == 0)
        SSL_CTX_set_tlsext_ticket_key_evp_cb(context, ticket_key);
    return context;
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0)
        die("listen");
    return fd;
}

static void accept_all(int listener, SSL_CTX *context)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *connection = calloc(1, sizeof *connection);
        if (connection == NULL || (connection->ssl = SSL_new(context)) == NULL)
            die("memory");
        connection->fd = fd;
        SSL_set_fd(connection->ssl, fd);
        SSL_set_accept_state(connection->ssl);
        watch(connection, EPOLLIN, EPOLL_CTL_ADD);
    }
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "version") == 0) {
        puts(OpenSSL_version(OPENSSL_VERSION_STRING));
        return 0;
    }
    if (count != 5) {
        fprintf(stderr, "usage: openssl-echo VARIANT PORT CERT KEY\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *context = context_of(arguments[1], arguments[3], arguments[4]);
    struct connection listener = {.fd = listen_on(atoi(arguments[2]))};
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(&listener, EPOLLIN, EPOLL_CTL_ADD);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == &listener) {
                accept_all(listener.fd, context);
                continue;
            }
            unsigned wanted = work(connection);
            if (wanted == 0)
                drop(connection);
            else if (wanted != (events[i].events & (EPOLLIN | EPOLLOUT)))
                watch(connection, wanted, EPOLL_CTL_MOD);
        }
    }
}
