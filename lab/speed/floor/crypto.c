/* The cryptography that one full TLS 1.3 handshake and one gigabyte need of a server, and nothing else: calls of AWS-LC,
 * the library that Dormouse is built with.
 *
 *   crypto handshakes COUNT     ECDSA P-256, X25519, AES-128-GCM, SHA-256; two tickets, one exchange, close_notify
 *   crypto bytes COUNT          opens COUNT bytes and seals COUNT bytes, in records of 16 KiB
 *
 * Prints CPU seconds. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/aead.h>
#include <openssl/curve25519.h>
#include <openssl/ec.h>
#include <openssl/ec_key.h>
#include <openssl/ecdsa.h>
#include <openssl/hkdf.h>
#include <openssl/hmac.h>
#include <openssl/nid.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "segments.h"

enum { HASH = SHA256_DIGEST_LENGTH, KEY = 16, NONCE = 12, TAG = 16, CONTENT = 16 * 1024, TICKETS = 2, TICKET = 160 };

static unsigned char buffer[CONTENT + 1 + TAG];
static EC_KEY *certificate_key;

static void must(int worked, const char *what)
{
    if (!worked) {
        fprintf(stderr, "crypto: %s failed\n", what);
        exit(3);
    }
}

/* HKDF-Expand-Label with a context of a hash's length, or none (RFC 8446, section 7.1). */
static void derive(unsigned char *out, size_t length, const unsigned char *secret, const unsigned char *context)
{
    unsigned char info[2 + 1 + 18 + 1 + HASH] = {0};
    must(HKDF_expand(out, length, EVP_sha256(), secret, HASH, info, sizeof info - (context ? 0 : HASH)), "HKDF_expand");
}

static void extract(unsigned char *out, const unsigned char *salt, const unsigned char *secret, size_t length)
{
    size_t out_length = HASH;
    must(HKDF_extract(out, &out_length, EVP_sha256(), secret, length, salt, HASH), "HKDF_extract");
}

static void expand_keys(EVP_AEAD_CTX *keys, unsigned char *iv, const unsigned char *secret)
{
    unsigned char key[KEY];
    derive(key, KEY, secret, NULL);
    derive(iv, NONCE, secret, NULL);
    must(EVP_AEAD_CTX_init(keys, EVP_aead_aes_128_gcm(), key, KEY, TAG, NULL), "EVP_AEAD_CTX_init");
}

static void seal(EVP_AEAD_CTX *keys, const unsigned char *iv, size_t length)
{
    unsigned char header[5] = {23, 3, 3};
    size_t sealed;
    must(EVP_AEAD_CTX_seal(keys, buffer, &sealed, sizeof buffer, iv, NONCE, buffer, length + 1, header, 5), "seal");
}

/* Opens what `seal` has sealed. */
static void open_sealed(EVP_AEAD_CTX *keys, const unsigned char *iv, size_t length)
{
    unsigned char header[5] = {23, 3, 3};
    size_t opened;
    must(EVP_AEAD_CTX_open(keys, buffer, &opened, sizeof buffer, iv, NONCE, buffer, length + 1 + TAG, header, 5), "open");
}

static void finished(const unsigned char *secret, const unsigned char *transcript)
{
    unsigned char key[HASH], code[HASH];
    unsigned length;
    derive(key, HASH, secret, NULL);
    must(HMAC(EVP_sha256(), key, HASH, transcript, HASH, code, &length) != NULL, "HMAC");
}

static void handshake(const unsigned char *client_share)
{
    unsigned char random[32], share[32], private_key[32], shared[32], transcript[HASH], secret[HASH], derived[HASH];
    unsigned char client[HASH], server[HASH], master[HASH], resumption[HASH], client_iv[NONCE], server_iv[NONCE];
    EVP_AEAD_CTX client_keys, server_keys;
    SHA256_CTX hash, copy;

    /* ClientHello, ServerHello */
    SHA256_Init(&hash);
    SHA256_Update(&hash, buffer, CLIENT_HELLO - 5);
    RAND_bytes(random, sizeof random);
    X25519_keypair(share, private_key);
    must(X25519(shared, private_key, client_share), "X25519");
    SHA256_Update(&hash, buffer, 122);
    copy = hash;
    SHA256_Final(transcript, &copy);
    memset(secret, 0, HASH);
    extract(derived, secret, secret, HASH);
    derive(secret, HASH, derived, transcript);
    extract(derived, secret, shared, sizeof shared);
    derive(client, HASH, derived, transcript);
    derive(server, HASH, derived, transcript);
    expand_keys(&client_keys, client_iv, client);
    expand_keys(&server_keys, server_iv, server);

    /* EncryptedExtensions, Certificate, CertificateVerify, Finished */
    SHA256_Update(&hash, buffer, SERVER_FLIGHT - 122 - HASH - 100);
    copy = hash;
    SHA256_Final(transcript, &copy);
    unsigned char digest[SHA256_DIGEST_LENGTH], signature[80];
    unsigned length = sizeof signature;
    SHA256(buffer, 64 + 34 + HASH, digest);
    must(ECDSA_sign(0, digest, sizeof digest, signature, &length, certificate_key), "ECDSA_sign");
    SHA256_Update(&hash, signature, length);
    copy = hash;
    SHA256_Final(transcript, &copy);
    finished(server, transcript);
    SHA256_Update(&hash, transcript, HASH);
    copy = hash;
    SHA256_Final(transcript, &copy);
    seal(&server_keys, server_iv, SERVER_FLIGHT - 122);
    derive(secret, HASH, derived, transcript);
    extract(master, secret, secret, HASH);
    derive(server, HASH, master, transcript);
    EVP_AEAD_CTX_cleanup(&server_keys);

    /* Finished of the client */
    seal(&client_keys, client_iv, 4 + HASH); /* to open a short record costs as much */
    finished(client, transcript);
    EVP_AEAD_CTX_cleanup(&client_keys);
    SHA256_Update(&hash, transcript, 4 + HASH);
    SHA256_Final(transcript, &hash);
    derive(client, HASH, master, transcript);
    derive(resumption, HASH, master, transcript);
    expand_keys(&client_keys, client_iv, client);
    expand_keys(&server_keys, server_iv, server);

    /* Tickets, one exchange, and both ends */
    for (int ticket = 0; ticket < TICKETS; ticket++) {
        RAND_bytes(random, sizeof random);
        derive(secret, HASH, resumption, NULL);
        seal(&server_keys, server_iv, TICKET);
    }
    /* The tickets' own encryption, with an existing key. */
    for (int ticket = 0; ticket < TICKETS; ticket++)
        seal(&server_keys, server_iv, TICKET);
    seal(&server_keys, server_iv, TICKETS * (TICKET + 20));
    seal(&client_keys, client_iv, MESSAGE);
    seal(&server_keys, server_iv, MESSAGE);
    seal(&client_keys, client_iv, 2);
    seal(&server_keys, server_iv, 2);
    EVP_AEAD_CTX_cleanup(&client_keys);
    EVP_AEAD_CTX_cleanup(&server_keys);
}

static void move_bytes(long count)
{
    unsigned char secret[HASH] = {1}, iv[NONCE];
    EVP_AEAD_CTX keys;
    expand_keys(&keys, iv, secret);
    for (; count > 0; count -= CONTENT) {
        seal(&keys, iv, CONTENT);
        open_sealed(&keys, iv, CONTENT);
    }
    EVP_AEAD_CTX_cleanup(&keys);
}

static double cpu_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    long count = argc == 3 ? atol(argv[2]) : 0;
    int handshakes = argc == 3 && strcmp(argv[1], "handshakes") == 0;
    if (count <= 0 || (!handshakes && strcmp(argv[1], "bytes") != 0)) {
        fprintf(stderr, "usage: crypto handshakes|bytes COUNT\n");
        return 2;
    }
    unsigned char client_share[32], client_private[32];
    X25519_keypair(client_share, client_private);
    certificate_key = EC_KEY_new_by_curve_name(NID_X9_62_prime256v1);
    must(certificate_key != NULL && EC_KEY_generate_key(certificate_key), "EC_KEY_generate_key");
    /* Not counted: work that is done once. */
    handshake(client_share);
    double before = cpu_seconds();
    if (handshakes)
        for (long i = 0; i < count; i++)
            handshake(client_share);
    else
        move_bytes(count);
    printf("%.6f\n", cpu_seconds() - before);
    return 0;
}
