/* What the C servers share: the listener, the poller, and processes that end with their parent. */

#ifndef SICK_LISTENER_H
#define SICK_LISTENER_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, BACKLOG = 4096 };

static int poller;

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void watch(int fd, void *connection)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

/* Listens on HOST:PORT with as many descriptors as allowed. */
static int listen_on(const char *where)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGPIPE, SIG_IGN);

    const char *colon = strrchr(where, ':');
    char host[64] = "";
    if (colon == NULL || (size_t)(colon - where) >= sizeof host)
        die(where);
    memcpy(host, where, (size_t)(colon - where));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(colon + 1))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0)
        die(where);
    return fd;
}

/* The next waiting connection, or -1. */
static int accept_one(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Forks this many processes, which end with their parent. Returns the number of this process; the parent stays here. */
static inline int fork_processes(int count)
{
    for (int number = 0; number < count; number++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return number;
        }
    }
    while (wait(NULL) > 0)
        ;
    exit(1);
}

#endif
