package dormouse;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;

import javax.net.ssl.SSLException;

/**
 * A connection as bytes: the properties that Java reports, then its state.
 *
 * @param state the engine's own export; secret
 */
record ExportedConnection(
        boolean isClient, Protocol protocol, CipherSuite suite, String alpn, String peerHost, int peerPort,
        X509Certificate[] peer, byte[] state) {

    private static final int VERSION = 1;
    private static final int CERTIFICATES_MAX = 32;
    private static final int BYTES_MAX = 1 << 20;

    byte[] write() throws SSLException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeByte(VERSION);
            out.writeBoolean(isClient);
            out.writeByte(protocol.ordinal());
            out.writeByte(suite.ordinal());
            out.writeUTF(alpn == null ? "" : alpn);
            out.writeUTF(peerHost == null ? "" : peerHost);
            out.writeInt(peerPort);
            byte[][] chain = Identities.encode(peer == null ? new X509Certificate[0] : peer);
            out.writeByte(chain.length);
            for (byte[] certificate : chain) {
                writeBytes(out, certificate);
            }
        } catch (IOException impossible) {
            throw new SSLException("the connection can't be exported", impossible);
        }
        // Not through the stream, whose discarded arrays would keep the secret.
        return ByteBuffer.allocate(bytes.size() + Integer.BYTES + state.length)
                .put(bytes.toByteArray())
                .putInt(state.length)
                .put(state)
                .array();
    }

    static ExportedConnection read(byte[] bytes) throws SSLException {
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            int version = in.readUnsignedByte();
            if (version != VERSION) {
                throw new SSLException(
                        "the exported connection has version " + version + "; this library reads version " + VERSION);
            }
            boolean isClient = in.readBoolean();
            Protocol protocol = Protocol.values()[in.readUnsignedByte()];
            CipherSuite suite = CipherSuite.values()[in.readUnsignedByte()];
            String alpn = in.readUTF();
            String host = in.readUTF();
            int port = in.readInt();
            byte[][] chain = new byte[limited(in.readUnsignedByte(), CERTIFICATES_MAX)][];
            for (int i = 0; i < chain.length; i++) {
                chain[i] = readBytes(in);
            }
            byte[] state = readBytes(in);
            if (in.available() > 0 || suite.protocol() != protocol) {
                throw new IOException("contradictory");
            }
            return new ExportedConnection(isClient, protocol, suite, alpn, host.isEmpty() ? null : host, port,
                    chain.length == 0 ? null : Handshake.parse(chain), state);
        } catch (SSLException problem) {
            throw problem;
        } catch (IOException | CertificateException | ArrayIndexOutOfBoundsException problem) {
            throw new SSLException(bytes.length + " bytes are not an exported connection", problem);
        }
    }

    private static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static byte[] readBytes(DataInputStream in) throws IOException {
        byte[] bytes = new byte[limited(in.readInt(), BYTES_MAX)];
        in.readFully(bytes);
        return bytes;
    }

    private static int limited(int length, int max) throws IOException {
        if (length < 0 || length > max) {
            throw new EOFException("a length of " + length);
        }
        return length;
    }
}
