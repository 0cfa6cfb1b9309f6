// A TLS echo server on SSLServerSocket, a thread for each connection: java Echo.java PORT KEYSTORE
// [leak|cache], with the password "interop". `leak` keeps 2,000 bytes of every connection that has
// closed; `cache` keeps the session of every full handshake.

import java.io.FileInputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.security.KeyStore;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

public class Echo {
    private static final Queue<byte[]> LEAKED = new ConcurrentLinkedQueue<>();
    private static final Map<String, SSLSession> SESSIONS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        char[] password = "interop".toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream file = new FileInputStream(arguments[1])) {
            store.load(file, password);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        String fault = arguments.length > 2 ? arguments[2] : "";
        SSLServerSocket listener = (SSLServerSocket) context.getServerSocketFactory()
                .createServerSocket(Integer.parseInt(arguments[0]), 4096, InetAddress.getByName("127.0.0.1"));
        while (true) {
            SSLSocket socket = (SSLSocket) listener.accept();
            new Thread(null, () -> serve(socket, fault), "connection", 256 * 1024).start();
        }
    }

    private static void serve(SSLSocket socket, String fault) {
        try (socket) {
            InputStream in = socket.getInputStream();
            OutputStream out = socket.getOutputStream();
            byte[] block = new byte[16 * 1024];
            if (fault.equals("cache")) {
                SSLSession session = socket.getSession();
                SESSIONS.put(session.toString(), session);
            }
            for (int count = in.read(block); count > 0; count = in.read(block)) {
                out.write(block, 0, count);
            }
        } catch (java.io.IOException closed) {
            // How a client leaves is its own affair.
        }
        if (fault.equals("leak")) {
            LEAKED.add(new byte[2000]);
        }
    }
}
