/* The client of `proxy segments`: connections with the segments of TLS (segments.h), some at a time.
 *
 *   client PORT CONNECTIONS CONCURRENCY
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "segments.h"

enum { EVENTS_MAX = 256, DESCRIPTORS_MAX = 4096 };
enum awaited { CONNECTED, FLIGHT, ANSWER, END };

static struct {
    enum awaited awaited;
    int heard;
} lanes[DESCRIPTORS_MAX]; /* by descriptor */
static int poller;
static struct sockaddr_in address;
static char scratch[4096];

static void die(const char *what)
{
    perror(what);
    exit(3);
}

static void begin(void)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd >= DESCRIPTORS_MAX)
        die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS)
        die("connect");
    lanes[fd].awaited = CONNECTED;
    lanes[fd].heard = 0;
    struct epoll_event event = {.events = EPOLLOUT, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
        die("epoll_ctl");
}

static void say(int fd, int length)
{
    if (send(fd, scratch, (size_t)length, MSG_NOSIGNAL) != length)
        die("send");
    lanes[fd].awaited++;
    lanes[fd].heard = 0;
}

/* 1: the connection is over. */
static int turn(int fd)
{
    if (lanes[fd].awaited == CONNECTED) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event) != 0)
            die("epoll_ctl");
        say(fd, CLIENT_HELLO);
        return 0;
    }
    ssize_t length = recv(fd, scratch, sizeof scratch, 0);
    if (length < 0 && errno == EAGAIN)
        return 0;
    if (length < 0 || (length == 0 && lanes[fd].awaited != END))
        die("recv");
    lanes[fd].heard += (int)length;
    if (lanes[fd].awaited == FLIGHT && lanes[fd].heard >= SERVER_FLIGHT)
        say(fd, CLIENT_FINISHED);
    else if (lanes[fd].awaited == ANSWER && lanes[fd].heard >= SERVER_ANSWER)
        say(fd, CLOSE_NOTIFY);
    return length == 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: client PORT CONNECTIONS CONCURRENCY\n");
        return 2;
    }
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    long to_begin = atol(argv[2]), live = 0;
    if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0)
        die("epoll_create1");
    for (; live < atol(argv[3]) && to_begin > 0; live++, to_begin--)
        begin();
    struct epoll_event events[EVENTS_MAX];
    while (live > 0) {
        int count = epoll_wait(poller, events, EVENTS_MAX, 10000);
        if (count <= 0)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (!turn(events[i].data.fd))
                continue;
            close(events[i].data.fd);
            if (to_begin > 0 && to_begin--)
                begin();
            else
                live--;
        }
    }
    return 0;
}
