/* A client and a server in one process, for tests: created once, connected in memory. */

#include "check.h"

static uint8_t wire[131072];

static dormouse_server make_server(uint16_t version, size_t tickets)
{
    dormouse_made_identity made = dormouse_identity_self_signed((const uint8_t *)"a.test", 6);
    CHECK(made.result.status == DORMOUSE_OK);
    dormouse_server_settings settings = dormouse_server_settings_new();
    CHECK(dormouse_server_add_identity(settings, made.identity).status == DORMOUSE_OK);
    CHECK(dormouse_server_set_versions(settings, version, version).status == DORMOUSE_OK);
    CHECK(dormouse_server_set_tickets(settings, tickets).status == DORMOUSE_OK);
    dormouse_made_server server = dormouse_server_new(settings);
    CHECK(server.result.status == DORMOUSE_OK);
    CHECK(dormouse_identity_free(made.identity) == DORMOUSE_OK);
    return server.server;
}

static dormouse_client make_client(uint16_t version)
{
    dormouse_client_settings settings = dormouse_client_settings_new();
    CHECK(dormouse_client_trust_anybody(settings).status == DORMOUSE_OK);
    CHECK(dormouse_client_set_versions(settings, version, version).status == DORMOUSE_OK);
    dormouse_made_client client = dormouse_client_new(settings);
    CHECK(client.result.status == DORMOUSE_OK);
    return client.client;
}

/* Two connections at rest. */
static inline void connect_both(dormouse_client client_context, dormouse_server server_context,
                         dormouse_connection *client, dormouse_connection *server)
{
    static uint8_t one[65536], two[65536];
    uint8_t answer[DORMOUSE_ANSWER_MAX];
    dormouse_handshake c = dormouse_connect(client_context, (const uint8_t *)"a.test", 6).handshake;
    dormouse_handshake s = dormouse_accept(server_context).handshake;
    dormouse_step ours = dormouse_handshake_step(c, NULL, 0, one, sizeof one);
    dormouse_step theirs = dormouse_handshake_step(s, one, ours.output_len, two, sizeof two);
    ours = dormouse_handshake_step(c, two, theirs.output_len, one, sizeof one);
    CHECK(ours.status == DORMOUSE_OK && ours.progress != DORMOUSE_NOT_ESTABLISHED);
    theirs = dormouse_handshake_step(s, one, ours.output_len, two, sizeof two);
    CHECK(theirs.status == DORMOUSE_OK && theirs.progress == DORMOUSE_ESTABLISHED);
    size_t late = theirs.output_len;
    if (ours.progress != DORMOUSE_ESTABLISHED) {
        ours = dormouse_handshake_step(c, two, late, one, sizeof one);
        CHECK(ours.progress == DORMOUSE_ESTABLISHED && ours.output_len == 0);
        late = 0;
    }
    dormouse_finished finished = dormouse_handshake_finish(s, server, one, sizeof one);
    CHECK(finished.status == DORMOUSE_OK && finished.leftover_len == 0);
    /* A wrong place for the connection does not lose it. */
    finished = dormouse_handshake_finish(c, NULL, one, sizeof one);
    CHECK(finished.status == DORMOUSE_BAD_ARGUMENT);
    finished = dormouse_handshake_finish(c, client, one, sizeof one);
    CHECK(finished.status == DORMOUSE_OK && finished.leftover_len == 0);
    dormouse_received got = dormouse_receive_tickets(client, c, two, late, answer, sizeof answer);
    CHECK(got.status == DORMOUSE_OK && got.end == DORMOUSE_END_NONE && got.consumed == late);
    CHECK(dormouse_handshake_free(c) == DORMOUSE_OK && dormouse_handshake_free(s) == DORMOUSE_OK);
}

/* `from` sends these words, and `to` receives them. */
static inline void say(dormouse_connection *from, dormouse_connection *to, const char *words)
{
    uint8_t answer[DORMOUSE_ANSWER_MAX];
    size_t len = strlen(words);
    dormouse_sealed sealed = dormouse_seal(from, (const uint8_t *)words, len, wire, sizeof wire);
    CHECK(sealed.status == DORMOUSE_OK);
    dormouse_received got = dormouse_receive(to, wire, sealed.output_len, answer, sizeof answer);
    CHECK(got.status == DORMOUSE_OK && got.consumed == sealed.output_len && got.need == 0);
    CHECK(got.plaintext_len == len && memcmp(wire, words, len) == 0);
}
