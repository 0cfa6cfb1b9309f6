/* Random calls with random arguments, on real and on damaged connections. The process must survive,
 * and no call may write beyond the end of a buffer.
 *
 *   random SEED CALLS */

#include "pair.h"

enum { PLACES = 8, HANDLES = 16, FENCE = 32 };

static uint64_t seed;
static dormouse_connection places[PLACES];
static dormouse_handshake handshakes[HANDLES];
static dormouse_server servers[4];
static dormouse_client clients[4];

static uint64_t next(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* A buffer of exactly this length, with a guard area after it. */
static uint8_t *buffer(size_t len)
{
    uint8_t *bytes = malloc(len + FENCE);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)next(256);
    memset(bytes + len, 0xa5, FENCE);
    return bytes;
}

static void release(uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < FENCE; i++)
        CHECK(bytes[len + i] == 0xa5);
    free(bytes);
}

static size_t length(void)
{
    static const size_t lengths[] = {0, 1, 5, 22, 63, 64, 128, 200, 1000, 16384, 20000, 40000};
    return lengths[next(sizeof lengths / sizeof *lengths)];
}

/* One slot seals and the next one opens; sometimes the two belong together. */
static void exchange(void)
{
    size_t from = next(PLACES), len = length(), room = length();
    uint8_t *words = buffer(len), *sealed = buffer(room), *answer = buffer(DORMOUSE_ANSWER_MAX);
    dormouse_sealed made = next(2) == 0 ? dormouse_seal(&places[from], words, len, sealed, room)
                                        : dormouse_seal_kept(&places[from], words, len, sealed, room);
    CHECK(made.status != DORMOUSE_OK || made.output_len <= room);
    size_t got_len = made.status == DORMOUSE_OK ? made.output_len : room;
    if (next(10) == 0 && got_len > 0)
        sealed[next(got_len)] ^= 1;
    if (next(5) == 0)
        got_len = next(got_len + 1);
    dormouse_connection *to = &places[next(4) == 0 ? next(PLACES) : from ^ 1];
    dormouse_received got = next(2) == 0
                                ? dormouse_receive(to, sealed, got_len, answer, DORMOUSE_ANSWER_MAX)
                                : dormouse_receive_kept(to, sealed, got_len, answer, DORMOUSE_ANSWER_MAX);
    CHECK(got.consumed <= got_len && got.plaintext_len <= got.consumed);
    CHECK(got.output_len <= DORMOUSE_ANSWER_MAX);
    release(words, len);
    release(sealed, room);
    release(answer, DORMOUSE_ANSWER_MAX);
}

static void shake(void)
{
    dormouse_handshake handshake = handshakes[next(HANDLES)];
    size_t len = length(), room = length();
    uint8_t *input = buffer(len), *output = buffer(room), *answer = buffer(65536);
    if (next(2) == 0) {
        static const uint8_t hello[] = {22, 3, 1};
        memcpy(input, hello, len < 3 ? len : 3);
    }
    dormouse_step step = dormouse_handshake_step(handshake, input, next(3) ? len : 0, output, room);
    CHECK(step.output_len <= room);
    if (step.status == DORMOUSE_OK && next(2) == 0)
        dormouse_handshake_step(handshakes[next(HANDLES)], output, step.output_len, answer, 65536);
    release(input, len);
    release(output, room);
    release(answer, 65536);
}

static void small(void)
{
    dormouse_connection *connection = &places[next(PLACES)];
    size_t room = length();
    uint8_t *output = buffer(room);
    dormouse_sealed sealed = {DORMOUSE_OK, 0};
    switch (next(4)) {
    case 0: sealed = dormouse_close(connection, output, room); break;
    case 1: sealed = dormouse_abort(connection, (uint8_t)next(256), output, room); break;
    case 2: sealed = dormouse_update_keys(connection, output, room); break;
    default: dormouse_handshake_certificate(handshakes[next(HANDLES)], next(3), output, room);
    }
    CHECK(sealed.status != DORMOUSE_OK || sealed.output_len <= room);
    release(output, room);
}

static void questions(void)
{
    dormouse_handshake handshake = handshakes[next(HANDLES)];
    uint8_t leftover[100], key[40];
    dormouse_handshake_facts(handshake);
    dormouse_handshake_hello(handshake);
    dormouse_handshake_failure(handshake);
    dormouse_handshake_awaits_tickets(handshake);
    dormouse_handshake_decide(handshake, servers[next(4)]);
    dormouse_handshake_export(handshake, key, next(10), key + 10, next(10), key + 20, next(20));
    dormouse_handshake_finish(handshake, &places[next(PLACES)], leftover, next(sizeof leftover));
    dormouse_connection *connection = &places[next(PLACES)];
    dormouse_describe(connection);
    dormouse_eof(connection);
    dormouse_sealed_len(connection, (size_t)next(UINT64_MAX));
}

static void change(void)
{
    size_t at = next(HANDLES), pair = next(PLACES / 2) * 2, which = next(4);
    switch (next(8)) {
    case 0: handshakes[at] = dormouse_accept(servers[which]).handshake; break;
    case 1: handshakes[at] = dormouse_listen().handshake; break;
    case 2: handshakes[at] = dormouse_connect(clients[which], (const uint8_t *)"a.test", 6).handshake; break;
    case 3: dormouse_handshake_free(handshakes[at]); break;
    case 4: ((uint8_t *)&places[pair])[next(128)] ^= (uint8_t)(1 << next(8)); break;
    case 5: dormouse_connection_wipe(&places[pair]); break;
    case 6:
        if (next(20) == 0) {
            dormouse_server_free(servers[which]);
            servers[which] = make_server((uint16_t)(0x0303 + which % 2), which);
        }
        break;
    default: connect_both(clients[which], servers[which], &places[pair], &places[pair + 1]);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    seed = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    for (int i = 0; i < 4; i++) {
        servers[i] = make_server((uint16_t)(0x0303 + i % 2), (size_t)i);
        clients[i] = make_client((uint16_t)(0x0303 + i % 2));
    }
    for (int calls = atoi(argv[2]); calls > 0; calls--) {
        switch (next(8)) {
        case 0: change(); break;
        case 1: questions(); break;
        case 2: small(); break;
        case 3: shake(); break;
        default: exchange();
        }
    }
    for (int i = 0; i < HANDLES; i++)
        dormouse_handshake_free(handshakes[i]);
    for (int i = 0; i < 4; i++) {
        dormouse_server_free(servers[i]);
        dormouse_client_free(clients[i]);
    }
    puts("done");
    return 0;
}
