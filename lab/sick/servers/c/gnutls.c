/* An echo server on GnuTLS with one fault, and its healthy twins: one thread of epoll.
 *
 *   sick-gnutls FAULT HOST:PORT CERTIFICATE KEY
 *
 *   fault         what it does                                                twin
 *   undeinited    never calls gnutls_deinit for a closed connection           healthy
 *   trust         credentials with the system's authorities for each          trust-shared
 *   keys-each     a ticket key for each connection                            healthy: one for all
 *   silent        no tickets and no cache                                     healthy
 */

#include "listener.h"
#include <gnutls/gnutls.h>

struct connection {
    gnutls_session_t tls;
    gnutls_certificate_credentials_t own;
    gnutls_datum_t key;
    int fd, is_established;
};

static const char *fault;
static char **files;
static gnutls_certificate_credentials_t shared;
static gnutls_datum_t shared_key;
static char scratch[16384];

static int is(const char *name)
{
    return strcmp(fault, name) == 0;
}

static gnutls_certificate_credentials_t credentials(int is_trusting)
{
    gnutls_certificate_credentials_t made;
    gnutls_certificate_allocate_credentials(&made);
    if (gnutls_certificate_set_x509_key_file(made, files[0], files[1], GNUTLS_X509_FMT_PEM) < 0)
        die(files[0]);
    if (is_trusting && gnutls_certificate_set_x509_system_trust(made) <= 0)
        die("the system's authorities");
    return made;
}

static void begin(int fd)
{
    struct connection *connection = calloc(1, sizeof *connection);
    connection->fd = fd;
    connection->own = is("trust") ? credentials(1) : NULL;
    gnutls_init(&connection->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
    gnutls_set_default_priority(connection->tls);
    gnutls_credentials_set(connection->tls, GNUTLS_CRD_CERTIFICATE, connection->own ? connection->own : shared);
    gnutls_transport_set_int(connection->tls, fd);
    if (is("keys-each"))
        gnutls_session_ticket_key_generate(&connection->key);
    if (!is("silent"))
        gnutls_session_ticket_enable_server(connection->tls, connection->key.data ? &connection->key : &shared_key);
    watch(fd, connection);
}

static void drop(struct connection *connection)
{
    if (connection->is_established)
        gnutls_bye(connection->tls, GNUTLS_SHUT_WR);
    if (!is("undeinited"))
        gnutls_deinit(connection->tls);
    if (connection->own)
        gnutls_certificate_free_credentials(connection->own);
    gnutls_free(connection->key.data);
    close(connection->fd);
    free(connection);
}

/* Returns 0 if the connection has ended. */
static int work(struct connection *connection)
{
    if (!connection->is_established) {
        int done = gnutls_handshake(connection->tls);
        if (done < 0)
            return !gnutls_error_is_fatal(done);
        connection->is_established = 1;
    }
    for (;;) {
        ssize_t count = gnutls_record_recv(connection->tls, scratch, sizeof scratch);
        if (count <= 0)
            return count < 0 && !gnutls_error_is_fatal((int)count);
        if (gnutls_record_send(connection->tls, scratch, (size_t)count) != count)
            return 0;
    }
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: sick-gnutls FAULT HOST:PORT CERTIFICATE KEY\n");
        return 2;
    }
    fault = argv[1];
    files = argv + 3;
    int listener = listen_on(argv[2]), fd;
    shared = credentials(is("trust-shared"));
    gnutls_session_ticket_key_generate(&shared_key);
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, NULL);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL)
                while ((fd = accept_one(listener)) >= 0)
                    begin(fd);
            else if (!work(connection))
                drop(connection);
        }
    }
}
