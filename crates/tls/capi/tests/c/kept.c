/* Kept keys: bounded, those of the connection's secrets, and freed with the connection. */

#include "pair.h"
#include <malloc.h>

enum { WARM = 100, PAIRS = 1100 };
/* 16 tables of 64 places, with 1.4 kB for the two keys of a connection. */
static const size_t KEPT_MAX = 16 * 64 * 1400;

static dormouse_connection clients[PAIRS], servers[PAIRS];

static void say_kept(dormouse_connection *from, dormouse_connection *to, const char *words)
{
    uint8_t answer[DORMOUSE_ANSWER_MAX];
    size_t len = strlen(words);
    dormouse_sealed sealed = dormouse_seal_kept(from, (const uint8_t *)words, len, wire, sizeof wire);
    CHECK(sealed.status == DORMOUSE_OK);
    dormouse_received got = dormouse_receive_kept(to, wire, sealed.output_len, answer, sizeof answer);
    CHECK(got.status == DORMOUSE_OK && got.consumed == sealed.output_len && got.need == 0);
    CHECK(got.plaintext_len == len && memcmp(wire, words, len) == 0);
}

static void update(dormouse_connection *from, dormouse_connection *to)
{
    uint8_t answer[DORMOUSE_ANSWER_MAX];
    dormouse_sealed sealed = dormouse_update_keys(from, wire, sizeof wire);
    CHECK(sealed.status == DORMOUSE_OK);
    dormouse_received got = dormouse_receive_kept(to, wire, sealed.output_len, answer, sizeof answer);
    CHECK(got.status == DORMOUSE_OK && got.consumed == sealed.output_len && got.plaintext_len == 0);
}

static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

/* Both kinds of calls, updates of keys, and another connection at the same address. */
static void mixed(dormouse_client client, dormouse_server server, uint16_t version)
{
    for (int i = 0; i < 2; i++) {
        connect_both(client, server, &clients[0], &servers[0]);
        say_kept(&clients[0], &servers[0], "one");
        say(&clients[0], &servers[0], "two");
        say_kept(&servers[0], &clients[0], "three");
        if (version == 0x0304) {
            update(&clients[0], &servers[0]);
            say_kept(&clients[0], &servers[0], "four");
            update(&servers[0], &clients[0]);
            say(&servers[0], &clients[0], "five");
        }
        dormouse_forget_keys(&clients[0]);
        say_kept(&clients[0], &servers[0], "six");
    }
}

int main(void)
{
    for (uint16_t version = 0x0303; version <= 0x0304; version++) {
        dormouse_server server = make_server(version, 0);
        dormouse_client client = make_client(version);
        mixed(client, server, version);
        size_t before = 0;
        for (int i = 0; i < PAIRS; i++) {
            if (i == WARM)
                before = in_use();
            connect_both(client, server, &clients[i], &servers[i]);
            say_kept(&clients[i], &servers[i], "hello");
            say_kept(&servers[i], &clients[i], "hello");
        }
        size_t after = in_use();
        fprintf(stderr, "%x: %zu bytes in use, %zu after %d pairs more\n", version, before, after, PAIRS - WARM);
        CHECK(after < before + KEPT_MAX);
        for (int i = 0; i < PAIRS; i++) {
            say(&clients[i], &servers[i], "still there");
            size_t kept = in_use();
            say_kept(&clients[i], &servers[i], "kept");
            dormouse_connection_wipe(&clients[i]);
            dormouse_connection_wipe(&servers[i]);
            CHECK(in_use() <= kept);
        }
        fprintf(stderr, "%x: %zu bytes in use after their end\n", version, in_use());
        CHECK(in_use() < before);
        CHECK(dormouse_server_free(server) == DORMOUSE_OK);
        CHECK(dormouse_client_free(client) == DORMOUSE_OK);
    }
    return 0;
}
