package dormouse;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Self-signed certificates of the JDK's keytool, and contexts with them. */
public final class TestKeys {
    public static final char[] PASSWORD = "password".toCharArray();
    public static final DormouseProvider DORMOUSE = new DormouseProvider();

    /** For localhost, ECDSA. */
    public static final KeyStore EC = make("EC", "localhost", "-keyalg", "EC", "-groupname", "secp256r1");
    /** For localhost, RSA. */
    public static final KeyStore RSA = make("RSA", "localhost", "-keyalg", "RSA", "-keysize", "2048");
    public static final KeyStore CLIENT = make("CLIENT", "alice", "-keyalg", "EC", "-groupname", "secp256r1");
    public static final KeyStore OTHER = make("OTHER", "other.test", "-keyalg", "EC", "-groupname", "secp256r1");

    private TestKeys() {}

    private static KeyStore make(String alias, String name, String... algorithm) {
        try {
            Path file = Files.createTempDirectory("dormouse-test").resolve("keys.p12");
            List<String> command = new ArrayList<>(List.of(
                    Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair", "-alias",
                    alias, "-dname", "CN=" + name, "-ext", "san=dns:" + name + ",ip:127.0.0.1", "-validity", "30",
                    "-storetype", "PKCS12", "-keystore", file.toString(), "-storepass", new String(PASSWORD)));
            command.addAll(List.of(algorithm));
            Process keytool = new ProcessBuilder(command).redirectErrorStream(true).start();
            String said = new String(keytool.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (keytool.waitFor() != 0) {
                throw new IllegalStateException("keytool: " + said);
            }
            KeyStore keys = KeyStore.getInstance("PKCS12");
            try (InputStream stream = Files.newInputStream(file)) {
                keys.load(stream, PASSWORD);
            }
            Files.delete(file);
            Files.delete(file.getParent());
            return keys;
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        } catch (GeneralSecurityException | InterruptedException problem) {
            throw new IllegalStateException(problem);
        }
    }

    public static KeyManager[] keyManagers(KeyStore... stores) throws GeneralSecurityException, IOException {
        KeyManagerFactory factory = KeyManagerFactory.getInstance("PKIX");
        factory.init(merge(stores), PASSWORD);
        return factory.getKeyManagers();
    }

    private static KeyStore merge(KeyStore... stores) throws GeneralSecurityException, IOException {
        KeyStore merged = KeyStore.getInstance("PKCS12");
        merged.load(null, null);
        for (KeyStore store : stores) {
            String alias = store.aliases().nextElement();
            merged.setKeyEntry(alias, store.getKey(alias, PASSWORD), PASSWORD, store.getCertificateChain(alias));
        }
        return merged;
    }

    public static TrustManager[] trustManagers(KeyStore... stores) throws GeneralSecurityException, IOException {
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        for (KeyStore store : stores) {
            String alias = store.aliases().nextElement();
            trusted.setCertificateEntry(alias, store.getCertificate(alias));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
        factory.init(trusted);
        return factory.getTrustManagers();
    }

    public static Certificate certificate(KeyStore store) throws GeneralSecurityException {
        return store.getCertificate(store.aliases().nextElement());
    }

    /** Writes a certificate and its key as PEM. */
    public static Path[] pemFiles(KeyStore store) throws GeneralSecurityException, IOException {
        Path directory = Files.createTempDirectory("dormouse-test");
        String alias = store.aliases().nextElement();
        Path certificate = directory.resolve("cert.pem");
        Path key = directory.resolve("key.pem");
        Files.writeString(certificate, pem("CERTIFICATE", store.getCertificate(alias).getEncoded()));
        Files.writeString(key, pem("PRIVATE KEY", store.getKey(alias, PASSWORD).getEncoded()));
        directory.toFile().deleteOnExit();
        certificate.toFile().deleteOnExit();
        key.toFile().deleteOnExit();
        return new Path[] {certificate, key};
    }

    private static String pem(String kind, byte[] bytes) {
        return "-----BEGIN " + kind + "-----\n" + Base64.getMimeEncoder().encodeToString(bytes) + "\n-----END " + kind
                + "-----\n";
    }

    /** A context that shows the certificates in {@code keys} and trusts both of localhost, and the client's. */
    public static SSLContext context(boolean ofDormouse, KeyStore... keys) throws GeneralSecurityException, IOException {
        SSLContext context = ofDormouse ? SSLContext.getInstance("TLS", DORMOUSE) : SSLContext.getInstance("TLS", "SunJSSE");
        context.init(keyManagers(keys), trustManagers(EC, RSA, CLIENT), null);
        return context;
    }
}
