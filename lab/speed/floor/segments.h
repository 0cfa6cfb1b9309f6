/* The segments of one TLS 1.3 connection with one exchange, in bytes, as `dormouse bench churn` has it with the lab's
 * certificate (counted by strace). The client and the proxy without TLS send each other the same, so that the kernel does
 * the same work. */

enum {
    CLIENT_HELLO = 222,  /* ClientHello */
    SERVER_FLIGHT = 762, /* ServerHello to Finished */
    CLIENT_FINISHED = 92, /* Finished, and the message */
    SERVER_ANSWER = 394, /* two tickets, and the message */
    CLOSE_NOTIFY = 24,
    MESSAGE = 6, /* in plaintext, to the backend and back */
};
