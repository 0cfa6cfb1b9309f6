/* An echo server on OpenSSL that makes each handshake in a thread of its own, and one fault. One thread of epoll accepts,
 * and serves established connections.
 *
 *   sick-threads FAULT HOST:PORT CERTIFICATE KEY
 *
 *   fault    what it does                                                      twin
 *   lock     waits 2 ms for another service in each handshake, under a lock    no-lock: waits without one
 *   few      makes handshakes in four threads                                  no-lock
 */

#include "listener.h"
#include <malloc.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

enum { SERVICE_US = 2000, STACK = 128 * 1024, FEW = 4 };

struct connection {
    SSL *ssl;
    int fd;
};

static const char *fault;
static pthread_attr_t detached;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t places;
static char scratch[16384];

static int is(const char *name)
{
    return strcmp(fault, name) == 0;
}

/* Stands for a lookup of a name, a log on a slow disk, a key in another device. */
static void ask_service(void)
{
    if (is("lock"))
        pthread_mutex_lock(&lock);
    usleep(SERVICE_US);
    if (is("lock"))
        pthread_mutex_unlock(&lock);
}

static void drop(struct connection *connection)
{
    SSL_free(connection->ssl);
    close(connection->fd);
    free(connection);
}

/* Returns 0 if the handshake has failed. Blocks its thread, not the others. */
static int handshake(struct connection *connection)
{
    struct pollfd readable = {.fd = connection->fd, .events = POLLIN};
    int done;
    ask_service();
    while ((done = SSL_accept(connection->ssl)) != 1) {
        if (SSL_get_error(connection->ssl, done) != SSL_ERROR_WANT_READ)
            return 0;
        poll(&readable, 1, -1);
    }
    return 1;
}

static void *begin(void *argument)
{
    struct connection *connection = argument;
    if (is("few"))
        sem_wait(&places);
    int is_established = handshake(connection);
    if (is("few"))
        sem_post(&places);
    if (is_established)
        watch(connection->fd, connection);
    else
        drop(connection);
    return NULL;
}

static void accept_all(int listener, SSL_CTX *context)
{
    int fd;
    while ((fd = accept_one(listener)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        pthread_t thread;
        connection->fd = fd;
        connection->ssl = SSL_new(context);
        SSL_set_fd(connection->ssl, fd);
        if (pthread_create(&thread, &detached, begin, connection) != 0)
            drop(connection);
    }
}

/* Returns 0 if the connection has ended. */
static int echo(struct connection *connection)
{
    for (;;) {
        int count = SSL_read(connection->ssl, scratch, sizeof scratch);
        if (count <= 0)
            return SSL_get_error(connection->ssl, count) == SSL_ERROR_WANT_READ;
        if (SSL_write(connection->ssl, scratch, count) != count)
            return 0;
    }
}

static SSL_CTX *context_of(char **files)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, files[0]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, files[1], SSL_FILETYPE_PEM) != 1)
        die(files[0]);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"sick", 4);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    return context;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: sick-threads FAULT HOST:PORT CERTIFICATE KEY\n");
        return 2;
    }
    fault = argv[1];
    /* The connections of all threads lie in one heap. */
    mallopt(M_ARENA_MAX, 1);
    int listener = listen_on(argv[2]);
    SSL_CTX *context = context_of(argv + 3);
    sem_init(&places, 0, FEW);
    pthread_attr_init(&detached);
    pthread_attr_setstacksize(&detached, STACK);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, NULL);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == NULL)
                accept_all(listener, context);
            else if (!echo(connection)) {
                SSL_shutdown(connection->ssl);
                drop(connection);
            }
        }
    }
}
