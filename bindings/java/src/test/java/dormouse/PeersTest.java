package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;

import org.eclipse.jetty.http.HttpHeader;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.SecureRequestCustomizer;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.SslConnectionFactory;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.ssl.SslContextFactory;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Real servers and clients over real sockets: Netty, Jetty, java.net.http, curl, openssl. */
class PeersTest {
    private static final byte[] LARGE = NettyHttpServer.LARGE;

    private static NettyHttpServer netty(boolean asksForCertificate) throws Exception {
        SslContext tls = SslContextBuilder.forServer(TestKeys.keyManagers(TestKeys.EC, TestKeys.RSA)[0])
                .sslProvider(SslProvider.JDK)
                .sslContextProvider(TestKeys.DORMOUSE)
                // By default Netty enables only some.
                .ciphers(List.of(CipherSuite.names(CipherSuite.ALL)))
                .trustManager(TestKeys.trustManagers(TestKeys.CLIENT)[0])
                .clientAuth(asksForCertificate ? ClientAuth.REQUIRE : ClientAuth.NONE)
                .build();
        return new NettyHttpServer(channel -> tls.newHandler(channel.alloc()));
    }

    @ParameterizedTest
    @ValueSource(strings = {"1.2", "1.3"})
    void curl(String version) throws Exception {
        Path certificate = TestKeys.pemFiles(TestKeys.EC)[0];
        try (NettyHttpServer server = netty(false)) {
            String url = "https://localhost:" + server.port();
            String max = version.equals("1.2") ? "--tls-max" : "--tlsv1.3";
            for (String cipherCase : List.of("/", "/large")) {
                List<String> command = new java.util.ArrayList<>(List.of("curl", "-sS", "--cacert",
                        certificate.toString(), "--resolve", "localhost:" + server.port() + ":127.0.0.1", max));
                if (version.equals("1.2")) {
                    command.add("1.2");
                }
                command.add(url + cipherCase);
                String said = Programs.run(command.toArray(String[]::new));
                assertEquals(cipherCase.equals("/") ? "hello" : new String(LARGE, StandardCharsets.US_ASCII), said);
            }
        }
    }

    /** The suites that browsers offer, one by one, and both kinds of certificates. */
    @Test
    void opensslWithEachSuite() throws Exception {
        try (NettyHttpServer server = netty(false)) {
            for (String suite : List.of("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                    "TLS_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256",
                    "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
                    "ECDHE-RSA-CHACHA20-POLY1305")) {
                boolean isTls13 = suite.startsWith("TLS_");
                String said = Programs.run("openssl", "s_client", "-brief", "-connect", "127.0.0.1:" + server.port(),
                        isTls13 ? "-tls1_3" : "-tls1_2", isTls13 ? "-ciphersuites" : "-cipher", suite);
                assertTrue(said.contains("Ciphersuite: " + suite), suite + ": " + said);
            }
        }
    }

    @Test
    void opensslWithACertificate() throws Exception {
        Path[] client = TestKeys.pemFiles(TestKeys.CLIENT);
        try (NettyHttpServer server = netty(true)) {
            String address = "127.0.0.1:" + server.port();
            String said = Programs.run("curl", "-sS", "-k", "--cert", client[0].toString(), "--key", client[1].toString(),
                    "https://" + address + "/");
            assertEquals("hello", said);
            assertTrue(Programs.run("curl", "-sS", "-k", "https://" + address + "/").contains("certificate"), "refused");
        }
    }

    // library: java.net.http | works | `HttpClient.newBuilder().sslContext(context)`
    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void httpClient(String protocol) throws Exception {
        SSLContext context = TestKeys.context(true, TestKeys.CLIENT);
        javax.net.ssl.SSLParameters parameters = context.getDefaultSSLParameters();
        parameters.setProtocols(new String[] {protocol});
        try (NettyHttpServer server = netty(true)) {
            HttpClient client = HttpClient.newBuilder().sslContext(context).sslParameters(parameters).build();
            for (int i = 0; i < 3; i++) {
                HttpResponse<byte[]> response =
                        client.send(request(server.port(), "/large"), HttpResponse.BodyHandlers.ofByteArray());
                Assertions.assertArrayEquals(LARGE, response.body());
                assertEquals(protocol, response.sslSession().orElseThrow().getProtocol());
                assertEquals("CN=localhost", response.sslSession().get().getPeerPrincipal().getName());
            }
            SSLContext stranger = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
            stranger.init(null, TestKeys.trustManagers(TestKeys.OTHER), null);
            HttpClient refusing = HttpClient.newBuilder().sslContext(stranger).build();
            Assertions.assertThrows(SSLHandshakeException.class,
                    () -> refusing.send(request(server.port(), "/"), HttpResponse.BodyHandlers.ofString()));
        }
    }

    private static HttpRequest request(int port, String path) {
        return HttpRequest.newBuilder(URI.create("https://localhost:" + port + path)).build();
    }

    @Test
    void jetty() throws Exception {
        SslContextFactory.Server tls = new SslContextFactory.Server();
        tls.setSslContext(TestKeys.context(true, TestKeys.EC));
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.addCustomizer(new SecureRequestCustomizer());
        Server server = new Server();
        ServerConnector connector = new ServerConnector(
                server, new SslConnectionFactory(tls, "http/1.1"), new HttpConnectionFactory(configuration));
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) {
                response.getHeaders().put(HttpHeader.CONTENT_TYPE, "text/plain");
                boolean large = request.getHttpURI().getPath().equals("/large");
                Content.Sink.write(response, true, large ? new String(LARGE, StandardCharsets.US_ASCII) : "hello", callback);
                return true;
            }
        });
        server.start();
        try {
            HttpClient client = HttpClient.newBuilder().sslContext(TestKeys.context(true)).build();
            for (String path : List.of("/", "/large", "/")) {
                HttpResponse<String> response = client.send(
                        request(connector.getLocalPort(), path), HttpResponse.BodyHandlers.ofString());
                assertEquals(path.equals("/") ? 5 : LARGE.length, response.body().length());
            }
            Path certificate = TestKeys.pemFiles(TestKeys.EC)[0];
            assertEquals("hello", Programs.run("curl", "-sS", "--cacert", certificate.toString(),
                    "https://localhost:" + connector.getLocalPort() + "/"));
        } finally {
            server.stop();
        }
    }
}
