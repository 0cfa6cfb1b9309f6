/* The interface of each TLS library for stack.c. A function that fails prints the reason and exits. */
#include <stddef.h>

struct options {
    int is_server;
    const char *host;
    const char *port;
    int is_tls13; /* else TLS 1.2 */
    const char *certificate;
    const char *key;
    const char *authority;
};

struct tls;

/* Prepares the contexts. */
void tls_setup(const struct options *options);
/* Performs the handshake. A client offers the saved session, if there is one. */
struct tls *tls_open(int fd);
/* Returns the bytes read; 0 at the peer's close_notify. */
int tls_read(struct tls *tls, char *bytes, int max);
void tls_write(struct tls *tls, const char *bytes, int count);
/* Sends a KeyUpdate that requests another. 0: this library cannot. */
int tls_update(struct tls *tls);
/* As client: saves the session. */
void tls_save(struct tls *tls);
/* Sends close_notify. Reading continues if tls_half_closes. */
void tls_end(struct tls *tls);
extern const int tls_half_closes;
const char *tls_version(struct tls *tls);
int tls_is_resumed(struct tls *tls);
/* As server: whether the client's certificate was verified. */
int tls_is_client_verified(struct tls *tls);
void tls_free(struct tls *tls);

void fail(const char *what, const char *why) __attribute__((noreturn));
