/* An echo server on OpenSSL with a thread for each connection, and one fault:
 *
 *   sick-threads FAULT HOST:PORT CERTIFICATE KEY
 *
 *   fault    what it does                                                      twin
 *   lock     waits 2 ms for another service in each handshake, under a lock    no-lock: waits without one
 *   few      four threads serve all connections, one after the other           no-lock
 */

#include "listener.h"
#include <openssl/ssl.h>
#include <pthread.h>

enum { SERVICE_US = 2000, STACK = 128 * 1024, FEW = 4 };

static const char *fault;
static SSL_CTX *context;
static int listener;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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

static void *serve(void *argument)
{
    int fd = (int)(long)argument, count, on = 1;
    char buffer[4096];
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    ask_service();
    if (SSL_accept(ssl) == 1) {
        while ((count = SSL_read(ssl, buffer, sizeof buffer)) > 0)
            if (SSL_write(ssl, buffer, count) != count)
                break;
        SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(fd);
    return NULL;
}

static void *serve_all(void *nothing)
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            serve((void *)(long)fd);
    }
    return nothing;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: sick-threads FAULT HOST:PORT CERTIFICATE KEY\n");
        return 2;
    }
    fault = argv[1];
    listener = listen_on(argv[2]);
    if (fcntl(listener, F_SETFL, 0) != 0)
        die("fcntl");
    context = SSL_CTX_new(TLS_server_method());
    if (context == NULL || SSL_CTX_use_certificate_chain_file(context, argv[3]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, argv[4], SSL_FILETYPE_PEM) != 1)
        die(argv[3]);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"sick", 4);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);

    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    if (is("few")) {
        for (int number = 1; number < FEW; number++)
            pthread_create(&thread, &small, serve_all, NULL);
        serve_all(NULL);
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && pthread_create(&thread, &small, serve, (void *)(long)fd) != 0)
            close(fd);
    }
}
