/* libdormouse: TLS connections of 128 bytes.
 *
 * CONVENTIONS
 *
 * Ownership. The caller owns every buffer and every dormouse_connection; the library reads and writes
 * them during the call and keeps no pointer. Settings, identities, servers, clients and handshakes
 * are handles: numbers. A handle that was freed is refused with DORMOUSE_NO_SUCH_HANDLE, and never
 * means another object. Freeing one twice does nothing.
 *
 * At rest. After dormouse_handshake_finish() and dormouse_handshake_free(), a connection is its 128
 * bytes and nothing else: no heap, no handle. There is nothing to free; wipe it when it ends.
 *
 * Results. Functions return what they have to say by value. There are no in/out parameters, but for
 * the connection itself. If a status is not DORMOUSE_OK, nothing was done.
 *
 * Buffers. A pointer may be null if its length is 0. Buffers of one call may not overlap
 * (DORMOUSE_OVERLAP). Text is UTF-8.
 *
 * Threads. Servers, clients and identities may be used by any number of threads. A connection and a
 * handshake belong to one thread at a time; a second thread that uses a handle finds it
 * DORMOUSE_BUSY. There is no thread-local state. After fork(), one of the two processes must not use
 * the connections; handles must not be used in the child if the parent had other threads.
 *
 * Errors. A panic inside ends the connection or the handshake that it happened in
 * (DORMOUSE_PANIC), wipes its secrets, and reaches neither the caller nor other connections. Memory
 * that is exhausted ends the process, as everywhere in Rust.
 *
 * Time is the system's clock. No file is read but those of dormouse_identity_from_files() and, for
 * clients, the certificates that the system trusts (dormouse_client_new()).
 */

#ifndef DORMOUSE_H
#define DORMOUSE_H

/* Made from crates/capi/src by cbindgen: do not edit. */

#include <stddef.h>
#include <stdint.h>

// Room that dormouse_receive() needs for its output.
#define DORMOUSE_ANSWER_MAX 128

// Room that dormouse_close(), dormouse_abort() and dormouse_update_keys() need.
#define DORMOUSE_SMALL_MAX 64

// The room of a message, its end included.
#define DORMOUSE_MESSAGE_MAX 252

// What became of a call. Everything but DORMOUSE_OK means that nothing was done, unless the function
// says otherwise.
typedef enum dormouse_status {
  // Done.
  DORMOUSE_OK = 0,
  // A null or misaligned pointer, a length that no buffer has, or a value that does not exist.
  DORMOUSE_BAD_ARGUMENT = 1,
  // Two buffers of one call overlap.
  DORMOUSE_OVERLAP = 2,
  // The output has too little room; the result says how much is needed.
  DORMOUSE_TOO_SMALL = 3,
  // No such object: the handle is zero, was freed, or is of another kind.
  DORMOUSE_NO_SUCH_HANDLE = 4,
  // The object is in use by another thread, or by the call whose callback this is.
  DORMOUSE_BUSY = 5,
  // The 128 bytes hold no connection: empty, wiped, or of another version.
  DORMOUSE_NO_CONNECTION = 6,
  // The 128 bytes are damaged.
  DORMOUSE_BAD_CONNECTION = 7,
  // The handshake is not done yet.
  DORMOUSE_HANDSHAKING = 8,
  // The handshake has failed.
  DORMOUSE_HANDSHAKE_FAILED = 9,
  // The handshake is done, and its connection was taken.
  DORMOUSE_FINISHED = 10,
  // Output of the handshake is waiting: send it first.
  DORMOUSE_OUTPUT_WAITING = 11,
  // close_notify or a fatal alert was sent, or a fatal one received: nothing more can be sent.
  DORMOUSE_CLOSED = 12,
  // The connection has failed: only a fatal alert may still be sent.
  DORMOUSE_FAILED = 13,
  // The key has reached its limit (RFC 8446 section 5.5). TLS 1.2 has to close here.
  DORMOUSE_KEY_EXHAUSTED = 14,
  // TLS 1.2 has no KeyUpdate.
  DORMOUSE_NOT_TLS13 = 15,
  // Settings, a certificate or a key that can't be used; the message says why.
  DORMOUSE_BAD_SETTINGS = 16,
  // There is none: no such certificate, or no exporter was asked for.
  DORMOUSE_NONE = 17,
  // An internal error has ended this connection or handshake, and no other.
  DORMOUSE_PANIC = 18,
  // The cryptographic library refused to work.
  DORMOUSE_LIBRARY = 19,
} dormouse_status;

// What the trusted roots say of a certificate.
typedef enum dormouse_finding {
  // It is good.
  DORMOUSE_TRUSTED = 0,
  // It is for another name, and all else is good.
  DORMOUSE_WRONG_NAME = 1,
  // It is not good, for the reason that is given.
  DORMOUSE_REFUSED = 2,
  // There are no roots to judge by.
  DORMOUSE_NO_ROOTS = 3,
} dormouse_finding;

// How the peer's direction has ended.
typedef enum dormouse_end {
  // It has not.
  DORMOUSE_END_NONE = 0,
  // The peer sent close_notify: all that it sent has arrived. Our direction is still open.
  DORMOUSE_END_CLOSED = 1,
  // The transport ended without close_notify: bytes may be missing, by accident or by an attack.
  DORMOUSE_END_TRUNCATED = 2,
  // The peer sent a fatal alert: nothing goes either way.
  DORMOUSE_END_ALERT = 3,
  // The peer broke the protocol, or somebody changed its bytes. Send the output: it is the alert that
  // says so.
  DORMOUSE_END_REFUSED = 4,
} dormouse_end;

// How far a handshake is.
typedef enum dormouse_progress {
  // More must be received.
  DORMOUSE_MORE = 0,
  // After dormouse_listen(): the client has said what it wants. dormouse_handshake_hello() tells it,
  // dormouse_handshake_decide() goes on.
  DORMOUSE_CLIENT_HELLO = 1,
  // Done: send the output, then dormouse_handshake_finish().
  DORMOUSE_ESTABLISHED = 2,
  // Failed: dormouse_handshake_failure() says why. Send the output, which may hold an alert, and free
  // it.
  DORMOUSE_NOT_ESTABLISHED = 3,
} dormouse_progress;

// How a client does TLS, while it is being said. One thread at a time uses it.
typedef struct dormouse_client_settings {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_client_settings;

// What became of a call that reads settings, and why in words.
typedef struct dormouse_result {
  // What became of it.
  enum dormouse_status status;
  // UTF-8 with a zero at its end; cut off if it is too long, empty if all is well.
  char message[DORMOUSE_MESSAGE_MAX];
} dormouse_result;

// Bytes that are valid during one callback.
typedef struct dormouse_bytes {
  // Null if there are none.
  const uint8_t *at;
  // How many.
  size_t len;
} dormouse_bytes;

// The certificates that a peer showed, valid during the callback.
typedef struct dormouse_shown {
  // The chain, DER, the peer's own certificate first.
  const struct dormouse_bytes *chain;
  // Certificates in the chain, at least 1.
  size_t chain_len;
  // Client side: the server that was asked for. Not ended by a zero.
  struct dormouse_bytes server_name;
  // Client side: the OCSP response that came with the chain.
  struct dormouse_bytes ocsp_response;
  // What the roots say.
  enum dormouse_finding finding;
  // DORMOUSE_REFUSED, DORMOUSE_WRONG_NAME: why, in words. Not ended by a zero.
  struct dormouse_bytes reason;
} dormouse_shown;

// Judges a peer's certificate. Returns 1 to accept it and anything else to refuse it, whatever the roots
// said. That the peer has the certificate's key is checked in any case.
typedef int32_t (*dormouse_judge_callback)(void *context, const struct dormouse_shown *shown);

// A certificate chain with its key. Any thread may use it. dormouse_identity_free() when it is no longer
// needed; contexts that were made with it keep what they need.
typedef struct dormouse_identity {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_identity;

// Takes a line of a key log (NSS format), ended by a zero. Whoever has it can decrypt the connection:
// only for debugging, and only when somebody asks for it.
typedef void (*dormouse_secret_log_callback)(void *context, const char *line);

// What all connections of a client share, sessions for resumption among it. Any thread may use it,
// several at once. dormouse_client_free() when nobody connects any more; handshakes that have begun go on.
typedef struct dormouse_client {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_client;

// A new client, or why there is none.
typedef struct dormouse_made_client {
  // DORMOUSE_OK, or what is wrong with the settings.
  struct dormouse_result result;
  // The caller's, to be freed.
  struct dormouse_client client;
} dormouse_made_client;

// What dormouse_receive() made of a buffer.
typedef struct dormouse_received {
  // Anything but DORMOUSE_OK: nothing was touched, and all else is zero.
  enum dormouse_status status;
  // How the peer's direction has ended. Plaintext that came before the end is there too.
  enum dormouse_end end;
  // The number of the alert that the peer sent (DORMOUSE_END_ALERT) or that it is sent
  // (DORMOUSE_END_REFUSED).
  uint8_t alert;
  // Bytes of the buffer that are used up. What follows is the beginning of a record: keep it, and put
  // what is received next behind it.
  size_t consumed;
  // Length of the plaintext, which lies at the start of the buffer.
  size_t plaintext_len;
  // Length of the output, which is to be sent to the peer.
  size_t output_len;
  // Bytes of the record that begins behind `consumed`, as far as is known (18,437 at most); 0 if
  // nothing is left over.
  size_t need;
} dormouse_received;

// A connection at rest: 128 bytes that the caller owns. There is no pointer inside. It may lie in
// shared memory, be stored, or be given to another process together with its descriptor, but there
// must never be two copies that are both used: a key would be used twice for one number.
//
// All zero is empty. The bytes are secrets: dormouse_connection_wipe() when the connection ends.
typedef struct dormouse_connection {
  uint64_t opaque[16];
} dormouse_connection;

// What was sealed.
typedef struct dormouse_sealed {
  // Anything but DORMOUSE_OK: send nothing of the output.
  enum dormouse_status status;
  // DORMOUSE_OK: length of the output, which is to be sent to the peer, all of it and in order.
  // DORMOUSE_TOO_SMALL: the room that is needed.
  size_t output_len;
} dormouse_sealed;

// What a connection says of itself.
typedef struct dormouse_description {
  // DORMOUSE_OK, or why it is no connection that can go on.
  enum dormouse_status status;
  // 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
  uint16_t version;
  // 1 if we are the client.
  uint8_t is_client;
  // 1 if nothing more can be sent.
  uint8_t is_closed;
  // 1 if the peer has sent close_notify.
  uint8_t is_peer_closed;
} dormouse_description;

// A handshake in flight. One thread at a time uses it. It takes some kilobytes, and 64 KiB of input at
// most. dormouse_handshake_free() when its connection is at rest, or it has failed.
typedef struct dormouse_handshake {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_handshake;

// A new handshake, or why there is none.
typedef struct dormouse_made_handshake {
  // DORMOUSE_OK, or what is wrong.
  struct dormouse_result result;
  // The caller's, to be freed.
  struct dormouse_handshake handshake;
} dormouse_made_handshake;

// What all connections of a server share. Any thread may use it, several at once.
// dormouse_server_free() when no more clients are accepted; handshakes that have begun go on.
typedef struct dormouse_server {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_server;

// What dormouse_handshake_step() did.
typedef struct dormouse_step {
  // Anything but DORMOUSE_OK: nothing was done.
  enum dormouse_status status;
  // How far the handshake is.
  enum dormouse_progress progress;
  // Length of the output, which is to be sent to the peer.
  size_t output_len;
  // Bytes of output that found no room: call again, without input.
  size_t output_left;
} dormouse_step;

// Text of the peer's or ours: `len` bytes, and a zero behind them.
typedef struct dormouse_text {
  // How many bytes; 0: none.
  size_t len;
  // The bytes.
  uint8_t bytes[256];
} dormouse_text;

// What a client asks for.
typedef struct dormouse_hello {
  // DORMOUSE_OK, or DORMOUSE_HANDSHAKING as long as it has not said it.
  enum dormouse_status status;
  // The server name (SNI), in lower case; empty: none.
  struct dormouse_text server_name;
  // The application protocols (ALPN) that it offers, each with its length in one byte before it, as far as
  // there is room; empty: none.
  struct dormouse_text alpn;
} dormouse_hello;

// Why a handshake failed.
typedef struct dormouse_failure {
  // DORMOUSE_HANDSHAKE_FAILED and the reason in words; another status if it has not failed.
  struct dormouse_result result;
  // The number of the alert that was sent or received; 0: none is known.
  uint8_t alert;
} dormouse_failure;

// What a handshake agreed on.
typedef struct dormouse_facts {
  // DORMOUSE_OK, or DORMOUSE_HANDSHAKING as long as it is not done.
  enum dormouse_status status;
  // 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
  uint16_t version;
  // 1 if an earlier session was resumed.
  uint8_t is_resumed;
  // 1 if the peer's certificate was judged and accepted; a client is asked for one only if the settings
  // say so.
  uint8_t is_verified;
  // Certificates in the peer's chain: see dormouse_handshake_certificate().
  size_t certificates;
  // The cipher suite's name as IANA has it.
  struct dormouse_text suite;
  // The key exchange group's name as IANA has it; empty in a resumed TLS 1.2 handshake.
  struct dormouse_text group;
  // The application protocol (ALPN); empty: none.
  struct dormouse_text alpn;
  // The server name: sent by the client, or asked for by us.
  struct dormouse_text server_name;
} dormouse_facts;

// Something that was copied to the caller.
typedef struct dormouse_copied {
  // DORMOUSE_OK, or why nothing was copied.
  enum dormouse_status status;
  // DORMOUSE_OK: bytes that were written. DORMOUSE_TOO_SMALL: the room that is needed.
  size_t len;
} dormouse_copied;

// What dormouse_handshake_finish() gave out.
typedef struct dormouse_finished {
  // Anything but DORMOUSE_OK: nothing was done, and the handshake is as it was.
  enum dormouse_status status;
  // DORMOUSE_OK: bytes in `leftover`. DORMOUSE_TOO_SMALL: the room that is needed.
  size_t leftover_len;
} dormouse_finished;

// A new identity, or why there is none.
typedef struct dormouse_made_identity {
  // DORMOUSE_OK, or what is wrong with the certificate or the key.
  struct dormouse_result result;
  // The caller's, to be freed.
  struct dormouse_identity identity;
} dormouse_made_identity;

// Signs `message` (not hashed yet) with a private key, by this signature scheme (RFC 8446 section
// 4.2.3), into `signature`, which has room for `signature_room` bytes (1,024). Returns the length, or 0
// if it can't sign: the handshake fails then. An ECDSA signature is DER.
//
// Callbacks run on the thread of the handshake, several at once if several threads shake hands. They
// must return: no longjmp, no exception. What they call on the handshake that waits for them is
// DORMOUSE_BUSY.
typedef size_t (*dormouse_sign_callback)(void *context,
                                         uint16_t scheme,
                                         const uint8_t *message,
                                         size_t message_len,
                                         uint8_t *signature,
                                         size_t signature_room);

// How a server does TLS, while it is being said. One thread at a time uses it.
typedef struct dormouse_server_settings {
  // A number that only this library understands; 0: none.
  uint64_t id;
} dormouse_server_settings;

// Chooses the certificate for a client that asks for `server_name` (in lower case; empty if it names
// none). Returns an identity, which stays the caller's, or one whose id is 0: then the choice is made
// among the context's own.
typedef struct dormouse_identity (*dormouse_choose_callback)(void *context,
                                                             struct dormouse_bytes server_name);

// A new server, or why there is none.
typedef struct dormouse_made_server {
  // DORMOUSE_OK, or what is wrong with the settings.
  struct dormouse_result result;
  // The caller's, to be freed.
  struct dormouse_server server;
} dormouse_made_server;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Begins the settings of a client: TLS 1.2 and 1.3, the roots that the system trusts, sessions are
// resumed, no ALPN. dormouse_client_new() or dormouse_client_settings_free() ends them.
struct dormouse_client_settings dormouse_client_settings_new(void);

// Frees settings that are not used. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
enum dormouse_status dormouse_client_settings_free(struct dormouse_client_settings settings);

// Trusts the roots of this PEM bundle, in which every certificate must be usable, and no others.
//
// # Safety
// `bundle` points to `bundle_len` bytes.
struct dormouse_result dormouse_client_trust(struct dormouse_client_settings settings,
                                             const uint8_t *bundle,
                                             size_t bundle_len);

// Judges no server's certificate by roots. Without a judge every server is accepted, which is no
// protection at all: only to try things out.
struct dormouse_result dormouse_client_trust_anybody(struct dormouse_client_settings settings);

// Lets the caller judge servers' certificates, after the roots have.
//
// # Safety
// `judge` keeps to its contract, on any thread, as long as the client or a handshake of it lives.
struct dormouse_result dormouse_client_set_judge(struct dormouse_client_settings settings,
                                                 dormouse_judge_callback judge,
                                                 void *context);

// Sets the client's own certificate, for servers that ask for one.
struct dormouse_result dormouse_client_set_identity(struct dormouse_client_settings settings,
                                                    struct dormouse_identity identity);

// Adds an application protocol (ALPN), 1 to 255 bytes; the preferred one first.
//
// # Safety
// `protocol` points to `protocol_len` bytes.
struct dormouse_result dormouse_client_add_alpn(struct dormouse_client_settings settings,
                                                const uint8_t *protocol,
                                                size_t protocol_len);

// Sets the oldest and the newest version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
struct dormouse_result dormouse_client_set_versions(struct dormouse_client_settings settings,
                                                    uint16_t min,
                                                    uint16_t max);

// Makes every handshake a full one: no session is kept or resumed.
struct dormouse_result dormouse_client_disable_resumption(struct dormouse_client_settings settings);

// Lets connections export keying material: dormouse_handshake_export(). TLS 1.2 servers then need an
// extended master secret (RFC 7627).
struct dormouse_result dormouse_client_enable_exporter(struct dormouse_client_settings settings);

// Gives the secrets of every connection to a log. Only for debugging: whoever has them can read along.
//
// # Safety
// `log` keeps to its contract, on any thread, as long as the client or a handshake of it lives.
struct dormouse_result dormouse_client_set_secret_log(struct dormouse_client_settings settings,
                                                      dormouse_secret_log_callback log,
                                                      void *context);

// Makes a client. The settings are used up, also if it fails.
struct dormouse_made_client dormouse_client_new(struct dormouse_client_settings settings);

// Frees a client. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
enum dormouse_status dormouse_client_free(struct dormouse_client client);

// Opens all whole records in `buffer`, in place, and moves their plaintext to its start.
//
// `output` takes the answer to the peer, if there is one (a KeyUpdate, an alert), and has room for
// DORMOUSE_ANSWER_MAX bytes. Session tickets are ignored: see dormouse_receive_tickets(). Give it all
// that was received: each call derives a key, which takes about a microsecond.
//
// No memory is kept, and none of the buffers may overlap.
//
// # Safety
// `connection` points to a connection that no other thread uses, `buffer` to `buffer_len` bytes and
// `output` to `output_room` bytes.
struct dormouse_received dormouse_receive(struct dormouse_connection *connection,
                                          uint8_t *buffer,
                                          size_t buffer_len,
                                          uint8_t *output,
                                          size_t output_room);

// Returns how a connection has ended whose transport has: DORMOUSE_END_CLOSED if close_notify came before
// that, DORMOUSE_END_TRUNCATED if it did not or `connection` is no connection.
//
// # Safety
// `connection` is null or points to a connection that no other thread uses.
enum dormouse_end dormouse_eof(struct dormouse_connection *connection);

// Returns the room that dormouse_seal() needs for so much plaintext at this moment; 0 if `connection` is
// no connection. plaintext_len + 64 + 29 bytes for each 16,384 of it is always enough.
//
// # Safety
// `connection` is null or points to a connection that no other thread uses.
size_t dormouse_sealed_len(struct dormouse_connection *connection,
                           size_t plaintext_len);

// Seals all of `plaintext` into `output`, or nothing if there is too little room
// (dormouse_sealed_len()). A KeyUpdate that is due goes before it. Of no plaintext comes no record.
//
// None of the buffers may overlap.
//
// # Safety
// `connection` points to a connection that no other thread uses, `plaintext` to `plaintext_len` bytes
// and `output` to `output_room` bytes.
struct dormouse_sealed dormouse_seal(struct dormouse_connection *connection,
                                     const uint8_t *plaintext,
                                     size_t plaintext_len,
                                     uint8_t *output,
                                     size_t output_room);

// Ends our direction: seals close_notify, which takes DORMOUSE_SMALL_MAX bytes of room at most. The
// peer's direction stays open.
//
// # Safety
// `connection` points to a connection that no other thread uses, `output` to `output_room` bytes.
struct dormouse_sealed dormouse_close(struct dormouse_connection *connection,
                                      uint8_t *output,
                                      size_t output_room);

// Gives the connection up in both directions: seals a fatal alert with this number (RFC 8446 section 6),
// which takes DORMOUSE_SMALL_MAX bytes of room at most.
//
// # Safety
// As dormouse_close().
struct dormouse_sealed dormouse_abort(struct dormouse_connection *connection,
                                      uint8_t alert,
                                      uint8_t *output,
                                      size_t output_room);

// Replaces the key of our direction and seals the KeyUpdate that says so, which takes
// DORMOUSE_SMALL_MAX bytes of room at most (TLS 1.3). Keys near their limit are replaced without this.
//
// # Safety
// As dormouse_close().
struct dormouse_sealed dormouse_update_keys(struct dormouse_connection *connection,
                                            uint8_t *output,
                                            size_t output_room);

// Checks the 128 bytes of a connection (as every function does), and describes it.
//
// # Safety
// `connection` is null or points to 128 bytes that no other thread writes.
struct dormouse_description dormouse_describe(struct dormouse_connection *connection);

// Wipes a connection: its secrets are gone, and every function refuses it. Whatever is in the memory,
// this is right.
//
// # Safety
// `connection` is null or points to 128 bytes that no other thread uses.
void dormouse_connection_wipe(struct dormouse_connection *connection);

// Begins a handshake with a client that has just connected.
struct dormouse_made_handshake dormouse_accept(struct dormouse_server server);

// Begins a handshake with a client whose server is chosen by what it asks for.
struct dormouse_made_handshake dormouse_listen(void);

// Begins a handshake with the server `server_name`, a host name or an IP address, to which the caller has
// connected. The first dormouse_handshake_step(), without input, makes the first output.
//
// # Safety
// `server_name` points to `server_name_len` bytes.
struct dormouse_made_handshake dormouse_connect(struct dormouse_client client,
                                                const uint8_t *server_name,
                                                size_t server_name_len);

// Takes what was received, cut anywhere, and gives out what is to be sent. All of the input is taken, and
// nothing of it is kept by reference. The two may not overlap. Once the handshake is done or has failed,
// input is refused (DORMOUSE_FINISHED), and calls without input give out what output is left.
//
// # Safety
// `input` points to `input_len` bytes, `output` to `output_room` bytes.
struct dormouse_step dormouse_handshake_step(struct dormouse_handshake handshake,
                                             const uint8_t *input,
                                             size_t input_len,
                                             uint8_t *output,
                                             size_t output_room);

// Tells what the client asks for, after DORMOUSE_CLIENT_HELLO.
struct dormouse_hello dormouse_handshake_hello(struct dormouse_handshake handshake);

// Goes on with this server, after DORMOUSE_CLIENT_HELLO, now or later. Call dormouse_handshake_step()
// next, without input if there is none.
enum dormouse_status dormouse_handshake_decide(struct dormouse_handshake handshake,
                                               struct dormouse_server server);

// Tells why a handshake failed.
struct dormouse_failure dormouse_handshake_failure(struct dormouse_handshake handshake);

// Tells what a handshake agreed on, until it is freed.
struct dormouse_facts dormouse_handshake_facts(struct dormouse_handshake handshake);

// Copies a certificate of the peer's chain, DER; number 0 is its own. DORMOUSE_NONE: there is none.
//
// # Safety
// `output` points to `output_room` bytes.
struct dormouse_copied dormouse_handshake_certificate(struct dormouse_handshake handshake,
                                                      size_t number,
                                                      uint8_t *output,
                                                      size_t output_room);

// Exports keying material (RFC 8446 section 7.5, RFC 5705): fills all of `output`, 1 to 8,160 bytes.
// DORMOUSE_NONE: the settings do not enable it. A null `context` is none, which TLS 1.2 distinguishes from
// an empty one.
//
// # Safety
// Each pointer points to as many bytes as its length says.
enum dormouse_status dormouse_handshake_export(struct dormouse_handshake handshake,
                                               const uint8_t *label,
                                               size_t label_len,
                                               const uint8_t *context,
                                               size_t context_len,
                                               uint8_t *output,
                                               size_t output_len);

// Ends a handshake that is done: its connection goes into the caller's memory, `connection`, and is at
// rest there. What was received behind the handshake, still sealed, goes to `leftover`: give it to
// dormouse_receive() before anything else. 64 KiB of room are enough for it, and as much room as the last
// input had is, too.
//
// All output must have been taken (DORMOUSE_OUTPUT_WAITING). Afterwards the handshake answers
// questions and takes tickets; free it when it does not.
//
// # Safety
// `connection` points to 128 bytes, aligned to 8, and `leftover` to `leftover_room` bytes.
struct dormouse_finished dormouse_handshake_finish(struct dormouse_handshake handshake,
                                                   struct dormouse_connection *connection,
                                                   uint8_t *leftover,
                                                   size_t leftover_room);

// Frees a handshake. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens; from a callback of
// its own it is DORMOUSE_BUSY. A connection that came out of it goes on.
enum dormouse_status dormouse_handshake_free(struct dormouse_handshake handshake);

// Returns the library's version, "0.1.0": a constant, valid for ever.
const char *dormouse_version(void);

// Reads a certificate chain and its key, both PEM, the server's own certificate first. The two may be
// one buffer that holds both. Nothing of the buffers is kept; wipe the key's.
//
// # Safety
// Each pointer points to as many bytes as its length says.
struct dormouse_made_identity dormouse_identity_from_pem(const uint8_t *certificate,
                                                         size_t certificate_len,
                                                         const uint8_t *key,
                                                         size_t key_len);

// Reads a certificate chain and its key from two PEM files, or from one that holds both. The paths end with a
// zero.
//
// # Safety
// `certificate` and `key` are texts that end with a zero.
struct dormouse_made_identity dormouse_identity_from_files(const char *certificate,
                                                           const char *key);

// Takes a certificate chain (PEM) whose key never leaves its store: `sign` makes the signatures, during
// handshakes and on the thread of the handshake. `context` is given to it, and must live as long as any
// connection's handshake may use this identity.
//
// # Safety
// `certificate` points to as many bytes as its length says. `sign` keeps to its contract, on any thread.
struct dormouse_made_identity dormouse_identity_from_signer(const uint8_t *certificate,
                                                            size_t certificate_len,
                                                            dormouse_sign_callback sign,
                                                            void *context);

// Makes a certificate for `name` that nobody trusts, to try things out.
//
// # Safety
// `name` points to `name_len` bytes.
struct dormouse_made_identity dormouse_identity_self_signed(const uint8_t *name, size_t name_len);

// Frees an identity. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
enum dormouse_status dormouse_identity_free(struct dormouse_identity identity);

// Begins the settings of a server: TLS 1.2 and 1.3, tickets with keys of its own, no ALPN, and clients
// are not asked for certificates. dormouse_server_new() or dormouse_server_settings_free() ends them.
struct dormouse_server_settings dormouse_server_settings_new(void);

// Frees settings that are not used. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
enum dormouse_status dormouse_server_settings_free(struct dormouse_server_settings settings);

// Adds a certificate. Which one a client gets is chosen by the name that it asks for and the
// signatures that it accepts; the first is for all others.
struct dormouse_result dormouse_server_add_identity(struct dormouse_server_settings settings,
                                                    struct dormouse_identity identity);

// Lets the caller choose certificates, before those that were added.
//
// # Safety
// `choose` keeps to its contract, on any thread, as long as the server or a handshake of it lives.
struct dormouse_result dormouse_server_set_choose(struct dormouse_server_settings settings,
                                                  dormouse_choose_callback choose,
                                                  void *context);

// Adds an application protocol (ALPN), 1 to 255 bytes; the preferred one first.
//
// # Safety
// `protocol` points to `protocol_len` bytes.
struct dormouse_result dormouse_server_add_alpn(struct dormouse_server_settings settings,
                                                const uint8_t *protocol,
                                                size_t protocol_len);

// Sets the oldest and the newest version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
struct dormouse_result dormouse_server_set_versions(struct dormouse_server_settings settings,
                                                    uint16_t min,
                                                    uint16_t max);

// Asks clients for certificates, signed by one of `roots` (a PEM bundle). `required` is 1 to refuse
// clients without one, or 0. `roots` may be empty if there is a judge: then it judges alone.
//
// # Safety
// `roots` points to `roots_len` bytes.
struct dormouse_result dormouse_server_ask_certificates(struct dormouse_server_settings settings,
                                                        int32_t required,
                                                        const uint8_t *roots,
                                                        size_t roots_len);

// Lets the caller judge clients' certificates, after the roots have, and again whenever a session is
// resumed.
//
// # Safety
// `judge` keeps to its contract, on any thread, as long as the server or a handshake of it lives.
struct dormouse_result dormouse_server_set_judge(struct dormouse_server_settings settings,
                                                 dormouse_judge_callback judge,
                                                 void *context);

// Sets how many tickets follow a TLS 1.3 handshake, 0 to 16 (2 by default); 0 turns resumption off, in
// TLS 1.2 too.
struct dormouse_result dormouse_server_set_tickets(struct dormouse_server_settings settings,
                                                   size_t count);

// Seals tickets with the keys of a file (its contents), so that this program and others resume each
// other's sessions. The file is one that `dormouse serve` takes as `ticket_keys = "file:PATH"`: a key of 48 or
// 80 bytes, as nginx has it; lines of such keys in base64, as HAProxy has them; or Dormouse's own, for
// which `secret` is what is in `ticket_secret_file`. Wipe both afterwards.
//
// # Safety
// Each pointer points to as many bytes as its length says.
struct dormouse_result dormouse_server_set_ticket_keys(struct dormouse_server_settings settings,
                                                       const uint8_t *keys,
                                                       size_t keys_len,
                                                       const uint8_t *secret,
                                                       size_t secret_len);

// Lets connections export keying material: dormouse_handshake_export(). TLS 1.2 clients then need an
// extended master secret (RFC 7627).
struct dormouse_result dormouse_server_enable_exporter(struct dormouse_server_settings settings);

// Gives the secrets of every connection to a log. Only for debugging: whoever has them can read along.
//
// # Safety
// `log` keeps to its contract, on any thread, as long as the server or a handshake of it lives.
struct dormouse_result dormouse_server_set_secret_log(struct dormouse_server_settings settings,
                                                      dormouse_secret_log_callback log,
                                                      void *context);

// Makes a server. The settings are used up, also if it fails.
struct dormouse_made_server dormouse_server_new(struct dormouse_server_settings settings);

// Frees a server. A second time it is DORMOUSE_NO_SUCH_HANDLE, and nothing happens.
enum dormouse_status dormouse_server_free(struct dormouse_server server);

// Returns a status in words: a constant, valid for ever.
const char *dormouse_status_text(uint32_t status);

// Does what dormouse_receive() does, for a client that wants the server's session tickets: `handshake` takes them. It is the one
// that this connection comes from, finished and not freed yet. Use it until
// dormouse_handshake_awaits_tickets() is 0, or until you have waited long enough (a second is plenty);
// then free it.
//
// # Safety
// As dormouse_receive().
struct dormouse_received dormouse_receive_tickets(struct dormouse_connection *connection,
                                                  struct dormouse_handshake handshake,
                                                  uint8_t *buffer,
                                                  size_t buffer_len,
                                                  uint8_t *output,
                                                  size_t output_room);

// Returns 1 if a client's handshake waits for session tickets: see dormouse_receive_tickets().
int32_t dormouse_handshake_awaits_tickets(struct dormouse_handshake handshake);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DORMOUSE_H */
