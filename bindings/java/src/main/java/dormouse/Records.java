package dormouse;

import java.nio.ByteBuffer;

/** The framing of records (RFC 8446 section 5). */
final class Records {
    static final int HEADER = 5;
    static final int CONTENT_MAX = 16_384;
    /** Room for every record that a peer may send. The same as the JDK's, which some programs expect. */
    static final int PACKET_MAX = 16_709;
    /** More than a record adds to its content. */
    static final int OVERHEAD_MAX = 64;
    static final int PLAINTEXT_MAX = PACKET_MAX - HEADER;
    /**
     * No suite adds more to the content than TLS 1.3, 256 bytes. A larger record, which TLS 1.2 allows, would not fit
     * into the buffers that programs have.
     */
    private static final int PAYLOAD_MAX = PACKET_MAX - HEADER;

    static final int CHANGE_CIPHER_SPEC = 20;
    static final int ALERT = 21;
    static final int HANDSHAKE = 22;
    static final int APPLICATION_DATA = 23;

    /** The first record is incomplete. */
    static final int INCOMPLETE = -1;
    /** The source is not a TLS record. */
    static final int NOT_TLS = -2;
    /** The first record is larger than {@link #PACKET_MAX}. */
    static final int TOO_LARGE = -3;

    private Records() {}

    static int type(ByteBuffer source) {
        return source.get(source.position()) & 0xff;
    }

    /**
     * The length of the record that begins with these bytes, at least a header. Their own length if the record is
     * complete, or is none.
     */
    static int announcedLength(byte[] record) {
        int length = length(ByteBuffer.wrap(record));
        return length == INCOMPLETE ? HEADER + ((record[3] & 0xff) << 8 | record[4] & 0xff) : record.length;
    }

    /** The length of the first record with its header, or a negative constant. */
    static int length(ByteBuffer source) {
        int at = source.position();
        int available = source.remaining();
        int type = type(source);
        if (type < CHANGE_CIPHER_SPEC || type > APPLICATION_DATA || (available > 1 && source.get(at + 1) != 3)) {
            return NOT_TLS;
        }
        if (available < HEADER) {
            return INCOMPLETE;
        }
        int payload = (source.get(at + 3) & 0xff) << 8 | source.get(at + 4) & 0xff;
        if (payload > PAYLOAD_MAX) {
            return TOO_LARGE;
        }
        return available < HEADER + payload ? INCOMPLETE : HEADER + payload;
    }
}
