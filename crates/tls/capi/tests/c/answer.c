/* An HTTPS server for a number of requests, one after the other, which replies with its data about the
 * connection. For tests: every feature is enabled, and errors are printed without ending the process.
 *
 *   answer REQUESTS CERTIFICATE KEY ROOTS     (prints "listening on 127.0.0.1:PORT") */

#define _GNU_SOURCE
#include <dormouse.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint8_t received[65536 + 18437], output[131072];
static dormouse_connection connection;
static dormouse_identity chosen;
static dormouse_handshake current;
static char asked[256];
static int judged, log_lines, busy;

static void check(dormouse_result result, const char *what)
{
    if (result.status != DORMOUSE_OK) {
        fprintf(stderr, "%s: %s\n", what, result.message);
        exit(3);
    }
}

static dormouse_identity choose(void *context, dormouse_bytes name)
{
    if (context != &chosen)
        abort();
    snprintf(asked, sizeof asked, "%.*s", (int)name.len, (const char *)name.at);
    /* The handshake waits for this callback, so a call on it must return DORMOUSE_BUSY. */
    busy = dormouse_handshake_step(current, NULL, 0, output, sizeof output).status == DORMOUSE_BUSY &&
           dormouse_handshake_free(current) == DORMOUSE_BUSY;
    dormouse_identity none = {0};
    return strcmp(asked, "chosen.test") == 0 ? chosen : none;
}

static int judge(void *context, const dormouse_shown *shown)
{
    (void)context;
    judged = (int)shown->finding;
    return shown->chain_len > 0 && shown->finding == DORMOUSE_TRUSTED;
}

static void log_secret(void *context, const char *line)
{
    (void)context;
    log_lines += strchr(line, ' ') != NULL;
}

static dormouse_server make_server(char **argv)
{
    dormouse_made_identity identity = dormouse_identity_from_files(argv[2], argv[3]);
    check(identity.result, argv[2]);
    dormouse_made_identity made = dormouse_identity_self_signed((const uint8_t *)"chosen.test", 11);
    check(made.result, "self-signed");
    chosen = made.identity;
    FILE *file = fopen(argv[4], "rb");
    size_t len = file != NULL ? fread(received, 1, sizeof received, file) : 0;
    if (file != NULL)
        fclose(file);
    dormouse_server_settings settings = dormouse_server_settings_new();
    check(dormouse_server_add_identity(settings, identity.identity), "identity");
    check(dormouse_server_set_choose(settings, choose, &chosen), "choose");
    check(dormouse_server_add_alpn(settings, (const uint8_t *)"http/1.1", 8), "alpn");
    check(dormouse_server_ask_certificates(settings, 0, received, len), "roots");
    check(dormouse_server_set_judge(settings, judge, NULL), "judge");
    check(dormouse_server_enable_exporter(settings), "exporter");
    check(dormouse_server_set_secret_log(settings, log_secret, NULL), "log");
    dormouse_made_server server = dormouse_server_new(settings);
    check(server.result, "server");
    dormouse_identity_free(identity.identity);
    return server.server;
}

static size_t describe(char *text, size_t room)
{
    dormouse_facts facts = dormouse_handshake_facts(current);
    uint8_t key[20], certificate[4096];
    char hex[41] = "none";
    if (dormouse_handshake_export(current, (const uint8_t *)"EXPORTER-test", 13, NULL, 0, key,
                                  sizeof key) == DORMOUSE_OK)
        for (size_t i = 0; i < sizeof key; i++)
            sprintf(hex + 2 * i, "%02X", key[i]);
    size_t client = dormouse_handshake_certificate(current, 0, certificate, sizeof certificate).len;
    char body[1024];
    int len = snprintf(body, sizeof body,
                       "version %x\nsuite %s\nalpn %s\nname %s\nasked %s\nresumed %d\nverified %d\n"
                       "certificate %zu\njudged %d\nkey %s\nlines %d\nbusy %d\n",
                       facts.version, facts.suite.bytes, facts.alpn.bytes, facts.server_name.bytes, asked,
                       facts.is_resumed, facts.is_verified, client, judged, hex, log_lines, busy);
    return (size_t)snprintf(text, room,
                            "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len,
                            body);
}

/* Returns 0 when the connection has ended. */
static int send_all(int fd, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t sent = send(fd, output + done, len - done, MSG_NOSIGNAL);
        if (sent <= 0)
            return 0;
        done += (size_t)sent;
    }
    return 1;
}

static void serve(int fd)
{
    dormouse_step step;
    do {
        ssize_t count = recv(fd, received, 65536, 0);
        if (count <= 0)
            return;
        step = dormouse_handshake_step(current, received, (size_t)count, output, sizeof output);
        if (step.status != DORMOUSE_OK || !send_all(fd, step.output_len))
            return;
    } while (step.progress == DORMOUSE_MORE);
    if (step.progress == DORMOUSE_NOT_ESTABLISHED) {
        fprintf(stderr, "%s\n", dormouse_handshake_failure(current).result.message);
        return;
    }
    size_t len = dormouse_handshake_finish(current, &connection, received, sizeof received).leftover_len;
    for (;;) {
        dormouse_received got =
            dormouse_receive(&connection, received, len, output, DORMOUSE_ANSWER_MAX);
        if (got.status != DORMOUSE_OK || !send_all(fd, got.output_len))
            return;
        if (got.plaintext_len > 0 || got.end != DORMOUSE_END_NONE)
            break;
        memmove(received, received + got.consumed, len - got.consumed);
        len -= got.consumed;
        ssize_t count = recv(fd, received + len, 65536, 0);
        if (count <= 0)
            return;
        len += (size_t)count;
    }
    char text[2048];
    size_t text_len = describe(text, sizeof text);
    size_t out = dormouse_update_keys(&connection, output, sizeof output).output_len;
    out += dormouse_seal(&connection, (const uint8_t *)text, text_len, output + out, 65536).output_len;
    out += dormouse_close(&connection, output + out, DORMOUSE_SMALL_MAX).output_len;
    send_all(fd, out);
    shutdown(fd, SHUT_WR);
    while (recv(fd, received, sizeof received, 0) > 0)
        ;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    dormouse_server server = make_server(argv);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&address, len) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, (void *)&address, &len) != 0)
        return 3;
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int left = atoi(argv[1]); left > 0; left--) {
        int fd = accept(listener, NULL, NULL);
        asked[0] = 0;
        judged = -1;
        log_lines = busy = 0;
        current = dormouse_accept(server).handshake;
        serve(fd);
        dormouse_handshake_free(current);
        dormouse_connection_wipe(&connection);
        close(fd);
    }
    dormouse_server_free(server);
    dormouse_identity_free(chosen);
    return 0;
}
