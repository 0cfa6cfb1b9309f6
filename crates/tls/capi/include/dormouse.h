/* libdormouse: TLS connections of 128 bytes.
 *
 * CONVENTIONS
 *
 * Ownership. The caller owns every buffer and every dormouse_connection; the library reads and writes
 * them during the call and keeps no pointer. Settings, identities, servers, clients and handshakes
 * are handles: numbers. A freed handle is refused with DORMOUSE_NO_SUCH_HANDLE, and never
 * means another object; nor does a handle of another kind. Freeing one twice does nothing.
 *
 * At rest. After dormouse_handshake_finish() and dormouse_handshake_free(), a connection is its 128
 * bytes only: no heap, no handle. There is nothing to free; wipe it when it ends.
 *
 * Results. Functions return their results by value. The only in/out parameter is the connection
 * itself. If a status is not DORMOUSE_OK, nothing was done.
 *
 * Buffers. A pointer may be null if its length is 0. Buffers of one call must not overlap
 * (DORMOUSE_OVERLAP). Text is UTF-8.
 *
 * Threads. Servers, clients and identities may be used by any number of threads. A connection and a
 * handshake belong to one thread at a time; a second thread that uses a handle finds it
 * DORMOUSE_BUSY. Between calls there is no thread-local state. During dormouse_handshake_step() there
 * is: a callback must return before its thread runs another fiber or coroutine. After fork(), one of
 * the two processes must not use the connections; handles must not be used in the child if the parent
 * had other threads.
 *
 * Errors. A panic in the library ends the connection or handshake in which it happens
 * (DORMOUSE_PANIC), wipes its secrets, and affects neither the caller nor other connections. If
 * memory is exhausted, the process ends, as in any Rust program.
 *
 * Time is the system's clock. The library reads only the files of dormouse_identity_from_files()
 * and, for clients, the system's trusted certificates (dormouse_client_new()).
 */

#ifndef DORMOUSE_H
#define DORMOUSE_H

/* Generated from crates/tls/capi/src by cbindgen: do not edit. */

#include <stddef.h>
#include <stdint.h>

// Output room for dormouse_receive().
#define DORMOUSE_ANSWER_MAX 128

// Output room for dormouse_close(), dormouse_abort() and dormouse_update_keys().
#define DORMOUSE_SMALL_MAX 64

// Size of a message, including its terminating zero.
#define DORMOUSE_MESSAGE_MAX 252

// Status of a call. Anything but DORMOUSE_OK means that nothing was done, unless the function says otherwise.
typedef enum dormouse_status {
  // Success.
  DORMOUSE_OK = 0,
  // A null or misaligned pointer, an impossible length, or an unknown value.
  DORMOUSE_BAD_ARGUMENT = 1,
  // Two buffers of one call overlap.
  DORMOUSE_OVERLAP = 2,
  // The output has too little room; the result says how much is required (dormouse_receive():
  // DORMOUSE_ANSWER_MAX).
  DORMOUSE_TOO_SMALL = 3,
  // No such object: the handle is zero, was freed, or belongs to another kind.
  DORMOUSE_NO_SUCH_HANDLE = 4,
  // The object is in use by another thread, or by the call that runs this callback.
  DORMOUSE_BUSY = 5,
  // The 128 bytes hold no connection: empty, wiped, or another version.
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
  // A close_notify or fatal alert was sent, or a fatal alert received: nothing more can be sent.
  DORMOUSE_CLOSED = 12,
  // The connection has failed: only a fatal alert can still be sent.
  DORMOUSE_FAILED = 13,
  // The key reached its limit (RFC 8446 section 5.5). A TLS 1.2 connection must close.
  DORMOUSE_KEY_EXHAUSTED = 14,
  // TLS 1.2 has no KeyUpdate.
  DORMOUSE_NOT_TLS13 = 15,
  // Settings, a certificate or a key that cannot be used; the message says why.
  DORMOUSE_BAD_SETTINGS = 16,
  // Not available: no such certificate, or the exporter is not enabled.
  DORMOUSE_NONE = 17,
  // An internal error ended this connection or handshake; others are not affected.
  DORMOUSE_PANIC = 18,
  // The cryptographic library reported an error.
  DORMOUSE_LIBRARY = 19,
} dormouse_status;

// Result of the check against the trusted roots.
typedef enum dormouse_finding {
  // Valid.
  DORMOUSE_TRUSTED = 0,
  // Valid except for its name.
  DORMOUSE_WRONG_NAME = 1,
  // Invalid, for the given reason.
  DORMOUSE_REFUSED = 2,
  // No roots are configured.
  DORMOUSE_NO_ROOTS = 3,
} dormouse_finding;

// How the peer's direction ended.
typedef enum dormouse_end {
  // It has not ended.
  DORMOUSE_END_NONE = 0,
  // The peer sent close_notify: everything has arrived. Our direction is still open.
  DORMOUSE_END_CLOSED = 1,
  // The transport ended without close_notify: bytes may be missing, by accident or through an attack.
  DORMOUSE_END_TRUNCATED = 2,
  // The peer sent a fatal alert: both directions are closed.
  DORMOUSE_END_ALERT = 3,
  // The peer violated the protocol, or its bytes were changed in transit. Send the output, which contains
  // the alert.
  DORMOUSE_END_REFUSED = 4,
} dormouse_end;

// Progress of a handshake.
typedef enum dormouse_progress {
  // More bytes must be received.
  DORMOUSE_MORE = 0,
  // After dormouse_listen(): the client's request has arrived. dormouse_handshake_hello() returns it, and
  // dormouse_handshake_decide() continues.
  DORMOUSE_CLIENT_HELLO = 1,
  // Done: send the output, then call dormouse_handshake_finish().
  DORMOUSE_ESTABLISHED = 2,
  // Failed: dormouse_handshake_failure() returns the reason. Send the output, which may contain an alert,
  // then free the handshake.
  DORMOUSE_NOT_ESTABLISHED = 3,
} dormouse_progress;

// Client settings under construction. Only one thread may use them at a time.
typedef struct dormouse_client_settings {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_client_settings;

// Status of a call that reads settings, with the reason in words.
typedef struct dormouse_result {
  // The status.
  enum dormouse_status status;
  // UTF-8, terminated by a zero; truncated if too long, empty on success.
  char message[DORMOUSE_MESSAGE_MAX];
} dormouse_result;

// Bytes that are valid during one callback.
typedef struct dormouse_bytes {
  // Null if there are none.
  const uint8_t *at;
  // Length in bytes.
  size_t len;
} dormouse_bytes;

// The certificates that a peer sent, valid during the callback.
typedef struct dormouse_shown {
  // The chain, DER, the peer's own certificate first.
  const struct dormouse_bytes *chain;
  // Number of certificates in the chain, at least 1.
  size_t chain_len;
  // Client side: the requested server name. Not terminated by a zero.
  struct dormouse_bytes server_name;
  // Client side: the OCSP response that came with the chain.
  struct dormouse_bytes ocsp_response;
  // Result of the check against the roots.
  enum dormouse_finding finding;
  // For DORMOUSE_REFUSED and DORMOUSE_WRONG_NAME: the reason in words, one line, in which unprintable characters of
  // the peer's names are escaped. Not terminated by a zero.
  struct dormouse_bytes reason;
} dormouse_shown;

// Checks a peer's certificate. Returns 1 to accept it and anything else to refuse it, whatever the roots
// found. The peer's possession of the certificate's key is verified in any case.
typedef int32_t (*dormouse_judge_callback)(void *context, const struct dormouse_shown *shown);

// A certificate chain with its key. Any thread may use it. Free it with dormouse_identity_free() when no
// longer needed; contexts made with it keep their own copy.
typedef struct dormouse_identity {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_identity;

// Receives a line of a key log (NSS format), terminated by a zero. Anyone with the line can decrypt the
// connection: only for debugging, and only at the operator's request.
typedef void (*dormouse_secret_log_callback)(void *context, const char *line);

// A client context, shared by all its connections, including their sessions for resumption. Any number of
// threads may use it. Free it with dormouse_client_free(); handshakes in progress continue.
typedef struct dormouse_client {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_client;

// A new client, or the reason for failure.
typedef struct dormouse_made_client {
  // DORMOUSE_OK, or the problem with the settings.
  struct dormouse_result result;
  // Owned by the caller, which must free it.
  struct dormouse_client client;
} dormouse_made_client;

// Result of dormouse_receive().
typedef struct dormouse_received {
  // If this is not DORMOUSE_OK, nothing has changed and all other fields are zero.
  enum dormouse_status status;
  // How the peer's direction ended. Plaintext before the end is included.
  enum dormouse_end end;
  // Number of the alert that the peer sent (DORMOUSE_END_ALERT) or gets (DORMOUSE_END_REFUSED).
  uint8_t alert;
  // Consumed bytes of the buffer. The rest is the start of a record: keep it and append the next received
  // bytes.
  size_t consumed;
  // Length of the plaintext at the start of the buffer.
  size_t plaintext_len;
  // Length of the output to send to the peer.
  size_t output_len;
  // Total length of the record after `consumed`, as far as it is known (at most 18,437); 0 if nothing is
  // left.
  size_t need;
} dormouse_received;

// A connection at rest: 128 bytes owned by the caller. They contain no pointers. They may lie in shared
// memory, be stored, or be passed to another process together with the descriptor. Never use two copies of
// them: both would use the same key with the same sequence numbers.
//
// All zero means empty. The bytes are secret: call dormouse_connection_wipe() when the connection ends.
typedef struct dormouse_connection {
  uint64_t opaque[16];
} dormouse_connection;

// Result of sealing.
typedef struct dormouse_sealed {
  // If this is not DORMOUSE_OK, send none of the output.
  enum dormouse_status status;
  // With DORMOUSE_OK: length of the output, all of which must be sent to the peer in order. With
  // DORMOUSE_TOO_SMALL: the required room.
  size_t output_len;
} dormouse_sealed;

// Properties of a connection.
typedef struct dormouse_description {
  // DORMOUSE_OK, or why this is not a usable connection.
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

// A handshake in flight. Only one thread may use it at a time. It takes some kilobytes, and the input that it
// keeps. Free it with dormouse_handshake_free() when its connection is at rest, or after a failure.
typedef struct dormouse_handshake {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_handshake;

// A new handshake, or the reason for failure.
typedef struct dormouse_made_handshake {
  // DORMOUSE_OK, or the error.
  struct dormouse_result result;
  // Owned by the caller, which must free it.
  struct dormouse_handshake handshake;
} dormouse_made_handshake;

// A server context, shared by all its connections. Any number of threads may use it. Free it with
// dormouse_server_free(); handshakes in progress continue.
typedef struct dormouse_server {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_server;

// Result of dormouse_handshake_step().
typedef struct dormouse_step {
  // If this is not DORMOUSE_OK, nothing was done.
  enum dormouse_status status;
  // Progress of the handshake.
  enum dormouse_progress progress;
  // Length of the output to send to the peer.
  size_t output_len;
  // Output bytes that did not fit: call again, without input.
  size_t output_left;
} dormouse_step;

// Text of `len` bytes with a terminating zero.
typedef struct dormouse_text {
  // Length in bytes; 0: none.
  size_t len;
  // The bytes.
  uint8_t bytes[256];
} dormouse_text;

// The request of a client.
typedef struct dormouse_hello {
  // DORMOUSE_OK; DORMOUSE_HANDSHAKING until it has arrived, and after dormouse_handshake_decide().
  enum dormouse_status status;
  // The server name (SNI), in lower case; empty: none.
  struct dormouse_text server_name;
  // The offered application protocols (ALPN), each preceded by its length in one byte, as far as there is
  // room; empty: none.
  struct dormouse_text alpn;
} dormouse_hello;

// Why a handshake failed.
typedef struct dormouse_failure {
  // DORMOUSE_HANDSHAKE_FAILED and the reason in words; another status if it has not failed.
  struct dormouse_result result;
  // Number of the alert that was sent or received; 0: none known.
  uint8_t alert;
  // 1 if the peer sent the alert.
  uint8_t is_received;
} dormouse_failure;

// Results of a handshake.
typedef struct dormouse_facts {
  // DORMOUSE_OK, or DORMOUSE_HANDSHAKING until it is done.
  enum dormouse_status status;
  // 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
  uint16_t version;
  // 1 if an earlier session was resumed.
  uint8_t is_resumed;
  // 1 if the peer's certificate was verified; servers request client certificates only if the settings say
  // so.
  uint8_t is_verified;
  // Number of certificates in the peer's chain: see dormouse_handshake_certificate().
  size_t certificates;
  // The cipher suite's IANA name.
  struct dormouse_text suite;
  // The key exchange group's IANA name; empty in a resumed TLS 1.2 handshake.
  struct dormouse_text group;
  // The application protocol (ALPN); empty: none.
  struct dormouse_text alpn;
  // The server name: sent by the client, or requested by us.
  struct dormouse_text server_name;
} dormouse_facts;

// Result of copying to the caller.
typedef struct dormouse_copied {
  // DORMOUSE_OK, or why nothing was copied.
  enum dormouse_status status;
  // With DORMOUSE_OK: number of bytes written. With DORMOUSE_TOO_SMALL: the required room.
  size_t len;
} dormouse_copied;

// Result of dormouse_handshake_finish().
typedef struct dormouse_finished {
  // If this is not DORMOUSE_OK, nothing was done, and the handshake is unchanged.
  enum dormouse_status status;
  // With DORMOUSE_OK: number of bytes in `leftover`. With DORMOUSE_TOO_SMALL: the required room.
  size_t leftover_len;
} dormouse_finished;

// A new identity, or the reason for failure.
typedef struct dormouse_made_identity {
  // DORMOUSE_OK, or the problem with the certificate or key.
  struct dormouse_result result;
  // Owned by the caller, which must free it.
  struct dormouse_identity identity;
} dormouse_made_identity;

// Signs `message` (not hashed yet) with a private key and this signature scheme (RFC 8446 section 4.2.3), into
// `signature`, which has room for `signature_room` bytes (1,024). Returns the length, or 0 if it cannot sign,
// which fails the handshake. ECDSA signatures are DER.
//
// Callbacks run on the thread of the handshake, several at once if several threads run handshakes. They must
// return, on the same stack: no longjmp, no exception, no switch to another fiber or coroutine. Calls on the
// handshake that waits for the callback return DORMOUSE_BUSY.
typedef size_t (*dormouse_sign_callback)(void *context,
                                         uint16_t scheme,
                                         const uint8_t *message,
                                         size_t message_len,
                                         uint8_t *signature,
                                         size_t signature_room);

// Server settings under construction. Only one thread may use them at a time.
typedef struct dormouse_server_settings {
  // An opaque handle; 0: none.
  uint64_t id;
} dormouse_server_settings;

// Chooses the certificate for a client that requests `server_name` (in lower case; empty if it sent none).
// Returns an identity, which the caller still owns, or an identity with id 0 to choose among the context's own
// certificates.
typedef struct dormouse_identity (*dormouse_choose_callback)(void *context,
                                                             struct dormouse_bytes server_name);

// A new server, or the reason for failure.
typedef struct dormouse_made_server {
  // DORMOUSE_OK, or the problem with the settings.
  struct dormouse_result result;
  // Owned by the caller, which must free it.
  struct dormouse_server server;
} dormouse_made_server;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Creates client settings: TLS 1.2 and 1.3, the system's roots, resumption enabled, no ALPN.
// dormouse_client_new() or dormouse_client_settings_free() consumes them.
struct dormouse_client_settings dormouse_client_settings_new(void);

// Frees unused settings. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
enum dormouse_status dormouse_client_settings_free(struct dormouse_client_settings settings);

// Trusts only the roots of this PEM bundle, in which every certificate must be usable.
//
// # Safety
// `bundle` points to `bundle_len` bytes.
struct dormouse_result dormouse_client_trust(struct dormouse_client_settings settings,
                                             const uint8_t *bundle,
                                             size_t bundle_len);

// Disables the verification of servers against roots. Without a judge every server is accepted, which gives no
// protection: only for trials.
struct dormouse_result dormouse_client_trust_anybody(struct dormouse_client_settings settings);

// Sets a callback that checks server certificates, after the check against the roots.
//
// # Safety
// `judge` follows its contract, on any thread, while the client or one of its handshakes exists.
struct dormouse_result dormouse_client_set_judge(struct dormouse_client_settings settings,
                                                 dormouse_judge_callback judge,
                                                 void *context);

// Sets the client's own certificate, for servers that request one.
struct dormouse_result dormouse_client_set_identity(struct dormouse_client_settings settings,
                                                    struct dormouse_identity identity);

// Adds an application protocol (ALPN), 1 to 255 bytes; preferred first.
//
// # Safety
// `protocol` points to `protocol_len` bytes.
struct dormouse_result dormouse_client_add_alpn(struct dormouse_client_settings settings,
                                                const uint8_t *protocol,
                                                size_t protocol_len);

// Sets the oldest and newest TLS version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
struct dormouse_result dormouse_client_set_versions(struct dormouse_client_settings settings,
                                                    uint16_t min,
                                                    uint16_t max);

// Disables resumption: every handshake is full, and no session is stored.
struct dormouse_result dormouse_client_disable_resumption(struct dormouse_client_settings settings);

// Enables the export of keying material: dormouse_handshake_export(). TLS 1.2 then requires servers with
// extended master secret (RFC 7627).
struct dormouse_result dormouse_client_enable_exporter(struct dormouse_client_settings settings);

// Logs the secrets of every connection. Only for debugging: anyone with the secrets can decrypt the traffic.
//
// # Safety
// `log` follows its contract, on any thread, while the client or one of its handshakes exists.
struct dormouse_result dormouse_client_set_secret_log(struct dormouse_client_settings settings,
                                                      dormouse_secret_log_callback log,
                                                      void *context);

// Creates a client. Consumes the settings, even on failure.
struct dormouse_made_client dormouse_client_new(struct dormouse_client_settings settings);

// Frees a client. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
enum dormouse_status dormouse_client_free(struct dormouse_client client);

// Opens all complete records in `buffer`, in place, and moves their plaintext to its start.
//
// `output` receives a reply to the peer, if there is one (a KeyUpdate, an alert), and must have room for
// DORMOUSE_ANSWER_MAX bytes. Session tickets are ignored: see dormouse_receive_tickets(). Pass all received
// bytes at once: each call derives a key, which takes a microsecond or more (see dormouse_receive_kept()).
//
// No memory is kept. The buffers must not overlap.
//
// # Safety
// `connection` points to a connection that no other thread uses, `buffer` to `buffer_len` bytes and `output`
// to `output_room` bytes.
struct dormouse_received dormouse_receive(struct dormouse_connection *connection,
                                          uint8_t *buffer,
                                          size_t buffer_len,
                                          uint8_t *output,
                                          size_t output_room);

// Returns how a connection ended after its transport has ended: DORMOUSE_END_CLOSED if close_notify arrived
// before that, DORMOUSE_END_TRUNCATED if it did not, or if `connection` holds no connection.
//
// # Safety
// `connection` is null or points to a connection that no other thread uses.
enum dormouse_end dormouse_eof(struct dormouse_connection *connection);

// Returns the output room that dormouse_seal() currently needs for `plaintext_len` bytes; 0 if `connection`
// holds no connection. plaintext_len + 64, plus 29 bytes for each started 16,384 bytes, is always enough.
//
// # Safety
// `connection` is null or points to a connection that no other thread uses.
size_t dormouse_sealed_len(struct dormouse_connection *connection,
                           size_t plaintext_len);

// Seals all of `plaintext` into `output`, or nothing if there is too little room (dormouse_sealed_len()). A
// due KeyUpdate is sealed before it. Empty plaintext makes no record.
//
// The buffers must not overlap.
//
// # Safety
// `connection` points to a connection that no other thread uses, `plaintext` to `plaintext_len` bytes
// and `output` to `output_room` bytes.
struct dormouse_sealed dormouse_seal(struct dormouse_connection *connection,
                                     const uint8_t *plaintext,
                                     size_t plaintext_len,
                                     uint8_t *output,
                                     size_t output_room);

// Ends our direction: seals close_notify, which needs at most DORMOUSE_SMALL_MAX bytes of room. The peer's
// direction stays open.
//
// # Safety
// `connection` points to a connection that no other thread uses, `output` to `output_room` bytes.
struct dormouse_sealed dormouse_close(struct dormouse_connection *connection,
                                      uint8_t *output,
                                      size_t output_room);

// Aborts the connection in both directions: seals a fatal alert with this number (RFC 8446 section 6.2), which
// needs at most DORMOUSE_SMALL_MAX bytes of room. The numbers 0 (close_notify), 90 (user_canceled)
// and 100 (no_renegotiation) are no errors: DORMOUSE_BAD_ARGUMENT.
//
// # Safety
// See dormouse_close().
struct dormouse_sealed dormouse_abort(struct dormouse_connection *connection,
                                      uint8_t alert,
                                      uint8_t *output,
                                      size_t output_room);

// Replaces the key of our direction and seals the KeyUpdate for it, which needs at most DORMOUSE_SMALL_MAX
// bytes of room (TLS 1.3). Keys near their limit are replaced automatically.
//
// # Safety
// See dormouse_close().
struct dormouse_sealed dormouse_update_keys(struct dormouse_connection *connection,
                                            uint8_t *output,
                                            size_t output_room);

// Validates the 128 bytes of a connection (as every function does) and describes it.
//
// # Safety
// `connection` is null or points to 128 bytes that no other thread writes.
struct dormouse_description dormouse_describe(const struct dormouse_connection *connection);

// Wipes a connection: its secrets are erased, and every function refuses it. The memory may contain anything.
//
// # Safety
// `connection` is null or points to 128 bytes that no other thread uses.
void dormouse_connection_wipe(struct dormouse_connection *connection);

// Starts a handshake with a client that has just connected.
struct dormouse_made_handshake dormouse_accept(struct dormouse_server server);

// Starts a handshake with a client whose server depends on its request.
struct dormouse_made_handshake dormouse_listen(void);

// Starts a handshake with the server `server_name`, a host name or an IP address, to which the caller has
// connected. The first dormouse_handshake_step(), without input, produces the first output.
//
// # Safety
// `server_name` points to `server_name_len` bytes.
struct dormouse_made_handshake dormouse_connect(struct dormouse_client client,
                                                const uint8_t *server_name,
                                                size_t server_name_len);

// Handles received bytes, split anywhere, and returns the bytes to send. All input is consumed and none is
// referenced afterwards. The two buffers must not overlap. Once the handshake is done or has failed, input is
// refused (DORMOUSE_FINISHED), and calls without input return the remaining output.
//
// # Safety
// `input` points to `input_len` bytes, `output` to `output_room` bytes.
struct dormouse_step dormouse_handshake_step(struct dormouse_handshake handshake,
                                             const uint8_t *input,
                                             size_t input_len,
                                             uint8_t *output,
                                             size_t output_room);

// Returns the client's request, after DORMOUSE_CLIENT_HELLO.
struct dormouse_hello dormouse_handshake_hello(struct dormouse_handshake handshake);

// Continues with this server, after DORMOUSE_CLIENT_HELLO, now or later. Then call dormouse_handshake_step(),
// without input if there is none.
enum dormouse_status dormouse_handshake_decide(struct dormouse_handshake handshake,
                                               struct dormouse_server server);

// Returns why a handshake failed.
struct dormouse_failure dormouse_handshake_failure(struct dormouse_handshake handshake);

// Returns the results of a handshake, until it is freed.
struct dormouse_facts dormouse_handshake_facts(struct dormouse_handshake handshake);

// Copies a certificate of the peer's chain, DER; number 0 is its own. DORMOUSE_NONE: no such certificate.
//
// # Safety
// `output` points to `output_room` bytes.
struct dormouse_copied dormouse_handshake_certificate(struct dormouse_handshake handshake,
                                                      size_t number,
                                                      uint8_t *output,
                                                      size_t output_room);

// Exports keying material (RFC 8446 section 7.5, RFC 5705): fills all of `output`, 1 to 8,160 bytes.
// DORMOUSE_NONE: the settings do not enable it. A null `context` means no context, which TLS 1.2 distinguishes
// from an empty one.
//
// # Safety
// Each pointer points to the number of bytes given by its length.
enum dormouse_status dormouse_handshake_export(struct dormouse_handshake handshake,
                                               const uint8_t *label,
                                               size_t label_len,
                                               const uint8_t *context,
                                               size_t context_len,
                                               uint8_t *output,
                                               size_t output_len);

// Ends a completed handshake and writes its connection into `connection`, where it is at rest. Bytes received
// after the handshake, still sealed, are copied to `leftover`: pass them to dormouse_receive() first. The
// size of the last input is enough room for them.
//
// All output must have been taken (DORMOUSE_OUTPUT_WAITING). Afterwards the handshake still returns its
// results and receives tickets; free it when you need neither.
//
// # Safety
// `connection` points to 128 bytes, aligned to 8, and `leftover` to `leftover_room` bytes.
struct dormouse_finished dormouse_handshake_finish(struct dormouse_handshake handshake,
                                                   struct dormouse_connection *connection,
                                                   uint8_t *leftover,
                                                   size_t leftover_room);

// Frees a handshake. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect; a call from one of its
// own callbacks returns DORMOUSE_BUSY. The connection that it produced continues.
enum dormouse_status dormouse_handshake_free(struct dormouse_handshake handshake);

// Returns the library's version, such as "0.1.0": a constant string.
const char *dormouse_version(void);

// Reads a certificate chain and its key, both PEM, the server's own certificate first. Both may be the same
// buffer. The buffers are not kept; wipe the one with the key.
//
// # Safety
// Each pointer points to the number of bytes given by its length.
struct dormouse_made_identity dormouse_identity_from_pem(const uint8_t *certificate,
                                                         size_t certificate_len,
                                                         const uint8_t *key,
                                                         size_t key_len);

// Does the same with a key that may be encrypted with this passphrase: PKCS #8 with PBES2, PBKDF2 and AES, as
// `openssl pkcs8 -topk8` writes it. Wipe the passphrase.
//
// # Safety
// Each pointer points to the number of bytes given by its length.
struct dormouse_made_identity dormouse_identity_from_encrypted_pem(const uint8_t *certificate,
                                                                   size_t certificate_len,
                                                                   const uint8_t *key,
                                                                   size_t key_len,
                                                                   const uint8_t *passphrase,
                                                                   size_t passphrase_len);

// Reads a certificate chain and its key from two PEM files, or from one file that contains both. The paths are
// terminated by a zero.
//
// # Safety
// `certificate` and `key` are strings terminated by a zero.
struct dormouse_made_identity dormouse_identity_from_files(const char *certificate,
                                                           const char *key);

// Takes a certificate chain (PEM) whose key never leaves its store: `sign` makes the signatures, during
// handshakes and on the thread of the handshake. `context` is passed to it, and must stay valid while any
// handshake may use this identity.
//
// # Safety
// `certificate` points to the number of bytes given by its length. `sign` follows its contract, on any thread.
struct dormouse_made_identity dormouse_identity_from_signer(const uint8_t *certificate,
                                                            size_t certificate_len,
                                                            dormouse_sign_callback sign,
                                                            void *context);

// Generates a self-signed certificate for `name`, for trials.
//
// # Safety
// `name` points to `name_len` bytes.
struct dormouse_made_identity dormouse_identity_self_signed(const uint8_t *name, size_t name_len);

// Adds an OCSP response (DER) for the identity's certificate, which handshakes then send. It must be valid, and for
// this certificate. Contexts that were made with the identity before are not changed.
//
// # Safety
// `response` points to `response_len` bytes.
struct dormouse_result dormouse_identity_staple(struct dormouse_identity identity,
                                                const uint8_t *response,
                                                size_t response_len);

// Frees an identity. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
enum dormouse_status dormouse_identity_free(struct dormouse_identity identity);

// Does the same as dormouse_receive(), and keeps the expanded key for the connection's next call. For small records
// this halves the time of a call, or better.
//
// The library keeps the keys of the connections that were used last, 64 for each core and 1.4 MB in all at
// most; a quiet connection loses its place to others. They belong to the connection's address: end a connection with
// dormouse_connection_wipe() there, which wipes them too, and call dormouse_forget_keys() before you move it or leave
// it to another process. After fork(), the child must not use connections if the parent had other threads.
//
// # Safety
// See dormouse_receive().
struct dormouse_received dormouse_receive_kept(struct dormouse_connection *connection,
                                               uint8_t *buffer,
                                               size_t buffer_len,
                                               uint8_t *output,
                                               size_t output_room);

// Does the same as dormouse_seal(), and keeps the expanded key: see dormouse_receive_kept().
//
// # Safety
// See dormouse_seal().
struct dormouse_sealed dormouse_seal_kept(struct dormouse_connection *connection,
                                          const uint8_t *plaintext,
                                          size_t plaintext_len,
                                          uint8_t *output,
                                          size_t output_room);

// Wipes the kept keys of the connection at this address, but not the connection: see dormouse_receive_kept().
// `connection` is not read.
void dormouse_forget_keys(const struct dormouse_connection *connection);

// Creates server settings: TLS 1.2 and 1.3, tickets with generated keys, no ALPN, no client certificates.
// dormouse_server_new() or dormouse_server_settings_free() consumes them.
struct dormouse_server_settings dormouse_server_settings_new(void);

// Frees unused settings. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
enum dormouse_status dormouse_server_settings_free(struct dormouse_server_settings settings);

// Adds a certificate. The client's requested name and accepted signatures decide which one it gets; the first
// is the default.
struct dormouse_result dormouse_server_add_identity(struct dormouse_server_settings settings,
                                                    struct dormouse_identity identity);

// Sets a callback that chooses certificates, before those that were added.
//
// # Safety
// `choose` follows its contract, on any thread, while the server or one of its handshakes exists.
struct dormouse_result dormouse_server_set_choose(struct dormouse_server_settings settings,
                                                  dormouse_choose_callback choose,
                                                  void *context);

// Adds an application protocol (ALPN), 1 to 255 bytes; preferred first.
//
// # Safety
// `protocol` points to `protocol_len` bytes.
struct dormouse_result dormouse_server_add_alpn(struct dormouse_server_settings settings,
                                                const uint8_t *protocol,
                                                size_t protocol_len);

// Sets the oldest and newest TLS version: 0x0303 is TLS 1.2, 0x0304 is TLS 1.3.
struct dormouse_result dormouse_server_set_versions(struct dormouse_server_settings settings,
                                                    uint16_t min,
                                                    uint16_t max);

// Requests client certificates, signed by one of `roots` (a PEM bundle). `required` is 1 to refuse clients
// without one, or 0. `roots` may be empty if there is a judge, which then decides alone.
//
// # Safety
// `roots` points to `roots_len` bytes.
struct dormouse_result dormouse_server_ask_certificates(struct dormouse_server_settings settings,
                                                        int32_t required,
                                                        const uint8_t *roots,
                                                        size_t roots_len);

// Sets a callback that checks client certificates, after the check against the roots, and again whenever a
// session is resumed. Without dormouse_server_ask_certificates() there is nothing to check, and
// dormouse_server_new() fails.
//
// # Safety
// `judge` follows its contract, on any thread, while the server or one of its handshakes exists.
struct dormouse_result dormouse_server_set_judge(struct dormouse_server_settings settings,
                                                 dormouse_judge_callback judge,
                                                 void *context);

// Sets the number of tickets after a TLS 1.3 handshake, 0 to 16 (2 by default); 0 disables resumption, also in
// TLS 1.2, and forgets the ticket keys. Ticket keys that are set afterwards enable it again.
struct dormouse_result dormouse_server_set_tickets(struct dormouse_server_settings settings,
                                                   size_t count);

// Seals tickets with the keys of a file (its contents), so that this program and others resume each other's
// sessions. The format is that of `ticket_keys = "file:PATH"` in `dormouse serve`: a key of 48 or 80 bytes, as
// for nginx; lines of such keys in base64, as for HAProxy; or Dormouse's own, for which `secret` is the
// contents of `ticket_secret_file`. Wipe both afterwards.
//
// Keys in Dormouse's own format rotate, and a server does not read the file again. So read it at least once in each
// `ticket_rotation` and make a new server. A server that has missed a whole rotation sends no more tickets, and after
// another one it resumes no session.
//
// # Safety
// Each pointer points to the number of bytes given by its length.
struct dormouse_result dormouse_server_set_ticket_keys(struct dormouse_server_settings settings,
                                                       const uint8_t *keys,
                                                       size_t keys_len,
                                                       const uint8_t *secret,
                                                       size_t secret_len);

// Enables the export of keying material: dormouse_handshake_export(). TLS 1.2 then requires clients with
// extended master secret (RFC 7627).
struct dormouse_result dormouse_server_enable_exporter(struct dormouse_server_settings settings);

// Logs the secrets of every connection. Only for debugging: anyone with the secrets can decrypt the traffic.
//
// # Safety
// `log` follows its contract, on any thread, while the server or one of its handshakes exists.
struct dormouse_result dormouse_server_set_secret_log(struct dormouse_server_settings settings,
                                                      dormouse_secret_log_callback log,
                                                      void *context);

// Creates a server. Consumes the settings, even on failure.
struct dormouse_made_server dormouse_server_new(struct dormouse_server_settings settings);

// Frees a server. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect.
enum dormouse_status dormouse_server_free(struct dormouse_server server);

// Returns the text of a status: a constant string.
const char *dormouse_status_text(uint32_t status);

// Like dormouse_receive(), for a client that uses the server's session tickets: `handshake` receives them. It
// must be the finished, unfreed handshake of this connection. Use this function until
// dormouse_handshake_awaits_tickets() returns 0, or until you have waited long enough (a second is plenty);
// then free the handshake.
//
// # Safety
// See dormouse_receive().
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
