/* An echo server on OpenSSL with one fault, and its healthy twins: one thread of epoll, one context.
 *
 *   sick-openssl FAULT HOST:PORT CERTIFICATE KEY AUTHORITY
 *
 *   fault            what it does                                             twin
 *   sessions         keeps every session, without tickets                     sessions-bounded: the last hundred
 *   context          a context with a trust store for each connection         context-shared
 *   unfreed          never frees the SSL object of a closed connection        healthy
 *   unfreed-12       the same, in TLS 1.2 only                                healthy
 *   second           two processes, of which the second leaks                 two: the same without a leak
 *   peer             takes the client's certificate and never frees it        peer-freed
 *   unnamed          asks for client certificates without a session id context  named: with one
 *   refused          leaks where a handshake fails                            healthy
 *   password         derives a key from a password in each handshake          password-once: at the start
 *   polling          looks at all connections again and again                 timer: wakes every 1 ms and looks at none
 *   no-13            issues no tickets in TLS 1.3                             healthy
 *   pieces           writes each answer in pieces of 16 bytes                  healthy
 *   padded           pads records to multiples of 4,096 bytes                  padded-little: of 64 bytes
 *   two-faults       sessions and password together                           two-healthy: both twins together
 */

#include "listener.h"
#include <openssl/evp.h>
#include <openssl/ssl.h>

enum { LEAK = 2000, SESSIONS_BOUND = 100, PASSWORD_ROUNDS = 4000, TICK_MS = 1, PROCESSES = 2, PIECE = 16 };

struct connection {
    SSL *ssl;
    SSL_CTX *own;
    int fd;
    struct connection *previous, *next;
};

static const char *fault;
static char **files;
static int process_number;
static struct connection *all;
static char scratch[16384];

static int is(const char *name)
{
    return strcmp(fault, name) == 0;
}

static SSL_CTX *context_of(int is_trusting)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, files[0]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, files[1], SSL_FILETYPE_PEM) != 1)
        die(files[0]);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    if (!is("unnamed"))
        SSL_CTX_set_session_id_context(context, (const unsigned char *)"sick", 4);
    if (is_trusting && SSL_CTX_load_verify_locations(context, "/etc/ssl/certs/ca-certificates.crt", NULL) != 1)
        die("/etc/ssl/certs/ca-certificates.crt");
    if (is("peer") || is("peer-freed") || is("unnamed") || is("named")) {
        SSL_CTX_load_verify_locations(context, files[2], NULL);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    if (is("sessions") || is("sessions-bounded") || is("two-faults") || is("two-healthy")) {
        int is_bounded = is("sessions-bounded") || is("two-healthy");
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
        /* 0: without a limit. */
        SSL_CTX_sess_set_cache_size(context, is_bounded ? SESSIONS_BOUND : 0);
    } else {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    }
    if (is("no-13"))
        SSL_CTX_set_num_tickets(context, 0);
    if (is("padded") || is("padded-little"))
        SSL_CTX_set_block_padding(context, is("padded") ? 4096 : 64);
    return context;
}

static void derive_key(void)
{
    unsigned char key[32];
    PKCS5_PBKDF2_HMAC("a password", -1, (const unsigned char *)"salt", 4, PASSWORD_ROUNDS, EVP_sha256(), sizeof key, key);
}

static void established(struct connection *connection)
{
    if (is("password") || is("two-faults"))
        derive_key();
    if (is("second") && process_number == 1)
        memset(malloc(LEAK), 1, LEAK);
    if (is("peer") || is("peer-freed")) {
        X509 *certificate = SSL_get1_peer_certificate(connection->ssl);
        if (is("peer-freed"))
            X509_free(certificate);
    }
}

static void drop(struct connection *connection)
{
    int is_old = SSL_version(connection->ssl) == TLS1_2_VERSION;
    int is_established = SSL_is_init_finished(connection->ssl);
    if (is("refused") && !is_established)
        memset(malloc(LEAK), 1, LEAK);
    /* Without it OpenSSL removes the session from its cache. */
    if (is_established)
        SSL_shutdown(connection->ssl);
    if (!is("unfreed") && !(is("unfreed-12") && is_old))
        SSL_free(connection->ssl);
    if (connection->own != NULL)
        SSL_CTX_free(connection->own);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        all = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    close(connection->fd);
    free(connection);
}

static int is_waiting(struct connection *connection, int result)
{
    return SSL_get_error(connection->ssl, result) == SSL_ERROR_WANT_READ;
}

/* Returns 0 if the answer could not be written. */
static int answer(SSL *ssl, const char *bytes, int count)
{
    int most = is("pieces") ? PIECE : count;
    for (int done = 0; done < count; done += most) {
        int piece = count - done < most ? count - done : most;
        if (SSL_write(ssl, bytes + done, piece) != piece)
            return 0;
    }
    return 1;
}

/* Returns 0 if the connection has ended. Clients of the audit take at once what they are sent. */
static int work(struct connection *connection)
{
    if (!SSL_is_init_finished(connection->ssl)) {
        int done = SSL_accept(connection->ssl);
        if (done != 1)
            return is_waiting(connection, done);
        established(connection);
    }
    for (;;) {
        int count = SSL_read(connection->ssl, scratch, sizeof scratch);
        if (count <= 0)
            return is_waiting(connection, count);
        if (!answer(connection->ssl, scratch, count))
            return 0;
    }
}

static void accept_all(int listener, SSL_CTX *shared)
{
    int fd;
    while ((fd = accept_one(listener)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        connection->fd = fd;
        connection->own = is("context") ? context_of(1) : NULL;
        connection->ssl = SSL_new(connection->own != NULL ? connection->own : shared);
        SSL_set_fd(connection->ssl, fd);
        SSL_set_accept_state(connection->ssl);
        connection->next = all;
        if (all != NULL)
            all->previous = connection;
        all = connection;
        watch(fd, connection);
    }
}

static void look_at_all(void)
{
    char byte;
    for (struct connection *each = all; each != NULL; each = each->next)
        recv(each->fd, &byte, 1, MSG_PEEK);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: sick-openssl FAULT HOST:PORT CERTIFICATE KEY AUTHORITY\n");
        return 2;
    }
    fault = argv[1];
    files = argv + 3;
    int listener = listen_on(argv[2]);
    SSL_CTX *context = context_of(is("context-shared"));
    /* After the context was made: the processes share its ticket keys. */
    if (is("second") || is("two"))
        process_number = fork_processes(PROCESSES);
    if (is("password-once") || is("two-healthy"))
        derive_key();
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, NULL);
    int timeout = is("polling") ? 0 : is("timer") ? TICK_MS : -1;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, timeout);
        if (is("polling"))
            look_at_all();
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL)
                accept_all(listener, context);
            else if (!work(connection))
                drop(connection);
        }
    }
}
