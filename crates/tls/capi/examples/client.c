/* A TLS client that sends one line and prints the reply.
 *
 *   client PORT NAME WORDS [ROOTS]     (127.0.0.1; ROOTS: a PEM bundle; default: the system's) */

#include <dormouse.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVED_MAX = 64 * 1024 };

static uint8_t received[RECEIVED_MAX], output[2 * RECEIVED_MAX];
static dormouse_connection connection;
static int fd;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(3);
}

static void check(dormouse_result result, const char *what)
{
    if (result.status != DORMOUSE_OK)
        die(what, result.message);
}

static void send_all(size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t sent = send(fd, output + done, len - done, MSG_NOSIGNAL);
        if (sent <= 0)
            die("send", "the connection is lost");
        done += (size_t)sent;
    }
}

/* Receives, and returns how many bytes are in `received` then. */
static size_t receive_more(size_t before)
{
    ssize_t count = recv(fd, received + before, sizeof received - before, 0);
    if (count < 0)
        die("recv", "the connection is lost");
    if (count == 0)
        die("the server", "closed without close_notify: bytes may be missing");
    return before + (size_t)count;
}

static dormouse_client make_client(const char *roots)
{
    dormouse_client_settings settings = dormouse_client_settings_new();
    if (roots != NULL) {
        FILE *file = fopen(roots, "rb");
        size_t len = file != NULL ? fread(received, 1, sizeof received, file) : 0;
        if (file != NULL)
            fclose(file);
        if (len == sizeof received)
            die(roots, "larger than 64 KiB");
        check(dormouse_client_trust(settings, received, len), roots);
    }
    dormouse_made_client made = dormouse_client_new(settings);
    check(made.result, "client");
    return made.client;
}

/* Completes the handshake. Returns how many bytes arrived after it. */
static size_t shake_hands(dormouse_handshake handshake)
{
    size_t len = 0;
    for (;;) {
        dormouse_step step = dormouse_handshake_step(handshake, received, len, output, sizeof output);
        send_all(step.output_len);
        if (step.progress == DORMOUSE_NOT_ESTABLISHED)
            die("handshake", dormouse_handshake_failure(handshake).result.message);
        if (step.progress == DORMOUSE_ESTABLISHED)
            break;
        len = receive_more(0);
    }
    dormouse_facts facts = dormouse_handshake_facts(handshake);
    fprintf(stderr, "%s, %s%s\n", facts.version == 0x0304 ? "TLS 1.3" : "TLS 1.2",
            (const char *)facts.suite.bytes, facts.is_resumed ? ", resumed" : "");
    return dormouse_handshake_finish(handshake, &connection, received, sizeof received).leftover_len;
}

static void converse(dormouse_client client, const char *name, const char *words)
{
    dormouse_made_handshake made =
        dormouse_connect(client, (const uint8_t *)name, strlen(name));
    check(made.result, name);
    size_t len = shake_hands(made.handshake);
    dormouse_sealed sealed = dormouse_seal(&connection, (const uint8_t *)words, strlen(words), output,
                                           sizeof output);
    if (sealed.status != DORMOUSE_OK)
        die("seal", dormouse_status_text(sealed.status));
    size_t sealed_len = sealed.output_len;
    sealed = dormouse_close(&connection, output + sealed_len, sizeof output - sealed_len);
    if (sealed.status != DORMOUSE_OK)
        die("close", dormouse_status_text(sealed.status));
    send_all(sealed_len + sealed.output_len);
    for (;;) {
        dormouse_received got = dormouse_receive_tickets(&connection, made.handshake, received, len,
                                                         output, DORMOUSE_ANSWER_MAX);
        if (got.status != DORMOUSE_OK)
            die("receive", dormouse_status_text(got.status));
        fwrite(received, 1, got.plaintext_len, stdout);
        send_all(got.output_len);
        if (got.end == DORMOUSE_END_CLOSED)
            break;
        if (got.end != DORMOUSE_END_NONE)
            die("the server", got.end == DORMOUSE_END_ALERT ? "sent an alert" : "violated the protocol");
        memmove(received, received + got.consumed, len - got.consumed);
        len = receive_more(len - got.consumed);
    }
    putchar('\n');
    dormouse_handshake_free(made.handshake);
    dormouse_connection_wipe(&connection);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5)
        die("usage", "client PORT NAME WORDS [ROOTS]");
    dormouse_client client = make_client(argc == 5 ? argv[4] : NULL);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* The second connection resumes the session of the first. */
    for (int visit = 0; visit < 2; visit++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (void *)&address, sizeof address) != 0)
            die(argv[1], "no connection");
        converse(client, argv[2], argv[3]);
        close(fd);
    }
    dormouse_client_free(client);
}
