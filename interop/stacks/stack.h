/* What each TLS library does for the program in stack.c. A function that fails says why and exits. */
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

/* Makes the contexts ready. */
void tls_setup(const struct options *options);
/* Shakes hands. As client: with the session that was saved, if one was. */
struct tls *tls_open(int fd);
/* Bytes read; 0 at the peer's close_notify. */
int tls_read(struct tls *tls, char *bytes, int max);
void tls_write(struct tls *tls, const char *bytes, int count);
/* Sends a KeyUpdate that asks for another. 0: this library can't. */
int tls_update(struct tls *tls);
/* As client: remembers the session. */
void tls_save(struct tls *tls);
/* Sends close_notify. Reading goes on where tls_half_closes. */
void tls_end(struct tls *tls);
extern const int tls_half_closes;
const char *tls_version(struct tls *tls);
int tls_is_resumed(struct tls *tls);
/* As server: whether the client's certificate was verified. */
int tls_is_client_verified(struct tls *tls);
void tls_free(struct tls *tls);

void fail(const char *what, const char *why) __attribute__((noreturn));
