/* Functions between Go and libdormouse: callbacks that know their handshake, and results by pointer where they are too
 * large for a goroutine's stack. */

#ifndef DORMOUSE_GO_H
#define DORMOUSE_GO_H

#include <dormouse.h>

/* Steps with the Go handshake `of`, which callbacks get. Calls may be nested: a callback may run other handshakes. */
dormouse_step dormouse_go_step(dormouse_handshake handshake, uintptr_t of, const uint8_t *input,
                               size_t input_len, uint8_t *output, size_t output_room);
void dormouse_go_facts(dormouse_handshake handshake, dormouse_facts *facts);

dormouse_made_identity dormouse_go_identity(const uint8_t *chain, size_t chain_len, uintptr_t signer);
dormouse_result dormouse_go_server_hooks(dormouse_server_settings settings, int chooses, int judges,
                                         uintptr_t secret_log);
dormouse_result dormouse_go_client_hooks(dormouse_client_settings settings, uintptr_t secret_log);

#endif
