package dormouse;

import java.net.InetAddress;
import java.nio.ByteBuffer;

import javax.net.ssl.SSLException;

/**
 * The native methods. A {@code long} is the handle of a native object; its owner frees it once and lets only one
 * thread use it.
 */
final class Native {
    /** Bit of the result of {@link #open}: there is output for the peer. */
    static final long OUTPUT_WAITS = 1L << 32;

    /** The same for {@link #openInPlace}. */
    static final long BATCH_OUTPUT_WAITS = 1L << 62;
    /** The lower one of the two lengths in a result. */
    static final long LENGTH_MASK = (1L << 31) - 1;
    static final int LENGTH_BITS = 31;

    private Native() {}

    static native long identity(byte[][] chain, byte[] key, String name) throws SSLException;

    static native long identityOfSigner(byte[][] chain, KeySigner signer, String name) throws SSLException;

    static native long serverContext(
            long[] identities, int versions, int suites, int clientCertificates, byte[][] authorities,
            int ticketLifetimeS)
            throws SSLException;

    static native long clientContext(long identity, int versions, int suites, byte[][] alpn, int sessionsMax)
            throws SSLException;

    static native void freeIdentity(long identity);

    static native void freeServerContext(long context);

    static native void freeClientContext(long context);

    static native void freeConnection(long connection);

    static native long listen();

    static native long connect(long context, String name) throws SSLException;

    static native void decide(long connection, long context, byte[] alpn) throws SSLException;

    static native void refuse(long connection, int alert);

    /** Handles bytes of the peer. Calls methods of the engine. Returns the plaintext's length and flags. */
    static native long open(
            long connection, DormouseEngine engine, byte[] sourceArray, ByteBuffer sourceBuffer, int sourceAt,
            int sourceLength, byte[] targetArray, ByteBuffer targetBuffer, int targetAt, int targetLength)
            throws SSLException;

    /** Seals plaintext. Returns the length of the records, or the room that they need, negative. */
    static native int seal(
            long connection, byte[] sourceArray, ByteBuffer sourceBuffer, int sourceAt, int sourceLength,
            byte[] targetArray, ByteBuffer targetBuffer, int targetAt, int targetLength)
            throws SSLException;

    /**
     * Opens the complete records of a direct buffer in place. Returns the length of the plaintext, above it the length
     * of the opened records, and {@link #BATCH_OUTPUT_WAITS}; or a negative number if the connection is not at rest.
     */
    static native long openInPlace(long connection, DormouseEngine engine, ByteBuffer records, int at, int length)
            throws SSLException;

    /** Seals plaintext in place. Returns the end of the records, and above it their beginning, from {@code at}. */
    static native long sealInPlace(long connection, ByteBuffer batch, int at, int length, int plaintextLength)
            throws SSLException;

    /** Moves whole records of the output. Returns their length, or the room that the first needs, negative. */
    static native int drain(
            long connection, byte[] targetArray, ByteBuffer targetBuffer, int targetAt, int targetLength)
            throws SSLException;

    static native int outputLen(long connection);

    static native void close(long connection) throws SSLException;

    static native void updateKeys(long connection) throws SSLException;

    static native void ignoreTickets(long connection);

    static native boolean isAtRest(long connection);

    static native byte[] export(long connection) throws SSLException;

    static native long restore(byte[] exported) throws SSLException;

    /** The name by which a program has looked an address up, from the JDK's private fields; null: none, or unknown. */
    static native String originalHostName(InetAddress address);
}
