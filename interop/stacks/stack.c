/* One TLS library, as a client of `dormouse serve` or as a server of `dormouse connect`.
 *
 *     PROGRAM client|server HOST PORT 1.2|1.3 CERTIFICATE KEY AUTHORITY
 *
 * A client makes two connections: the first sends echoes around a KeyUpdate, the second resumes the
 * session of the first, closes its own direction at once and still receives. A server echoes, makes a
 * KeyUpdate when it reads `update`, and sends `bye` after the client's close. A library that can only close both
 * directions at once receives first, and as server closes when it reads `quit`. Both print a line for
 * each connection. */
#include "stack.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES_AFTER_END 50000

void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static int open_socket(const struct options *options) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    if (getaddrinfo(options->host, options->port, &hints, &found) != 0)
        fail("address", options->host);
    int fd = socket(found->ai_family, SOCK_STREAM, 0);
    int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    int failed = options->is_server ? bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 16)
                                    : connect(fd, found->ai_addr, found->ai_addrlen);
    if (failed)
        fail("socket", options->host);
    freeaddrinfo(found);
    return fd;
}

static void echo(struct tls *tls, const char *line) {
    char answer[64];
    int count = 0, expected = (int)strlen(line);
    tls_write(tls, line, expected);
    while (count < expected) {
        int n = tls_read(tls, answer + count, expected - count);
        if (n == 0)
            fail("echo", "the peer has closed");
        count += n;
    }
    if (memcmp(answer, line, (size_t)expected) != 0)
        fail("echo", "other bytes came back");
}

static int read_to_end(struct tls *tls) {
    char bytes[4096];
    int count = 0, n;
    while ((n = tls_read(tls, bytes, sizeof bytes)) > 0)
        count += n;
    return count;
}

static void run_client(const struct options *options) {
    for (int number = 0; number < 2; number++) {
        int fd = open_socket(options), updated = 0;
        struct tls *tls = tls_open(fd);
        if (number == 0) {
            tls_write(tls, "echo\n", 5);
            echo(tls, "before\n");
            updated = tls_update(tls);
            echo(tls, "after\n");
            tls_save(tls);
        } else {
            char command[32];
            const char *what = tls_half_closes ? "halfclose" : "download";
            int len = snprintf(command, sizeof command, "%s %d\n", what, BYTES_AFTER_END);
            tls_write(tls, command, len);
        }
        int received = 0;
        if (!tls_half_closes && number == 1)
            received = read_to_end(tls);
        tls_end(tls);
        if (tls_half_closes)
            received = read_to_end(tls);
        printf("version=%s resumed=%d updated=%d received=%d\n", tls_version(tls),
               tls_is_resumed(tls), updated, received);
        tls_free(tls);
        close(fd);
    }
}

static void run_server(const struct options *options) {
    int listener = open_socket(options);
    printf("listening\n");
    for (;;) {
        int fd = accept(listener, NULL, NULL), updated = 0, n;
        struct tls *tls = tls_open(fd);
        char bytes[4096];
        while ((n = tls_read(tls, bytes, sizeof bytes)) > 0) {
            if (!tls_half_closes && n == 5 && memcmp(bytes, "quit\n", 5) == 0)
                break;
            if (n >= 6 && memcmp(bytes, "update", 6) == 0)
                updated += tls_update(tls);
            tls_write(tls, bytes, n);
        }
        if (tls_half_closes)
            tls_write(tls, "bye\n", 4);
        tls_end(tls);
        printf("version=%s resumed=%d updated=%d verified=%d\n", tls_version(tls),
               tls_is_resumed(tls), updated, tls_is_client_verified(tls));
        tls_free(tls);
        close(fd);
    }
}

int main(int count, char **words) {
    if (count != 8)
        fail(words[0], "client|server HOST PORT 1.2|1.3 CERTIFICATE KEY AUTHORITY");
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct options options = {
        .is_server = strcmp(words[1], "server") == 0,
        .host = words[2],
        .port = words[3],
        .is_tls13 = strcmp(words[4], "1.3") == 0,
        .certificate = words[5],
        .key = words[6],
        .authority = words[7],
    };
    tls_setup(&options);
    if (options.is_server)
        run_server(&options);
    else
        run_client(&options);
    return 0;
}
