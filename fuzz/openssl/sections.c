// Reads PEM texts as OpenSSL does, for the target `pem` of the fuzzer: it compares what this program finds with what
// Dormouse finds. `fuzz/run` compiles it, if OpenSSL's headers are installed.
//
// Each text on standard input has its length before it, 32 bits in the machine's order. The answer is the number of
// sections up to the first error, then each one's label and content with their lengths before them.
#include <openssl/pem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *answer;
static size_t answer_len;
static FILE *out;

static void put(const void *bytes, uint32_t len) {
    fwrite(&len, sizeof len, 1, out);
    fwrite(bytes, 1, len, out);
}

int main(void) {
    uint32_t len;
    while (fread(&len, sizeof len, 1, stdin) == 1) {
        char *text = malloc(len + 1);
        if (text == NULL || fread(text, 1, len, stdin) != len)
            return 1;
        BIO *bio = BIO_new_mem_buf(text, (int)len);
        out = open_memstream(&answer, &answer_len);
        uint32_t count = 0;
        char *label, *header;
        unsigned char *content;
        long content_len;
        while (PEM_read_bio(bio, &label, &header, &content, &content_len)) {
            int is_encrypted = strncmp(header, "Proc-Type: 4,ENCRYPTED", 22) == 0;
            // With another header, every function that reads certificates or keys fails here.
            int is_readable = *header == '\0' || is_encrypted;
            if (is_readable) {
                const char *kind = is_encrypted ? "ENCRYPTED PRIVATE KEY" : label;
                put(kind, (uint32_t)strlen(kind));
                put(content, (uint32_t)content_len);
                count++;
            }
            OPENSSL_free(label);
            OPENSSL_free(header);
            OPENSSL_free(content);
            if (!is_readable)
                break;
        }
        fclose(out);
        fwrite(&count, sizeof count, 1, stdout);
        fwrite(answer, 1, answer_len, stdout);
        fflush(stdout);
        free(answer);
        BIO_free(bio);
        free(text);
    }
    return 0;
}
