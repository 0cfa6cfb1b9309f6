package dormouse;

import java.nio.ByteBuffer;

import javax.net.ssl.SSLException;

/**
 * All records of a buffer in one call, without a copy: what Dormouse's engines offer besides {@code SSLEngine}.
 *
 * <p>It is for code that owns its buffers, such as {@link dormouse.netty.DormouseHandler}: records are opened and
 * sealed where they lie, and only the caller may use a buffer during a call. Buffers are direct and writable.
 *
 * <p>A connection can do this while it is established and has nothing else to do. At other times the methods return
 * {@link #NOT_NOW} and change nothing: use {@code wrap} and {@code unwrap} then.
 */
public interface BatchEngine {
    /** The connection has something else to do first: a handshake, a record of its own to send, an end. */
    int NOT_NOW = -1;

    /**
     * Opens all complete records and moves their plaintext to the buffer's position. Afterwards the buffer's limit is
     * the plaintext's end, also if this throws: then it is the plaintext of the records before the bad one.
     *
     * @return the length of the opened records, or {@link #NOT_NOW}. What follows is the beginning of a record
     */
    int openInPlace(ByteBuffer records) throws SSLException;

    /** The length of a buffer in which this much plaintext can be sealed, or {@link #NOT_NOW}. */
    int batchLength(int plaintextLength);

    /**
     * Where the plaintext of the record with this index begins, counted from the buffer's position. Each record but
     * the last has {@link #CONTENT_MAX} bytes of plaintext.
     */
    int contentAt(int index);

    /** The plaintext of a full record. */
    int CONTENT_MAX = Records.CONTENT_MAX;

    /**
     * Seals plaintext that lies where {@link #contentAt} says. Afterwards the buffer's position and limit enclose the
     * records to send. Call {@link #batchLength} first.
     *
     * @throws SSLException if the connection can't send any more; no byte of the buffer may be sent then
     */
    void sealInPlace(ByteBuffer batch, int plaintextLength) throws SSLException;
}
