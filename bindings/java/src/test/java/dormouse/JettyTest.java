package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;

import org.eclipse.jetty.alpn.server.ALPNServerConnectionFactory;
import org.eclipse.jetty.client.ContentResponse;
import org.eclipse.jetty.client.transport.HttpClientTransportDynamic;
import org.eclipse.jetty.client.transport.HttpClientConnectionFactory;
import org.eclipse.jetty.http.HttpVersion;
import org.eclipse.jetty.http2.client.HTTP2Client;
import org.eclipse.jetty.http2.client.transport.ClientConnectionFactoryOverHTTP2;
import org.eclipse.jetty.http2.server.HTTP2ServerConnectionFactory;
import org.eclipse.jetty.io.ClientConnector;
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
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

// library: Jetty 12 | works | `setSslContext`, HTTP/2 too
/** Jetty's server and client choose HTTP/2 or HTTP/1.1 by ALPN. */
class JettyTest {
    /** A server that has both, and answers with the version. */
    private static ServerConnector start(Server server, boolean ofDormouse) throws Exception {
        SslContextFactory.Server tls = new SslContextFactory.Server();
        tls.setSslContext(TestKeys.context(ofDormouse, TestKeys.EC));
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.addCustomizer(new SecureRequestCustomizer());
        ALPNServerConnectionFactory alpn = new ALPNServerConnectionFactory();
        alpn.setDefaultProtocol("http/1.1");
        ServerConnector connector = new ServerConnector(server, new SslConnectionFactory(tls, alpn.getProtocol()), alpn,
                new HTTP2ServerConnectionFactory(configuration), new HttpConnectionFactory(configuration));
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        server.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) {
                Content.Sink.write(response, true, request.getConnectionMetaData().getHttpVersion().asString(), callback);
                return true;
            }
        });
        server.start();
        return connector;
    }

    @ParameterizedTest
    @ValueSource(strings = {"HTTP_2", "HTTP_1_1"})
    void theServer(HttpClient.Version version) throws Exception {
        Server server = new Server();
        int port = start(server, true).getLocalPort();
        try {
            HttpClient client =
                    HttpClient.newBuilder().sslContext(TestKeys.context(false)).version(version).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create("https://localhost:" + port + "/")).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            assertEquals(version, response.version());
            String certificate = TestKeys.pemFiles(TestKeys.EC)[0].toString();
            String said = Programs.run("curl", "-sS", "--http2", "--cacert", certificate, request.uri().toString());
            assertEquals("HTTP/2.0", said);
            // Without ALPN.
            said = Programs.run("curl", "-sS", "--no-alpn", "--cacert", certificate, request.uri().toString());
            assertEquals("HTTP/1.1", said);
        } finally {
            server.stop();
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theClient(boolean serverIsOurs) throws Exception {
        Server server = new Server();
        int port = start(server, serverIsOurs).getLocalPort();
        SslContextFactory.Client tls = new SslContextFactory.Client();
        tls.setSslContext(TestKeys.context(true));
        ClientConnector connector = new ClientConnector();
        connector.setSslContextFactory(tls);
        org.eclipse.jetty.client.HttpClient client = new org.eclipse.jetty.client.HttpClient(
                new HttpClientTransportDynamic(connector, new ClientConnectionFactoryOverHTTP2.HTTP2(new HTTP2Client(connector)),
                        HttpClientConnectionFactory.HTTP11));
        client.start();
        try {
            for (HttpVersion version : List.of(HttpVersion.HTTP_2, HttpVersion.HTTP_1_1)) {
                ContentResponse response =
                        client.newRequest("https://localhost:" + port + "/").version(version).send();
                assertEquals(version, response.getVersion());
                assertEquals(version.asString(), response.getContentAsString());
            }
        } finally {
            client.stop();
            server.stop();
        }
    }
}
