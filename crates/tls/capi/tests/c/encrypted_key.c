/* Reads a certificate and an encrypted key, with the right passphrase and with wrong ones: encrypted_key FILE FILE */

#include "check.h"

static size_t contents(const char *path, uint8_t *buffer, size_t room)
{
    FILE *file = fopen(path, "rb");
    CHECK(file);
    size_t len = fread(buffer, 1, room, file);
    CHECK(fclose(file) == 0);
    return len;
}

int main(int argc, char **argv)
{
    static uint8_t certificate[16384], key[16384];
    CHECK(argc == 3);
    size_t certificate_len = contents(argv[1], certificate, sizeof certificate);
    size_t key_len = contents(argv[2], key, sizeof key);
    dormouse_made_identity made = dormouse_identity_from_encrypted_pem(
        certificate, certificate_len, key, key_len, (const uint8_t *)"secret", 6);
    CHECK(made.result.status == DORMOUSE_OK);
    CHECK(dormouse_identity_free(made.identity) == DORMOUSE_OK);
    for (size_t len = 0; len < 6; len++) {
        made = dormouse_identity_from_encrypted_pem(
            certificate, certificate_len, key, key_len, (const uint8_t *)"secret", len);
        CHECK(made.result.status == DORMOUSE_BAD_SETTINGS && made.identity.id == 0);
        CHECK(strstr(made.result.message, "the passphrase does not fit the key"));
    }
    made = dormouse_identity_from_encrypted_pem(certificate, certificate_len, key, key_len, NULL, 1);
    CHECK(made.result.status == DORMOUSE_BAD_ARGUMENT);
    made = dormouse_identity_from_pem(certificate, certificate_len, key, key_len);
    CHECK(made.result.status == DORMOUSE_BAD_SETTINGS && strstr(made.result.message, "is encrypted"));
    puts("done");
    return 0;
}
