/* The echo server of crates/tls/capi/examples over OpenSSL: epoll, one thread, and the setting that OpenSSL's documentation
 * recommends to save memory (SSL_MODE_RELEASE_BUFFERS).
 *
 *   openssl_echo PORT CERTIFICATE KEY [keep]     (keep: without that setting) */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DESCRIPTORS_MAX = 1 << 20, EVENTS_MAX = 512 };

static SSL *connections[DESCRIPTORS_MAX];
static char scratch[65536];
static int poller;

static void watch(int fd, unsigned events, int operation)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(poller, operation, fd, &event);
}

/* Returns 0 if the connection is over. The clients of the lab take what they are sent at once. */
static int handle(int fd)
{
    SSL *ssl = connections[fd];
    if (!SSL_is_init_finished(ssl)) {
        int done = SSL_accept(ssl);
        return done == 1 || SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ;
    }
    int len = SSL_read(ssl, scratch, sizeof scratch);
    if (len <= 0)
        return SSL_get_error(ssl, len) == SSL_ERROR_WANT_READ;
    return SSL_write(ssl, scratch, len) == len;
}

static void accept_all(int listener, SSL_CTX *context)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connections[fd] = SSL_new(context);
        SSL_set_fd(connections[fd], fd);
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

int main(int argc, char **argv)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (argc < 4 || SSL_CTX_use_certificate_chain_file(context, argv[2]) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, argv[3], SSL_FILETYPE_PEM) != 1)
        return 2;
    if (argc == 4)
        SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (void *)&address, sizeof address) != 0 || listen(listener, 4096) != 0)
        return 3;
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all(listener, context);
            else if (!handle(fd)) {
                SSL_free(connections[fd]);
                close(fd);
            }
        }
    }
}
