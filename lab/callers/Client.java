// Client URL CA new|shared|kept: 40 requests with HttpsURLConnection: an SSLContext for each, one
// for all, or one with persistent connections. http:// means no TLS.
import java.io.FileInputStream;
import java.net.URI;
import java.net.URLConnection;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;

public final class Client {
    private Client() {}

    public static void main(String[] arguments) throws Exception {
        String how = arguments[2];
        System.setProperty("http.keepAlive", String.valueOf(how.equals("kept")));
        SSLSocketFactory shared = arguments[0].startsWith("https:") ? sockets(arguments[1]) : null;
        for (int n = 0; n < 40; n++) {
            URLConnection connection = new URI(arguments[0]).toURL().openConnection();
            if (connection instanceof HttpsURLConnection tls) {
                tls.setSSLSocketFactory(how.equals("new") ? sockets(arguments[1]) : shared);
            }
            connection.getInputStream().readAllBytes();
        }
    }

    private static SSLSocketFactory sockets(String ca) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream pem = new FileInputStream(ca)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context.getSocketFactory();
    }
}
