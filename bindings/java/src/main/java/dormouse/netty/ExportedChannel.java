package dormouse.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;

import java.util.Arrays;

import javax.net.ssl.SSLException;

/**
 * A connection as bytes: the length of the engine's bytes, these, and the beginning of a record.
 *
 * @param connection the engine's export; secret
 */
record ExportedChannel(byte[] connection, ByteBuf partial) {
    /** {@code partial} may be null. */
    static byte[] write(byte[] connection, ByteBuf partial) {
        int rest = partial == null ? 0 : partial.readableBytes();
        ByteBuf bytes = Unpooled.buffer(Integer.BYTES + connection.length + rest);
        bytes.writeInt(connection.length).writeBytes(connection);
        Arrays.fill(connection, (byte) 0);
        if (partial != null) {
            bytes.writeBytes(partial, partial.readerIndex(), rest);
        }
        return bytes.array();
    }

    static ExportedChannel read(byte[] exported) throws SSLException {
        ByteBuf bytes = Unpooled.wrappedBuffer(exported);
        int length = bytes.readableBytes() < Integer.BYTES ? -1 : bytes.readInt();
        if (length < 0 || length > bytes.readableBytes()) {
            throw new SSLException(exported.length + " bytes are not an exported connection");
        }
        byte[] connection = new byte[length];
        bytes.readBytes(connection);
        // Of its own memory: it may have to grow.
        return new ExportedChannel(connection, Unpooled.buffer(bytes.readableBytes()).writeBytes(bytes));
    }
}
