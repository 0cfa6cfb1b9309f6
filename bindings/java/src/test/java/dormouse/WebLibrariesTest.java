package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.Security;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;

import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.coyote.http2.Http2Protocol;
import org.apache.hc.client5.http.async.methods.SimpleRequestBuilder;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.impl.async.CloseableHttpAsyncClient;
import org.apache.hc.client5.http.impl.async.HttpAsyncClients;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.client5.http.impl.nio.PoolingAsyncClientConnectionManagerBuilder;
import org.apache.hc.client5.http.ssl.ClientTlsStrategyBuilder;
import org.apache.hc.client5.http.ssl.DefaultClientTlsStrategy;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Servers and clients of HTTP: Tomcat's with the JDK's client, Apache's client with Netty's server. */
class WebLibrariesTest {
    private static final int LENGTH = 300_000;
    private static final int TIMEOUT_S = 30;

    @TempDir
    Path folder;

    /** Answers with the protocol and the length of what it got, and many spaces. */
    private static final class Answer extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            int length = request.getInputStream().readAllBytes().length;
            String text = request.getProtocol() + " " + request.isSecure() + " " + length + " ".repeat(LENGTH);
            response.getOutputStream().write(text.getBytes(StandardCharsets.US_ASCII));
        }
    }

    private Tomcat tomcat() throws Exception {
        Connector connector = new Connector("org.apache.coyote.http11.Http11NioProtocol");
        connector.setPort(0);
        connector.setProperty("address", "127.0.0.1");
        connector.setScheme("https");
        connector.setSecure(true);
        connector.setProperty("SSLEnabled", "true");
        connector.addUpgradeProtocol(new Http2Protocol());
        SSLHostConfig host = new SSLHostConfig();
        SSLHostConfigCertificate certificate = new SSLHostConfigCertificate(host, SSLHostConfigCertificate.Type.EC);
        certificate.setCertificateKeystore(TestKeys.EC);
        certificate.setCertificateKeystorePassword(new String(TestKeys.PASSWORD));
        host.addCertificate(certificate);
        connector.addSslHostConfig(host);
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(folder.toString());
        tomcat.setConnector(connector);
        Context context = tomcat.addContext("", folder.toString());
        Tomcat.addServlet(context, "answer", new Answer());
        context.addServletMappingDecoded("/", "answer");
        return tomcat;
    }

    // library: Tomcat 10 | works | `Security.insertProviderAt(new DormouseProvider(), 1)`, HTTP/2 too: it asks the first provider for the cipher suites
    @ParameterizedTest
    @EnumSource(java.net.http.HttpClient.Version.class)
    void tomcatsServer(java.net.http.HttpClient.Version version) throws Exception {
        java.net.http.HttpClient client =
                java.net.http.HttpClient.newBuilder().sslContext(TestKeys.context(false)).version(version).build();
        Security.insertProviderAt(TestKeys.DORMOUSE, 1);
        Tomcat tomcat = tomcat();
        try {
            tomcat.start();
            SSLHostConfig host = tomcat.getConnector().findSslHostConfigs()[0];
            assertInstanceOf(DormouseEngine.class, host.getCertificates().iterator().next().getSslContext().createSSLEngine());
            URI uri = URI.create("https://localhost:" + tomcat.getConnector().getLocalPort() + "/");
            HttpRequest request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(TIMEOUT_S))
                    .POST(HttpRequest.BodyPublishers.ofByteArray(new byte[LENGTH])).build();
            for (int i = 0; i < 3; i++) {
                HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
                assertEquals(version, response.version());
                String protocol = version == java.net.http.HttpClient.Version.HTTP_2 ? "HTTP/2.0" : "HTTP/1.1";
                assertEquals(protocol + " true " + LENGTH, response.body().strip());
            }
        } finally {
            tomcat.stop();
            tomcat.destroy();
            Security.removeProvider(TestKeys.DORMOUSE.getName());
        }
    }

    private static NettyHttpServer server() throws Exception {
        var context = TestKeys.context(true, TestKeys.EC);
        return new NettyHttpServer(channel -> dormouse.netty.DormouseHandler.server(context));
    }

    // library: Apache HttpClient 5 | works | `DefaultClientTlsStrategy`, `ClientTlsStrategyBuilder.setSslContext`
    @Test
    void apachesClientThatBlocks() throws Exception {
        var connections = PoolingHttpClientConnectionManagerBuilder.create()
                .setTlsSocketStrategy(new DefaultClientTlsStrategy(TestKeys.context(true))).build();
        try (NettyHttpServer server = server();
                CloseableHttpClient client = HttpClients.custom().setConnectionManager(connections).build()) {
            for (String path : new String[] {"/", "/large", "/"}) {
                HttpGet request = new HttpGet("https://localhost:" + server.port() + path);
                int length = client.execute(request, response -> EntityUtils.toByteArray(response.getEntity()).length);
                assertEquals(path.equals("/") ? 5 : NettyHttpServer.LARGE.length, length);
            }
        }
    }

    @Test
    void apachesClientThatDoesNotBlock() throws Exception {
        var connections = PoolingAsyncClientConnectionManagerBuilder.create()
                .setTlsStrategy(ClientTlsStrategyBuilder.create().setSslContext(TestKeys.context(true)).buildAsync())
                .build();
        try (NettyHttpServer server = server();
                CloseableHttpAsyncClient client =
                        HttpAsyncClients.custom().setConnectionManager(connections).build()) {
            client.start();
            for (String path : new String[] {"/", "/large", "/"}) {
                var request = SimpleRequestBuilder.get("https://localhost:" + server.port() + path).build();
                int length = client.execute(request, null).get(TIMEOUT_S, TimeUnit.SECONDS).getBodyBytes().length;
                assertEquals(path.equals("/") ? 5 : NettyHttpServer.LARGE.length, length);
            }
        }
    }
}
