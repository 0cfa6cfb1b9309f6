// Java's HttpsURLConnection with one SSLContext; each connection is closed. A resumed session keeps
// its creation time, which is the only way to see in Java that the handshake was resumed.
import java.io.FileInputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

public final class Fetch {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> values = new HashMap<>();
        for (int n = 0; n + 1 < arguments.length; n += 2) {
            values.put(arguments[n].substring(2), arguments[n + 1]);
        }
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream pem = new FileInputStream(values.get("ca"))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLSv" + values.get("version"));
        context.init(null, trust.getTrustManagers(), null);
        SSLSocketFactory sockets = new To(context.getSocketFactory(), values.get("resolve"),
                "TLSv" + values.get("version"));
        int requests = Integer.parseInt(values.get("requests"));
        Set<Long> made = new HashSet<>();
        for (int n = 0; n < requests; n++) {
            HttpsURLConnection connection = (HttpsURLConnection)
                    new URI(values.get("url") + "/bytes/100").toURL().openConnection();
            connection.setSSLSocketFactory(sockets);
            connection.setRequestProperty("Connection", "close");
            connection.setReadTimeout(30_000);
            connection.connect();
            made.add(connection.getSSLSession().orElseThrow().getCreationTime());
            connection.getInputStream().readAllBytes();
            connection.disconnect();
            // Times are in milliseconds, and two full handshakes must not have the same one.
            Thread.sleep(3);
        }
        System.out.printf("{\"requests\": %d, \"resumed\": %d}%n", requests, requests - made.size());
    }

    /** Connects to one address, whatever the name resolves to, with one version. */
    private static final class To extends SSLSocketFactory {
        private final SSLSocketFactory inner;
        private final String address;
        private final String version;

        To(SSLSocketFactory inner, String address, String version) {
            this.inner = inner;
            this.address = address;
            this.version = version;
        }

        private Socket only(Socket socket) {
            ((SSLSocket) socket).setEnabledProtocols(new String[] {version});
            return socket;
        }

        @Override public Socket createSocket(Socket socket, String host, int port, boolean close)
                throws java.io.IOException {
            return only(inner.createSocket(socket, host, port, close));
        }

        @Override public Socket createSocket() {
            return new Socket() {
                @Override public void connect(java.net.SocketAddress to, int timeout) throws java.io.IOException {
                    int port = ((java.net.InetSocketAddress) to).getPort();
                    super.connect(new java.net.InetSocketAddress(InetAddress.getByName(address), port), timeout);
                }
            };
        }

        @Override public Socket createSocket(String host, int port) throws java.io.IOException {
            return createSocket(new Socket(InetAddress.getByName(address), port), host, port, true);
        }

        @Override public Socket createSocket(String host, int port, InetAddress local, int localPort)
                throws java.io.IOException {
            return createSocket(host, port);
        }

        @Override public Socket createSocket(InetAddress host, int port) throws java.io.IOException {
            return createSocket("localhost", port);
        }

        @Override public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort)
                throws java.io.IOException {
            return createSocket("localhost", port);
        }

        @Override public String[] getDefaultCipherSuites() {
            return inner.getDefaultCipherSuites();
        }

        @Override public String[] getSupportedCipherSuites() {
            return inner.getSupportedCipherSuites();
        }
    }
}
