import java.io.FileInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayDeque;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * An echo server on the JDK's sockets with one fault, and its healthy twins: a thread for each connection.
 *
 * <pre>
 *   java Server FAULT HOST:PORT CERTIFICATE KEY
 *
 *   fault     what it does                                                     twin
 *   leak      keeps 2 kB of each connection for ever                           bounded: of the last hundred
 *   context   an SSLContext for each connection                                healthy
 *   inline    makes each handshake in the loop that accepts connections        healthy
 *   sockets   keeps each connection's socket in a list                         healthy
 * </pre>
 */
final class Server {
    private static final ArrayDeque<Object> KEPT = new ArrayDeque<>();

    public static void main(String[] words) throws Exception {
        String fault = words[0];
        int colon = words[1].lastIndexOf(':');
        var host = InetAddress.getByName(words[1].substring(0, colon));
        int port = Integer.parseInt(words[1].substring(colon + 1));
        SSLSocketFactory shared = context(words[2], words[3]).getSocketFactory();
        try (var listener = new java.net.ServerSocket(port, 4096, host)) {
            while (true) {
                Socket socket = listener.accept();
                socket.setTcpNoDelay(true);
                SSLSocket ready = fault.equals("inline") ? handshaken(socket, shared) : null;
                Thread thread = new Thread(null, () -> serve(fault, socket, ready, shared, words), "connection", 1 << 18);
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private static void serve(String fault, Socket plain, SSLSocket ready, SSLSocketFactory shared, String[] words) {
        try (plain) {
            SSLSocketFactory factory = fault.equals("context") ? context(words[2], words[3]).getSocketFactory() : shared;
            SSLSocket socket = ready != null ? ready : of(plain, factory);
            if (fault.equals("sockets")) keep(socket, Integer.MAX_VALUE);
            byte[] buffer = new byte[1024];
            int count;
            while ((count = socket.getInputStream().read(buffer)) > 0) socket.getOutputStream().write(buffer, 0, count);
            socket.close();
        } catch (Exception ended) {
            // A client that goes away ends its own connection only.
        }
        if (fault.equals("leak")) keep(new byte[2000], Integer.MAX_VALUE);
        if (fault.equals("bounded")) keep(new byte[2000], 100);
    }

    private static SSLSocket of(Socket plain, SSLSocketFactory factory) throws IOException {
        SSLSocket socket = (SSLSocket) factory.createSocket(plain, null, true);
        socket.setUseClientMode(false);
        return socket;
    }

    /** Makes a handshake. A client that fails in it gets a closed socket, and its thread ends at the first read. */
    private static SSLSocket handshaken(Socket plain, SSLSocketFactory factory) throws IOException {
        SSLSocket socket = of(plain, factory);
        try {
            socket.startHandshake();
        } catch (IOException failed) {
            plain.close();
        }
        return socket;
    }

    private static void keep(Object kept, int bound) {
        synchronized (KEPT) {
            KEPT.add(kept);
            if (KEPT.size() > bound) KEPT.remove();
        }
    }

    private static SSLContext context(String certificate, String key) throws Exception {
        Certificate[] chain;
        try (var in = new FileInputStream(certificate)) {
            chain = CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(Certificate[]::new);
        }
        String pem = Files.readString(Path.of(key)).replaceAll("-----[A-Z ]+-----|\\s", "");
        var spec = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem));
        var store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry("key", KeyFactory.getInstance("EC").generatePrivate(spec), new char[0], chain);
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private Server() throws IOException {}
}
