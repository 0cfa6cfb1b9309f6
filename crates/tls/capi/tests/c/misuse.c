/* Every misuse by a caller, each with its status. */

#include "pair.h"

static dormouse_connection client, server;
static uint8_t room[65536];

static void wrong_states(void)
{
    dormouse_connection other = {{0}};
    CHECK(dormouse_seal(&other, room, 1, room + 100, 1000).status == DORMOUSE_NO_CONNECTION);
    CHECK(dormouse_receive(&other, room, 5, room + 100, 1000).status == DORMOUSE_NO_CONNECTION);
    CHECK(dormouse_eof(&other) == DORMOUSE_END_TRUNCATED && dormouse_sealed_len(&other, 9) == 0);
    memset(&other, 0xff, sizeof other);
    CHECK(dormouse_describe(&other).status == DORMOUSE_NO_CONNECTION);
    memcpy(&other, &client, sizeof other);
    uint8_t *bytes = (uint8_t *)&other;
    bytes[0] = 2; /* the next layout */
    CHECK(dormouse_describe(&other).status == DORMOUSE_NO_CONNECTION);
    bytes[0] = 1;
    for (int at = 1; at < 5; at++) {
        uint8_t good = bytes[at];
        bytes[at] = 0xee;
        CHECK(dormouse_describe(&other).status == DORMOUSE_BAD_CONNECTION);
        CHECK(dormouse_close(&other, room, sizeof room).status == DORMOUSE_BAD_CONNECTION);
        bytes[at] = good;
    }
    CHECK(dormouse_describe(&other).status == DORMOUSE_OK);
    CHECK(dormouse_describe(NULL).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_describe((void *)(bytes + 1)).status == DORMOUSE_BAD_ARGUMENT);
    dormouse_connection_wipe(&other);
    dormouse_connection_wipe(&other);
    dormouse_connection_wipe(NULL);
    CHECK(dormouse_update_keys(&other, room, sizeof room).status == DORMOUSE_NO_CONNECTION);
}

static void wrong_buffers(void)
{
    uint8_t *own = (uint8_t *)&client;
    CHECK(dormouse_seal(&client, NULL, 1, room, 1000).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_seal(&client, room, SIZE_MAX, room, 1000).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_seal(&client, room + 1000, SIZE_MAX, room, 10).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_seal(&client, room, 100, room + 99, 1000).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_seal(&client, room + 999, 100, room, 1000).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_seal(&client, own + 100, 9, room, 1000).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_seal(&client, room, 9, own + 127, 1000).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_close(&client, own, 128).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_receive(&client, own, 128, room, 1000).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_receive(&client, room, 600, room + 500, 128).status == DORMOUSE_OVERLAP);
    CHECK(dormouse_receive(&client, room, 5, room + 5, DORMOUSE_ANSWER_MAX - 100).status ==
          DORMOUSE_TOO_SMALL);
    /* Unknown; close_notify, user_canceled and no_renegotiation, which are no errors. */
    CHECK(dormouse_abort(&client, 255, room, 100).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_abort(&client, 0, room, 100).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_abort(&client, 90, room, 100).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_abort(&client, 100, room, 100).status == DORMOUSE_BAD_ARGUMENT);
    dormouse_sealed sealed = dormouse_close(&client, room, DORMOUSE_SMALL_MAX - 1);
    CHECK(sealed.status == DORMOUSE_TOO_SMALL && sealed.output_len == DORMOUSE_SMALL_MAX);
    for (size_t len = 1; len < 40000; len = len * 3 + 1) {
        size_t need = dormouse_sealed_len(&client, len);
        sealed = dormouse_seal(&client, room, len, wire, need - 1);
        CHECK(sealed.status == DORMOUSE_TOO_SMALL && sealed.output_len == need);
        sealed = dormouse_seal(&client, room, len, wire, need);
        CHECK(sealed.status == DORMOUSE_OK && sealed.output_len == need);
        dormouse_received got = dormouse_receive(&server, wire, need, room, DORMOUSE_ANSWER_MAX);
        CHECK(got.status == DORMOUSE_OK && got.plaintext_len == len);
    }
    /* Empty input has no effect. */
    sealed = dormouse_seal(&client, NULL, 0, NULL, 0);
    CHECK(sealed.status == DORMOUSE_OK && sealed.output_len == 0);
    dormouse_received got = dormouse_receive(&server, NULL, 0, room, DORMOUSE_ANSWER_MAX);
    CHECK(got.status == DORMOUSE_OK && got.consumed == 0 && got.end == DORMOUSE_END_NONE);
}

static void wrong_handles(dormouse_server context, dormouse_client of_client)
{
    dormouse_handshake none = {0}, future = {1u << 30};
    CHECK(dormouse_handshake_step(none, NULL, 0, room, 10).status == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_handshake_free(future) == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_handshake_facts(none).status == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_handshake_awaits_tickets(none) == 0);
    dormouse_handshake handshake = dormouse_accept(context).handshake;
    CHECK(dormouse_handshake_facts(handshake).status == DORMOUSE_HANDSHAKING);
    CHECK(dormouse_handshake_failure(handshake).result.status == DORMOUSE_OK);
    CHECK(dormouse_handshake_decide(handshake, context) == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_handshake_finish(handshake, &client, room, 10).status == DORMOUSE_HANDSHAKING);
    CHECK(dormouse_handshake_step(handshake, room, 10, room + 9, 10).status == DORMOUSE_OVERLAP);
    dormouse_step step = dormouse_handshake_step(handshake, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18,
                                                 room, 10);
    CHECK(step.progress == DORMOUSE_NOT_ESTABLISHED && step.output_left > 0);
    dormouse_failure failure = dormouse_handshake_failure(handshake);
    CHECK(failure.result.status == DORMOUSE_HANDSHAKE_FAILED && failure.result.message[0] != 0);
    CHECK(failure.is_received == 0);
    CHECK(dormouse_handshake_step(handshake, room, 1, room + 10, 10).status == DORMOUSE_FINISHED);
    CHECK(dormouse_handshake_finish(handshake, &client, room, 10).status == DORMOUSE_HANDSHAKE_FAILED);
    CHECK(dormouse_handshake_free(handshake) == DORMOUSE_OK);
    CHECK(dormouse_handshake_free(handshake) == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_handshake_step(handshake, NULL, 0, room, 10).status == DORMOUSE_NO_SUCH_HANDLE);
    dormouse_client other_kind = {context.id};
    dormouse_made_handshake made = dormouse_connect(other_kind, (const uint8_t *)"localhost", 9);
    CHECK(made.result.status == DORMOUSE_NO_SUCH_HANDLE);
    made = dormouse_connect(of_client, (const uint8_t *)"no name!", 8);
    CHECK(made.result.status == DORMOUSE_BAD_SETTINGS && made.handshake.id == 0);
    made = dormouse_connect(of_client, (const uint8_t *)"\xff", 1);
    CHECK(made.result.status == DORMOUSE_BAD_ARGUMENT);
}

static int judge(void *context, const dormouse_shown *shown)
{
    (void)context, (void)shown;
    return 0;
}

/* Nobody would be asked for the certificates to judge. */
static void a_judge_without_certificates(void)
{
    dormouse_identity identity =
        dormouse_identity_self_signed((const uint8_t *)"a.test", 6).identity;
    dormouse_server_settings settings = dormouse_server_settings_new();
    CHECK(dormouse_server_add_identity(settings, identity).status == DORMOUSE_OK);
    CHECK(dormouse_server_set_judge(settings, judge, NULL).status == DORMOUSE_OK);
    dormouse_made_server made = dormouse_server_new(settings);
    CHECK(made.result.status == DORMOUSE_BAD_SETTINGS);
    CHECK(strstr(made.result.message, "dormouse_server_ask_certificates"));
    CHECK(dormouse_identity_free(identity) == DORMOUSE_OK);
}

static void wrong_settings(void)
{
    dormouse_server_settings settings = dormouse_server_settings_new();
    dormouse_identity none = {0};
    CHECK(dormouse_server_add_identity(settings, none).status == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_server_set_versions(settings, 0x0302, 0x0304).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_server_set_ticket_keys(settings, room, 47, NULL, 0).status == DORMOUSE_BAD_SETTINGS);
    dormouse_made_server made = dormouse_server_new(settings);
    CHECK(made.result.status == DORMOUSE_BAD_SETTINGS && strstr(made.result.message, "certificate"));
    CHECK(dormouse_server_new(settings).result.status == DORMOUSE_NO_SUCH_HANDLE);
    CHECK(dormouse_server_settings_free(settings) == DORMOUSE_NO_SUCH_HANDLE);
    dormouse_made_identity identity = dormouse_identity_from_files("/nowhere.pem", "/nowhere.key");
    CHECK(identity.result.status == DORMOUSE_BAD_SETTINGS && strstr(identity.result.message, "/nowhere"));
    CHECK(dormouse_identity_from_files(NULL, "x").result.status == DORMOUSE_BAD_ARGUMENT);
    identity = dormouse_identity_from_pem((const uint8_t *)"no", 2, (const uint8_t *)"pem", 3);
    CHECK(identity.result.status == DORMOUSE_BAD_SETTINGS && identity.identity.id == 0);
    CHECK(dormouse_identity_from_signer(room, 10, NULL, NULL).result.status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_identity_staple(identity.identity, room, 10).status == DORMOUSE_NO_SUCH_HANDLE);
    identity = dormouse_identity_self_signed((const uint8_t *)"a.test", 6);
    CHECK(dormouse_identity_staple(identity.identity, NULL, 1).status == DORMOUSE_BAD_ARGUMENT);
    CHECK(dormouse_identity_staple(identity.identity, room, 10).status == DORMOUSE_BAD_SETTINGS);
    CHECK(dormouse_identity_free(identity.identity) == DORMOUSE_OK);
    dormouse_client_settings client_settings = dormouse_client_settings_new();
    CHECK(dormouse_client_trust(client_settings, room, 10).status == DORMOUSE_OK);
    CHECK(dormouse_client_new(client_settings).result.status == DORMOUSE_BAD_SETTINGS);
    CHECK(strcmp(dormouse_status_text(0), "done") == 0);
    CHECK(strcmp(dormouse_status_text(4711), "no such status") == 0);
    CHECK(strcmp(dormouse_version(), "0.1.0") == 0);
}

static void after_the_end(void)
{
    dormouse_sealed sealed = dormouse_close(&client, wire, sizeof wire);
    CHECK(sealed.status == DORMOUSE_OK);
    CHECK(dormouse_close(&client, room, sizeof room).status == DORMOUSE_CLOSED);
    CHECK(dormouse_seal(&client, room, 1, wire + 1000, 1000).status == DORMOUSE_CLOSED);
    dormouse_received got = dormouse_receive(&server, wire, sealed.output_len, room, sizeof room);
    CHECK(got.end == DORMOUSE_END_CLOSED && dormouse_eof(&server) == DORMOUSE_END_CLOSED);
    say(&server, &client, "our direction is open");
    CHECK(dormouse_eof(&client) == DORMOUSE_END_TRUNCATED);
    sealed = dormouse_abort(&server, 80, wire, sizeof wire);
    got = dormouse_receive(&client, wire, sealed.output_len, room, sizeof room);
    CHECK(got.end == DORMOUSE_END_ALERT && got.alert == 80);
    /* The end lasts, with bytes and without. */
    for (size_t len = 0; len < 20; len += 9) {
        got = dormouse_receive(&client, wire, len, room, sizeof room);
        CHECK(got.end == DORMOUSE_END_REFUSED && got.output_len == 0 && got.consumed == len);
    }
    CHECK(dormouse_seal(&server, room, 1, wire, 1000).status == DORMOUSE_CLOSED);
}

int main(void)
{
    for (uint16_t version = 0x0303; version <= 0x0304; version++) {
        dormouse_server context = make_server(version, 2);
        dormouse_client of_client = make_client(version);
        connect_both(of_client, context, &client, &server);
        wrong_states();
        wrong_buffers();
        wrong_handles(context, of_client);
        wrong_settings();
        a_judge_without_certificates();
        dormouse_sealed update = dormouse_update_keys(&client, wire, sizeof wire);
        CHECK(update.status == (version == 0x0304 ? DORMOUSE_OK : DORMOUSE_NOT_TLS13));
        dormouse_received got = dormouse_receive(&server, wire, update.output_len, room, 1000);
        CHECK(got.status == DORMOUSE_OK && got.plaintext_len == 0);
        say(&client, &server, "after all of this");
        after_the_end();
        /* Freed contexts are refused without harm. */
        CHECK(dormouse_server_free(context) == DORMOUSE_OK);
        CHECK(dormouse_server_free(context) == DORMOUSE_NO_SUCH_HANDLE);
        CHECK(dormouse_accept(context).result.status == DORMOUSE_NO_SUCH_HANDLE);
        CHECK(dormouse_client_free(of_client) == DORMOUSE_OK);
    }
    puts("done");
    return 0;
}
