/* A plain echo server: the backend behind every proxy that the lab measures.
 *
 *   echo PORT|unix:PATH [PROCESSES]
 *
 * One thread, epoll, level-triggered. Several processes share the listener, each until its descriptors are used up. A quiet connection owns nothing but its descriptor and 16 bytes here.
 * Bytes that a peer does not take are kept, and nothing more is read from it until it has taken them.
 * After a peer's end, the server ends the connection once everything was sent back: half-close works. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { EVENTS_MAX = 512, SCRATCH_BYTES = 256 * 1024, BACKLOG = 4096, PROCESSES_MAX = 1000 };

struct connection {
    char *kept; /* what the peer did not take yet, or NULL */
    unsigned length;
    unsigned sent;
};

static struct connection *connections; /* by descriptor */
static int descriptors_max;
static int poller;
static int listener;
static int full; /* no descriptor is free, and the listener is left to the other processes */
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

static void drop(int fd)
{
    free(connections[fd].kept);
    connections[fd] = (struct connection){0};
    close(fd);
    if (full) {
        full = 0;
        watch(listener, EPOLLIN | EPOLLEXCLUSIVE, EPOLL_CTL_ADD);
    }
}

/* Sends what was kept. Returns 0 when nothing is left. */
static int flush_kept(int fd)
{
    struct connection *c = &connections[fd];
    ssize_t sent = send(fd, c->kept + c->sent, c->length - c->sent, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN)
        return -1;
    c->sent += sent > 0 ? (unsigned)sent : 0;
    if (c->sent < c->length)
        return 1;
    free(c->kept);
    *c = (struct connection){0};
    watch(fd, EPOLLIN, EPOLL_CTL_MOD);
    return 0;
}

static int keep(int fd, const char *bytes, size_t length)
{
    struct connection *c = &connections[fd];
    c->kept = malloc(length);
    if (c->kept == NULL)
        return -1;
    memcpy(c->kept, bytes, length);
    c->length = (unsigned)length;
    watch(fd, EPOLLOUT, EPOLL_CTL_MOD);
    return 0;
}

/* One event on an established connection. */
static void serve(int fd, unsigned events)
{
    if (connections[fd].kept != NULL) {
        if (flush_kept(fd) < 0)
            drop(fd);
        return;
    }
    ssize_t length = recv(fd, scratch, sizeof scratch, 0);
    if (length == 0 || (length < 0 && errno != EAGAIN)) {
        drop(fd);
        return;
    }
    if (length < 0) {
        if (events & (EPOLLERR | EPOLLHUP))
            drop(fd);
        return;
    }
    ssize_t sent = send(fd, scratch, (size_t)length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        drop(fd);
        return;
    }
    sent = sent < 0 ? 0 : sent;
    if (sent < length && keep(fd, scratch + sent, (size_t)(length - sent)) != 0)
        drop(fd);
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            full = 1;
            epoll_ctl(poller, EPOLL_CTL_DEL, listener, NULL);
        }
        if (fd < 0)
            return;
        if (fd >= descriptors_max) {
            close(fd);
            return;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails on a unix socket, which needs none */
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void listen_on(const struct sockaddr *address, socklen_t length)
{
    int on = 1;
    listener = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        die("socket");
    if (bind(listener, address, length) != 0)
        die("bind");
    if (listen(listener, BACKLOG) != 0)
        die("listen");
}

/* PORT or unix:PATH; returns 0 when it is neither. */
static int open_listener(const char *where)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    if (strncmp(where, "unix:", 5) == 0) {
        if (strlen(where + 5) >= sizeof path.sun_path)
            return 0;
        strcpy(path.sun_path, where + 5);
        listen_on((struct sockaddr *)&path, sizeof path);
        return 1;
    }
    int port = atoi(where);
    if (port <= 0 || port > 65535)
        return 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listen_on((struct sockaddr *)&address, sizeof address);
    return 1;
}

/* Starts the other processes; they end with the first. */
static void multiply(int processes)
{
    pid_t first = getpid();
    for (int i = 1; i < processes; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != first)
                exit(0);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    int processes = argc == 3 ? atoi(argv[2]) : 1;
    if (argc < 2 || argc > 3 || processes < 1 || processes > PROCESSES_MAX || !open_listener(argv[1])) {
        fprintf(stderr, "usage: echo PORT|unix:PATH [PROCESSES]\n");
        return 2;
    }
    multiply(processes);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("setrlimit");
    descriptors_max = limit.rlim_cur > 1000000 ? 1000000 : (int)limit.rlim_cur;
    connections = calloc((size_t)descriptors_max, sizeof *connections);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (connections == NULL || poller < 0)
        die("start");

    watch(listener, EPOLLIN | EPOLLEXCLUSIVE, EPOLL_CTL_ADD);
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all();
            else
                serve(fd, events[i].events);
        }
    }
}
