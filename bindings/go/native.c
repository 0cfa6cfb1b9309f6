#include "native.h"
#include "_cgo_export.h"

/* A handshake's callbacks run on its thread, during its step. */
static __thread uintptr_t stepping;

dormouse_step dormouse_go_step(dormouse_handshake handshake, uintptr_t of, const uint8_t *input,
                               size_t input_len, uint8_t *output, size_t output_room)
{
    uintptr_t outer = stepping;
    stepping = of;
    dormouse_step step = dormouse_handshake_step(handshake, input, input_len, output, output_room);
    stepping = outer;
    return step;
}

void dormouse_go_facts(dormouse_handshake handshake, dormouse_facts *facts)
{
    *facts = dormouse_handshake_facts(handshake);
}

static int32_t judge(void *context, const dormouse_shown *shown)
{
    (void)context;
    return dormouseGoJudge(stepping, (dormouse_shown *)shown);
}

static dormouse_identity choose(void *context, dormouse_bytes server_name)
{
    (void)context, (void)server_name;
    return (dormouse_identity){dormouseGoChoose(stepping)};
}

static size_t sign(void *context, uint16_t scheme, const uint8_t *message, size_t message_len,
                   uint8_t *signature, size_t signature_room)
{
    return dormouseGoSign((uintptr_t)context, scheme, (uint8_t *)message, message_len, signature,
                          signature_room);
}

static void log_secret(void *context, const char *line)
{
    dormouseGoLogSecret((uintptr_t)context, (char *)line);
}

dormouse_made_identity dormouse_go_identity(const uint8_t *chain, size_t chain_len, uintptr_t signer)
{
    return dormouse_identity_from_signer(chain, chain_len, sign, (void *)signer);
}

dormouse_result dormouse_go_server_hooks(dormouse_server_settings settings, int chooses, int judges,
                                         uintptr_t secret_log)
{
    dormouse_result result = dormouse_server_set_choose(settings, chooses ? choose : NULL, NULL);
    if (result.status == DORMOUSE_OK && judges)
        result = dormouse_server_set_judge(settings, judge, NULL);
    if (result.status == DORMOUSE_OK && secret_log != 0)
        result = dormouse_server_set_secret_log(settings, log_secret, (void *)secret_log);
    return result;
}

dormouse_result dormouse_go_client_hooks(dormouse_client_settings settings, uintptr_t secret_log)
{
    dormouse_result result = dormouse_client_trust_anybody(settings);
    if (result.status == DORMOUSE_OK)
        result = dormouse_client_set_judge(settings, judge, NULL);
    if (result.status == DORMOUSE_OK && secret_log != 0)
        result = dormouse_client_set_secret_log(settings, log_secret, (void *)secret_log);
    return result;
}
