package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.KeyStore;
import java.security.Security;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import dormouse.netty.DormouseHandler;

import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.postgresql.ssl.WrappedFactory;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;

/** Libraries that use sockets, with real servers. */
class SocketLibrariesTest {
    private static final int START_S = 60;
    /** A state of PostgreSQL, which is starting up. */
    private static final String CANNOT_CONNECT_NOW = "57P03";
    private static final int TIMEOUT_MS = 20_000;

    @TempDir
    Path folder;

    // HTTP

    // library: HttpsURLConnection, the JDK's HttpsServer | works | `setSSLSocketFactory`, `HttpsConfigurator`
    @Test
    void httpsUrlConnection() throws Exception {
        SSLContext clients = TestKeys.context(true);
        SSLContext strangers = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        strangers.init(null, TestKeys.trustManagers(TestKeys.OTHER), null);
        try (NettyHttpServer server = httpServer(TestKeys.EC)) {
            for (String path : List.of("/", "/large", "/")) {
                HttpsURLConnection connection = connection(clients, "localhost", server.port(), path);
                try (InputStream body = connection.getInputStream()) {
                    assertNotNull(connection.getCipherSuite());
                    assertEquals("CN=localhost", connection.getPeerPrincipal().getName());
                    int length = path.equals("/") ? 5 : NettyHttpServer.LARGE.length;
                    assertEquals(length, body.readAllBytes().length);
                }
            }
            assertThrows(SSLHandshakeException.class,
                    () -> connection(strangers, "localhost", server.port(), "/").getInputStream());
        }
        // Its certificate is for other.test and 127.0.0.1.
        try (NettyHttpServer server = httpServer(TestKeys.OTHER)) {
            connection(strangers, "127.0.0.1", server.port(), "/").getInputStream().close();
            assertThrows(SSLHandshakeException.class,
                    () -> connection(strangers, "localhost", server.port(), "/").getInputStream());
        }
    }

    private static NettyHttpServer httpServer(KeyStore keys) throws Exception {
        SSLContext context = TestKeys.context(true, keys);
        return new NettyHttpServer(channel -> DormouseHandler.server(context));
    }

    private static HttpsURLConnection connection(SSLContext clients, String host, int port, String path)
            throws IOException {
        HttpsURLConnection connection =
                (HttpsURLConnection) URI.create("https://" + host + ":" + port + path).toURL().openConnection();
        connection.setSSLSocketFactory(clients.getSocketFactory());
        connection.setConnectTimeout(TIMEOUT_MS);
        connection.setReadTimeout(TIMEOUT_MS);
        return connection;
    }

    // Databases

    /** A server that ends with the test. */
    private record Server(Process process, int port) implements AutoCloseable {
        @Override
        public void close() {
            process.destroy();
            try {
                if (process.waitFor(10, TimeUnit.SECONDS)) {
                    return;
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
            process.destroyForcibly();
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket free = new ServerSocket(0)) {
            return free.getLocalPort();
        }
    }

    private Server start(int port, String... command) throws Exception {
        Process process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(folder.resolve("log").toFile()).start();
        for (int i = 0; i < START_S * 10 && process.isAlive(); i++) {
            try {
                new Socket("127.0.0.1", port).close();
                return new Server(process, port);
            } catch (IOException notYet) {
                Thread.sleep(100);
            }
        }
        process.destroyForcibly();
        throw new IOException(command[0] + ": " + Files.readString(folder.resolve("log")));
    }

    private static void requireProgram(String name) {
        boolean exists = Stream.of("/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin")
                .anyMatch(place -> Files.isExecutable(Path.of(place, name)));
        assumeTrue(exists, name + " is missing");
    }

    /** The certificate and the key of localhost in the test's folder. */
    private Path[] files() throws Exception {
        Path[] made = TestKeys.pemFiles(TestKeys.EC);
        Path[] here = {folder.resolve("cert.pem"), folder.resolve("key.pem")};
        for (int i = 0; i < made.length; i++) {
            Files.copy(made[i], here[i]);
        }
        Files.setPosixFilePermissions(here[1], PosixFilePermissions.fromString("rw-------"));
        return here;
    }

    /** What the driver of PostgreSQL creates by its name. */
    public static final class PostgresFactory extends WrappedFactory {
        public PostgresFactory() throws Exception {
            factory = TestKeys.context(true).getSocketFactory();
        }
    }

    private static String postgresPrograms() throws IOException {
        Path versions = Path.of("/usr/lib/postgresql");
        assumeTrue(Files.isDirectory(versions), "PostgreSQL is missing");
        try (Stream<Path> found = Files.list(versions)) {
            return found.map(version -> version.resolve("bin")).filter(bin -> Files.exists(bin.resolve("postgres")))
                    .findFirst().orElseThrow().toString();
        }
    }

    /** PostgreSQL does not run as root. */
    private List<String> asPostgres() throws Exception {
        if (!System.getProperty("user.name").equals("root")) {
            return List.of();
        }
        requireProgram("setpriv");
        Programs.run("chown", "-R", "postgres", folder.toString());
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
        return List.of("setpriv", "--reuid=postgres", "--clear-groups");
    }

    // library: PostgreSQL (JDBC 42) | works | `sslfactory=` a subclass of `WrappedFactory`
    @Test
    void postgresql() throws Exception {
        String programs = postgresPrograms();
        Path[] files = files();
        List<String> prefix = asPostgres();
        String data = folder.resolve("data").toString();
        List<String> init = new ArrayList<>(prefix);
        init.addAll(List.of(programs + "/initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres"));
        String said = Programs.run(init.toArray(String[]::new));
        assertTrue(said.contains("Success"), said);
        int port = freePort();
        List<String> command = new ArrayList<>(prefix);
        command.addAll(List.of(programs + "/postgres", "-D", data, "-h", "127.0.0.1", "-p", Integer.toString(port), "-k",
                folder.toString(), "-c", "ssl=on", "-c", "ssl_cert_file=" + files[0], "-c", "ssl_key_file=" + files[1]));
        try (Server server = start(port, command.toArray(String[]::new))) {
            Properties properties = new Properties();
            properties.setProperty("user", "postgres");
            properties.setProperty("sslmode", "verify-full");
            properties.setProperty("sslfactory", PostgresFactory.class.getName());
            properties.setProperty("connectTimeout", "30");
            String url = "jdbc:postgresql://localhost:" + server.port + "/postgres";
            try (Connection connection = whenStarted(url, properties)) {
                assertEquals("TLSv1.3", first(connection, "select version from pg_stat_ssl where pid = pg_backend_pid()"));
                assertEquals(Integer.toString(2_000_000), first(connection, "select length(repeat('x', 2000000))"));
                assertEquals(2_000_000, first(connection, "select repeat('x', 2000000)").length());
            }
        }
    }

    /** A server of PostgreSQL listens before it can answer; then it says so. */
    private static Connection whenStarted(String url, Properties properties) throws Exception {
        for (int i = 0; i < START_S * 10; i++) {
            try {
                return DriverManager.getConnection(url, properties);
            } catch (SQLException refusal) {
                if (!CANNOT_CONNECT_NOW.equals(refusal.getSQLState())) {
                    throw refusal;
                }
                Thread.sleep(100);
            }
        }
        throw new IOException("PostgreSQL is still starting");
    }

    private static String first(Connection connection, String query) throws Exception {
        try (var statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            assertTrue(rows.next());
            return rows.getString(1);
        }
    }

    // library: MySQL (Connector/J 9) | works | `Security.addProvider`, `sslContextProvider=Dormouse`
    @Test
    void mysql() throws Exception {
        requireProgram("mariadbd");
        Path[] files = files();
        Files.createDirectory(folder.resolve("data"));
        int port = freePort();
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("server", TestKeys.certificate(TestKeys.EC));
        Path store = folder.resolve("trusted.p12");
        try (var out = Files.newOutputStream(store)) {
            trusted.store(out, TestKeys.PASSWORD);
        }
        try (Server server = start(port, "mariadbd", "--no-defaults",
                "--user=" + System.getProperty("user.name"), "--skip-grant-tables", "--skip-networking=0",
                "--skip-innodb", "--default-storage-engine=MyISAM", "--datadir=" + folder.resolve("data"),
                "--socket=" + folder.resolve("socket"), "--pid-file=" + folder.resolve("pid"),
                "--bind-address=127.0.0.1", "--port=" + port, "--ssl-cert=" + files[0], "--ssl-key=" + files[1])) {
            Properties properties = new Properties();
            properties.setProperty("user", "root");
            properties.setProperty("sslMode", "VERIFY_IDENTITY");
            properties.setProperty("sslContextProvider", DormouseProvider.NAME);
            properties.setProperty("trustCertificateKeyStoreUrl", store.toUri().toString());
            properties.setProperty("trustCertificateKeyStoreType", "PKCS12");
            properties.setProperty("trustCertificateKeyStorePassword", new String(TestKeys.PASSWORD));
            Security.addProvider(TestKeys.DORMOUSE);
            try (Connection connection =
                    DriverManager.getConnection("jdbc:mysql://localhost:" + server.port + "/", properties)) {
                assertTrue(statusOf(connection, "Ssl_cipher").startsWith("TLS_AES"));
                assertEquals(2_000_000, first(connection, "select repeat('x', 2000000)").length());
            } finally {
                Security.removeProvider(DormouseProvider.NAME);
            }
        }
    }

    private static String statusOf(Connection connection, String name) throws Exception {
        try (var statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("show status like '" + name + "'")) {
            assertTrue(rows.next());
            return rows.getString(2);
        }
    }

    // library: Jedis 5 | works | `sslSocketFactory` of the configuration
    @Test
    void jedis() throws Exception {
        requireProgram("redis-server");
        Path[] files = files();
        int port = freePort();
        try (Server server = start(port, "redis-server", "--port", "0", "--tls-port", Integer.toString(port), "--bind",
                "127.0.0.1", "--tls-cert-file", files[0].toString(), "--tls-key-file", files[1].toString(),
                "--tls-auth-clients", "no", "--tls-ca-cert-file", files[0].toString(), "--save", "", "--dir",
                folder.toString())) {
            DefaultJedisClientConfig config = DefaultJedisClientConfig.builder()
                    .ssl(true)
                    .sslSocketFactory(TestKeys.context(true).getSocketFactory())
                    .build();
            try (Jedis jedis = new Jedis(new HostAndPort("localhost", server.port), config)) {
                byte[] large = new byte[1_000_000];
                Arrays.fill(large, (byte) 7);
                jedis.set("key".getBytes(), large);
                assertArrayEquals(large, jedis.get("key".getBytes()));
                assertEquals("PONG", jedis.ping());
            }
        }
    }
}
