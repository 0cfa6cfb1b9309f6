/* A proxy without TLS: the minimum work of any TLS proxy on sockets and epoll.
 *
 *   proxy segments|copy|splice PORT BACKENDPORT
 *
 * segments: every connection is one exchange with the segments of TLS (segments.h), and one connection to the backend.
 * copy, splice: bytes in both directions, by recv and send, or by splice through a pipe without copying them.
 *
 * One thread, epoll, level-triggered. Each connection is two descriptors and an entry in a table by descriptor. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "segments.h"

enum { EVENTS_MAX = 256, SCRATCH_BYTES = 64 * 1024, BACKLOG = 4096 };
enum mode { SEGMENTS, COPY, SPLICE };
enum role { BACKEND, HELLO, FINISHED, CLOSE }; /* a client's next segment, or a backend */

struct side {
    int other;           /* descriptor of the other side, or -1 */
    enum role role;      /* mode SEGMENTS */
    int heard;           /* bytes of the next segment that are here */
    int ended;           /* it sends nothing more */
    int pipe[2];         /* mode SPLICE: bytes from this side to the other */
    size_t kept, offset; /* bytes from this side that the other did not take */
    char *buffer;        /* mode COPY: where they are */
};

static struct side *sides; /* by descriptor */
static int poller, listener;
static enum mode mode;
static struct sockaddr_in backend;
static char scratch[SCRATCH_BYTES];

static void die(const char *what)
{
    perror(what);
    exit(3);
}

static void watch(int fd, unsigned events, int operation)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(poller, operation, fd, &event) != 0)
        die("epoll_ctl");
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void forget(int fd)
{
    struct side *side = &sides[fd];
    if (mode == SPLICE) {
        close(side->pipe[0]);
        close(side->pipe[1]);
    }
    free(side->buffer);
    *side = (struct side){.other = -1};
    close(fd);
}

static void drop(int fd)
{
    int other = sides[fd].other;
    forget(fd);
    if (other >= 0)
        forget(other);
}

/* A connection to the backend; on loopback it can be used at once. */
static int reach_backend(int client)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    no_delay(fd);
    if (connect(fd, (struct sockaddr *)&backend, sizeof backend) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    sides[fd] = (struct side){.other = client, .role = BACKEND};
    sides[client].other = fd;
    if (mode == SPLICE && pipe2(sides[fd].pipe, O_NONBLOCK | O_CLOEXEC) != 0)
        die("pipe2");
    watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    return fd;
}

static int say(int fd, size_t length, int flags)
{
    return send(fd, scratch, length, MSG_NOSIGNAL | flags) == (ssize_t)length ? 0 : -1;
}

/* ---- mode SEGMENTS ---- */

/* The backend has answered, or has ended after the client. */
static int from_backend(int fd)
{
    ssize_t length = recv(fd, scratch, sizeof scratch, 0);
    if (length > 0)
        return say(sides[fd].other, SERVER_ANSWER, 0);
    if (length < 0 && errno == EAGAIN)
        return 0;
    if (length == 0)
        say(sides[fd].other, CLOSE_NOTIFY, MSG_MORE); /* the FIN goes with it */
    return -1;
}

static int from_client(int fd)
{
    static const int lengths[] = {[HELLO] = CLIENT_HELLO, [FINISHED] = CLIENT_FINISHED, [CLOSE] = CLOSE_NOTIFY};
    struct side *side = &sides[fd];
    ssize_t length = recv(fd, scratch, sizeof scratch, 0);
    if (length < 0 && errno == EAGAIN)
        return 0;
    if (length <= 0)
        return -1;
    side->heard += (int)length;
    if (side->heard < lengths[side->role])
        return 0;
    side->heard = 0;
    switch (side->role) {
    case HELLO:
        side->role = FINISHED;
        return say(fd, SERVER_FLIGHT, 0);
    case FINISHED:
        side->role = CLOSE;
        return reach_backend(fd) < 0 ? -1 : say(side->other, MESSAGE, 0);
    default:
        return shutdown(side->other, SHUT_WR);
    }
}

/* ---- modes COPY and SPLICE ---- */

/* Sends what is kept of the bytes from `fd`. Negative when that failed. */
static int flush_kept(int fd)
{
    struct side *side = &sides[fd];
    while (side->kept > 0) {
        ssize_t sent = mode == SPLICE
            ? splice(side->pipe[0], NULL, side->other, NULL, side->kept, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
            : send(side->other, side->buffer + side->offset, side->kept, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        side->kept -= (size_t)sent;
        side->offset += (size_t)sent;
    }
    return 0;
}

static void watch_both(int fd)
{
    for (int turn = 0; turn < 2; turn++, fd = sides[fd].other) {
        int other = sides[fd].other;
        unsigned reads = !sides[fd].ended && sides[fd].kept == 0 ? EPOLLIN : 0;
        watch(fd, reads | (sides[other].kept > 0 ? EPOLLOUT : 0), EPOLL_CTL_MOD);
    }
}

static int move(int fd)
{
    struct side *side = &sides[fd];
    ssize_t length = mode == SPLICE
        ? splice(fd, NULL, side->pipe[1], NULL, SCRATCH_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
        : recv(fd, scratch, sizeof scratch, 0);
    if (length < 0)
        return errno == EAGAIN ? 0 : -1;
    if (length == 0) {
        side->ended = 1;
        watch_both(fd);
        return sides[side->other].ended ? -1 : shutdown(side->other, SHUT_WR);
    }
    side->offset = 0;
    if (mode == COPY) {
        ssize_t sent = send(side->other, scratch, (size_t)length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return -1;
        sent = sent < 0 ? 0 : sent;
        if (sent == length)
            return 0;
        if (side->buffer == NULL && (side->buffer = malloc(SCRATCH_BYTES)) == NULL)
            return -1;
        memcpy(side->buffer, scratch + sent, (size_t)(length - sent));
        length -= sent;
    }
    side->kept = (size_t)length;
    if (flush_kept(fd) < 0)
        return -1;
    if (side->kept > 0)
        watch_both(fd);
    return 0;
}

static int carry(int fd, unsigned events)
{
    int other = sides[fd].other;
    if ((events & EPOLLOUT) && sides[other].kept > 0) {
        if (flush_kept(other) < 0)
            return -1;
        if (sides[other].kept == 0)
            watch_both(fd);
    }
    if ((events & EPOLLIN) && sides[fd].kept == 0 && !sides[fd].ended)
        return move(fd);
    return (events & EPOLLERR) ? -1 : 0;
}

/* ---- the loop ---- */

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        no_delay(fd);
        sides[fd] = (struct side){.other = -1, .role = HELLO};
        if (mode == SPLICE && pipe2(sides[fd].pipe, O_NONBLOCK | O_CLOEXEC) != 0)
            die("pipe2");
        if (mode != SEGMENTS && reach_backend(fd) < 0)
            forget(fd);
        else
            watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void listen_on(int port)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        die("socket");
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, BACKLOG) != 0)
        die("listen");
}

int main(int argc, char **argv)
{
    if (argc == 4)
        for (; mode <= SPLICE && strcmp(argv[1], (const char *[]){"segments", "copy", "splice"}[mode]) != 0; mode++)
            ;
    if (argc != 4 || mode > SPLICE) {
        fprintf(stderr, "usage: proxy segments|copy|splice PORT BACKENDPORT\n");
        return 2;
    }
    backend = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[3]))};
    backend.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listen_on(atoi(argv[2]));
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("getrlimit");
    sides = calloc(limit.rlim_cur, sizeof *sides);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (sides == NULL || poller < 0)
        die("start");
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);

    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            int failed;
            if (fd == listener) {
                accept_all();
                continue;
            }
            if (sides[fd].other < 0 && (mode != SEGMENTS || sides[fd].role == BACKEND))
                continue; /* it was dropped with the other side in this turn */
            if (mode != SEGMENTS)
                failed = carry(fd, events[i].events);
            else
                failed = sides[fd].role == BACKEND ? from_backend(fd) : from_client(fd);
            if (failed)
                drop(fd);
        }
    }
}
