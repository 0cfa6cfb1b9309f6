/* A TLS server that echoes what it receives: epoll, one thread.
 *
 *   echo_server PORT CERTIFICATE KEY     (PEM files)
 *
 * A connection at rest is its 128 bytes in a table and its descriptor; nothing is allocated for it. Data
 * in flight (a handshake, the start of a record, output that the client does not read yet) is in memory
 * that is freed when no longer needed. */

#define _GNU_SOURCE
#include <dormouse.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DESCRIPTORS_MAX = 1 << 20, EVENTS_MAX = 512, RECEIVED_MAX = 65536, SCRATCH = 262144 };

/* Data of a connection besides its 128 bytes, while something is in flight. */
struct flight {
    dormouse_handshake handshake; /* id 0: established */
    int closing;                  /* close once the output is sent */
    size_t received_len, output_len, output_sent;
    uint8_t *output;
    uint8_t received[]; /* the start of a record */
};

static dormouse_connection connections[DESCRIPTORS_MAX];
static struct flight *flights[DESCRIPTORS_MAX]; /* null: at rest */
static uint8_t received[SCRATCH], output[SCRATCH];
static dormouse_server server;
static int poller, listener;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(3);
}

static void watch(int fd, unsigned events, int operation)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(poller, operation, fd, &event) != 0)
        die("epoll_ctl", strerror(errno));
}

static void land(int fd)
{
    struct flight *flight = flights[fd];
    flights[fd] = NULL;
    if (flight == NULL)
        return;
    dormouse_handshake_free(flight->handshake);
    free(flight->output);
    free(flight);
}

/* Allocates data in flight, with these bytes of a record. Returns null if there is no memory. */
static struct flight *take_off(int fd, const uint8_t *bytes, size_t len)
{
    struct flight *flight = calloc(1, sizeof *flight + len);
    if (flight != NULL) {
        memcpy(flight->received, bytes, len);
        flight->received_len = len;
        land(fd);
        flights[fd] = flight;
    }
    return flight;
}

/* Sends, and keeps the bytes that the client does not read yet; it pauses reading meanwhile. Returns 0 if the
 * connection is lost, or at its end. */
static int send_output(int fd, size_t len, int closing)
{
    ssize_t sent = len > 0 ? send(fd, output, len, MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN)
        return 0;
    size_t done = sent < 0 ? 0 : (size_t)sent;
    if (done == len)
        return !closing;
    struct flight *flight = flights[fd] != NULL ? flights[fd] : take_off(fd, output, 0);
    if (flight == NULL || (flight->output = malloc(len - done)) == NULL)
        return 0;
    memcpy(flight->output, output + done, len - done);
    flight->output_len = len - done;
    flight->output_sent = 0;
    flight->closing = closing;
    watch(fd, EPOLLOUT, EPOLL_CTL_MOD);
    return 1;
}

/* Opens the bytes in `received` and echoes them, after any output that is already there. */
static int serve(int fd, size_t len, size_t output_len)
{
    dormouse_connection *connection = &connections[fd];
    dormouse_received got =
        dormouse_receive(connection, received, len, output + output_len, DORMOUSE_ANSWER_MAX);
    if (got.status != DORMOUSE_OK)
        return 0;
    output_len += got.output_len;
    if (got.consumed < len) {
        if (take_off(fd, received + got.consumed, len - got.consumed) == NULL)
            return 0;
    } else {
        land(fd); /* at rest, unless the output has to wait */
    }
    if (got.plaintext_len > 0) {
        dormouse_sealed sealed = dormouse_seal(connection, received, got.plaintext_len,
                                               output + output_len, sizeof output - output_len);
        if (sealed.status != DORMOUSE_OK && got.end == DORMOUSE_END_NONE)
            return 0; /* a TLS 1.2 key at its limit: no byte may get lost silently */
        output_len += sealed.status == DORMOUSE_OK ? sealed.output_len : 0;
    }
    if (got.end == DORMOUSE_END_CLOSED)
        output_len += dormouse_close(connection, output + output_len, DORMOUSE_SMALL_MAX).output_len;
    return send_output(fd, output_len, got.end != DORMOUSE_END_NONE);
}

static int shake_hands(int fd, size_t len)
{
    struct flight *flight = flights[fd];
    dormouse_step step =
        dormouse_handshake_step(flight->handshake, received, len, output, sizeof output);
    if (step.status != DORMOUSE_OK)
        return 0;
    if (step.progress != DORMOUSE_ESTABLISHED)
        return send_output(fd, step.output_len, step.progress == DORMOUSE_NOT_ESTABLISHED);
    dormouse_finished finished = dormouse_handshake_finish(flight->handshake, &connections[fd],
                                                           received, sizeof received);
    if (finished.status != DORMOUSE_OK)
        return 0;
    land(fd);
    return serve(fd, finished.leftover_len, step.output_len);
}

/* Sends waiting output. Returns 0 if the connection is lost, or at its end. */
static int flush(int fd)
{
    struct flight *flight = flights[fd];
    size_t left = flight->output_len - flight->output_sent;
    ssize_t sent = send(fd, flight->output + flight->output_sent, left, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    flight->output_sent += (size_t)sent;
    if ((size_t)sent < left)
        return 1;
    if (flight->closing)
        return 0;
    free(flight->output);
    flight->output = NULL;
    watch(fd, EPOLLIN, EPOLL_CTL_MOD);
    if (flight->handshake.id == 0 && flight->received_len == 0)
        land(fd);
    return 1;
}

static int handle(int fd)
{
    struct flight *flight = flights[fd];
    if (flight != NULL && flight->output != NULL)
        return flush(fd);
    size_t before = flight != NULL ? flight->received_len : 0;
    ssize_t count = recv(fd, received + before, RECEIVED_MAX, 0);
    if (count < 0)
        return errno == EAGAIN;
    if (count == 0)
        return 0; /* dormouse_eof() distinguishes a truncation from an end */
    if (before > 0)
        memcpy(received, flight->received, before);
    size_t len = before + (size_t)count;
    return flight != NULL && flight->handshake.id != 0 ? shake_hands(fd, len)
                                                       : serve(fd, len, 0);
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        int on = 1;
        dormouse_made_handshake made = dormouse_accept(server);
        if (made.result.status != DORMOUSE_OK || fd >= DESCRIPTORS_MAX ||
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
            take_off(fd, received, 0) == NULL) {
            dormouse_handshake_free(made.handshake);
            close(fd);
            continue;
        }
        flights[fd]->handshake = made.handshake;
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void prepare(const char *certificate, const char *key)
{
    dormouse_made_identity identity = dormouse_identity_from_files(certificate, key);
    if (identity.result.status != DORMOUSE_OK)
        die("certificate", identity.result.message);
    dormouse_server_settings settings = dormouse_server_settings_new();
    dormouse_server_add_identity(settings, identity.identity);
    dormouse_made_server made = dormouse_server_new(settings);
    if (made.result.status != DORMOUSE_OK)
        die("server", made.result.message);
    server = made.server;
}

static void listen_on(int port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    poller = epoll_create1(EPOLL_CLOEXEC);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (void *)&address, len) != 0 || listen(listener, 4096) != 0 ||
        getsockname(listener, (void *)&address, &len) != 0)
        die("listen", strerror(errno));
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage", "echo_server PORT CERTIFICATE KEY");
    prepare(argv[2], argv[3]);
    listen_on(atoi(argv[1]));
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all();
            else if (!handle(fd)) {
                land(fd);
                dormouse_connection_wipe(&connections[fd]);
                close(fd);
            }
        }
    }
}
