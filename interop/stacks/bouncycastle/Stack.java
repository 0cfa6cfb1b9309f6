import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Security;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.bouncycastle.jsse.provider.BouncyCastleJsseProvider;

/** Bouncy Castle's TLS: the same as stack.c. It cannot send a KeyUpdate, nor close one direction alone. */
public final class Stack {
    private final String host;
    private final int port;
    private final String version;
    private final SSLContext context;

    private Stack(String[] words) throws Exception {
        host = words[1];
        port = Integer.parseInt(words[2]);
        version = "TLSv" + words[3];
        Security.addProvider(new BouncyCastleProvider());
        BouncyCastleJsseProvider provider = new BouncyCastleJsseProvider("BC");
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        Certificate certificate, authority;
        try (InputStream own = Files.newInputStream(Path.of(words[4]));
                InputStream trusted = Files.newInputStream(Path.of(words[6]))) {
            certificate = factory.generateCertificate(own);
            authority = factory.generateCertificate(trusted);
        }
        String pem = Files.readString(Path.of(words[5])).replaceAll("-----[^-]*-----|\\s", "");
        PKCS8EncodedKeySpec key = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem));
        KeyStore keys = KeyStore.getInstance("PKCS12");
        keys.load(null, null);
        char[] password = "none".toCharArray();
        keys.setKeyEntry("own", KeyFactory.getInstance("EC").generatePrivate(key), password,
                new Certificate[] {certificate});
        KeyStore trust = KeyStore.getInstance("PKCS12");
        trust.load(null, null);
        trust.setCertificateEntry("authority", authority);
        KeyManagerFactory keyManagers = KeyManagerFactory.getInstance("PKIX", provider);
        keyManagers.init(keys, password);
        TrustManagerFactory trustManagers = TrustManagerFactory.getInstance("PKIX", provider);
        trustManagers.init(trust);
        context = SSLContext.getInstance("TLS", provider);
        context.init(keyManagers.getKeyManagers(), trustManagers.getTrustManagers(), null);
    }

    public static void main(String[] words) throws Exception {
        Stack stack = new Stack(words);
        if (words[0].equals("server")) {
            stack.serve();
        } else {
            stack.connect();
        }
    }

    private void connect() throws Exception {
        byte[] first = null;
        for (int number = 0; number < 2; number++) {
            try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(host, port)) {
                socket.setEnabledProtocols(new String[] {version});
                SSLParameters parameters = socket.getSSLParameters();
                parameters.setServerNames(java.util.List.of(new SNIHostName("localhost")));
                socket.setSSLParameters(parameters);
                socket.startHandshake();
                OutputStream out = socket.getOutputStream();
                InputStream in = socket.getInputStream();
                int received = 0;
                if (number == 0) {
                    out.write("echo\n".getBytes());
                    echo(in, out, "before\n");
                    echo(in, out, "after\n");
                } else {
                    out.write("download 50000\n".getBytes());
                    received = in.readAllBytes().length;
                }
                byte[] id = socket.getSession().getId();
                boolean resumed = id.length > 0 && Arrays.equals(id, first);
                first = id;
                System.out.printf("version=%s resumed=%d updated=0 received=%d%n",
                        socket.getSession().getProtocol(), resumed ? 1 : 0, received);
            }
        }
    }

    private static void echo(InputStream in, OutputStream out, String line) throws Exception {
        out.write(line.getBytes());
        String answer = new String(in.readNBytes(line.length()));
        if (!answer.equals(line)) {
            throw new IllegalStateException("other bytes came back: " + answer);
        }
    }

    private void serve() throws Exception {
        SSLServerSocket listener = (SSLServerSocket) context.getServerSocketFactory()
                .createServerSocket(port, 16, InetAddress.getByName(host));
        listener.setEnabledProtocols(new String[] {version});
        listener.setNeedClientAuth(true);
        System.out.println("listening");
        byte[] last = null;
        while (true) {
            try (SSLSocket socket = (SSLSocket) listener.accept()) {
                socket.startHandshake();
                SSLSession session = socket.getSession();
                boolean resumed = session.getId().length > 0 && Arrays.equals(session.getId(), last);
                last = session.getId();
                InputStream in = socket.getInputStream();
                byte[] bytes = new byte[4096];
                int count;
                while ((count = in.read(bytes)) > 0 && !new String(bytes, 0, count).equals("quit\n")) {
                    socket.getOutputStream().write(bytes, 0, count);
                }
                System.out.printf("version=%s resumed=%d updated=0 verified=%d%n", session.getProtocol(),
                        resumed ? 1 : 0, session.getPeerCertificates().length > 0 ? 1 : 0);
            }
        }
    }
}
