/* A connection at rest uses no heap: compares the bytes in use before and after. */

#include "pair.h"
#include <malloc.h>

enum { WARM = 100, PAIRS = 1100 };

static dormouse_connection clients[PAIRS], servers[PAIRS];

int main(void)
{
    for (uint16_t version = 0x0303; version <= 0x0304; version++) {
        dormouse_server server = make_server(version, 0);
        dormouse_client client = make_client(version);
        size_t before = 0;
        for (int i = 0; i < PAIRS; i++) {
            /* By then all tables have grown. */
            if (i == WARM)
                before = mallinfo2().uordblks;
            connect_both(client, server, &clients[i], &servers[i]);
            say(&clients[i], &servers[i], "hello");
            say(&servers[i], &clients[i], "hello");
        }
        size_t after = mallinfo2().uordblks;
        fprintf(stderr, "%x: %zu bytes in use, %zu after %d pairs more\n", version, before, after, PAIRS - WARM);
        CHECK(after < before + (PAIRS - WARM));
        for (int i = 0; i < PAIRS; i++) {
            say(&clients[i], &servers[i], "still there");
            CHECK(dormouse_describe(&clients[i]).version == version);
            CHECK(dormouse_describe(&clients[i]).is_client && !dormouse_describe(&servers[i]).is_client);
            dormouse_connection_wipe(&clients[i]);
            dormouse_connection_wipe(&servers[i]);
            CHECK(dormouse_describe(&clients[i]).status == DORMOUSE_NO_CONNECTION);
        }
        CHECK(dormouse_server_free(server) == DORMOUSE_OK);
        CHECK(dormouse_client_free(client) == DORMOUSE_OK);
    }
    return 0;
}
