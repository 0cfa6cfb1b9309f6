package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.X509TrustManager;

import okhttp3.Call;
import okhttp3.Callback;
import okhttp3.CertificatePinner;
import okhttp3.ConnectionSpec;
import okhttp3.OkHttpClient;
import okhttp3.Protocol;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.TlsVersion;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import okhttp3.mockwebserver.Dispatcher;
import okhttp3.mockwebserver.MockResponse;
import okhttp3.mockwebserver.MockWebServer;
import okhttp3.mockwebserver.RecordedRequest;
import okhttp3.mockwebserver.SocketPolicy;
import okio.Buffer;

import org.junit.jupiter.api.Named;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

// library: OkHttp 4, MockWebServer | works | `sslSocketFactory`, `useHttps`; HTTP/2 too
/** Scenes of OkHttp and MockWebServer. The JDK's sockets, in each of the two roles or in both, show the same. */
class OkHttpTest {
    private static final int TIMEOUT_S = 20;
    private static final int SHORT_MS = 300;

    /** Whose sockets the two sides have, and the protocol. */
    private record Sides(boolean ourClient, boolean ourServer, Protocol protocol) {
        List<Protocol> protocols() {
            return protocol == Protocol.HTTP_2 ? List.of(Protocol.HTTP_2, Protocol.HTTP_1_1) : List.of(Protocol.HTTP_1_1);
        }

        @Override
        public String toString() {
            return (ourClient ? "dormouse" : "JDK") + " to " + (ourServer ? "dormouse" : "JDK") + ", " + protocol;
        }
    }

    static Stream<Sides> sides() {
        List<Sides> all = new ArrayList<>();
        for (Protocol protocol : List.of(Protocol.HTTP_1_1, Protocol.HTTP_2)) {
            for (boolean ourClient : new boolean[] {true, false}) {
                for (boolean ourServer : new boolean[] {true, false}) {
                    all.add(new Sides(ourClient, ourServer, protocol));
                }
            }
        }
        return all.stream();
    }

    static Stream<Arguments> policies() {
        return sides().flatMap(sides -> Stream.of(SocketPolicy.DISCONNECT_AT_START, SocketPolicy.DISCONNECT_AFTER_REQUEST,
                        SocketPolicy.DISCONNECT_DURING_RESPONSE_BODY)
                .map(policy -> Arguments.of(Named.of(sides.toString(), sides), policy)));
    }

    private static MockWebServer server(Sides sides, KeyStore keys) throws GeneralSecurityException, IOException {
        MockWebServer server = new MockWebServer();
        server.useHttps(TestKeys.context(sides.ourServer(), keys).getSocketFactory(), false);
        server.setProtocols(sides.protocols());
        return server;
    }

    private static OkHttpClient.Builder client(Sides sides, KeyStore trusted, KeyStore... keys)
            throws GeneralSecurityException, IOException {
        SSLContext context = sides.ourClient() ? SSLContext.getInstance("TLS", TestKeys.DORMOUSE)
                : SSLContext.getInstance("TLS", "SunJSSE");
        X509TrustManager trust = (X509TrustManager) TestKeys.trustManagers(trusted)[0];
        context.init(TestKeys.keyManagers(keys), new X509TrustManager[] {trust}, null);
        return new OkHttpClient.Builder()
                .sslSocketFactory(context.getSocketFactory(), trust)
                .protocols(sides.protocols())
                .readTimeout(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private static Call call(OkHttpClient client, MockWebServer server) {
        return client.newCall(new Request.Builder().url(server.url("/")).build());
    }

    private static String body(Call call) throws IOException {
        try (Response response = call.execute()) {
            return response.body().string();
        }
    }

    private static void end(OkHttpClient client) {
        client.dispatcher().cancelAll();
        client.connectionPool().evictAll();
        client.dispatcher().executorService().shutdown();
    }

    @ParameterizedTest
    @MethodSource("sides")
    void oneConnectionServesManyCalls(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            OkHttpClient client = client(sides, TestKeys.EC).build();
            // The second connection is resumed, and shows the same.
            for (int connection = 0; connection < 2; connection++) {
                for (int i = 0; i < 3; i++) {
                    server.enqueue(new MockResponse().setBody("answer"));
                    try (Response response = call(client, server).execute()) {
                        assertEquals("answer", response.body().string());
                        assertEquals(sides.protocol(), response.protocol());
                        assertEquals(TlsVersion.TLS_1_3, response.handshake().tlsVersion());
                        assertEquals(List.of(TestKeys.certificate(TestKeys.EC)), response.handshake().peerCertificates());
                    }
                    RecordedRequest request = server.takeRequest();
                    assertEquals(i, request.getSequenceNumber());
                    assertEquals(TlsVersion.TLS_1_3, request.getTlsVersion());
                }
                client.connectionPool().evictAll();
            }
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void callsAtTheSameTime(Sides sides) throws Exception {
        byte[] large = new byte[100_000];
        new Random(1).nextBytes(large);
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.setDispatcher(new Dispatcher() {
                @Override
                public MockResponse dispatch(RecordedRequest request) {
                    return new MockResponse().setBody(new Buffer().write(request.getBody().readByteArray()));
                }
            });
            OkHttpClient client = client(sides, TestKeys.EC).build();
            client.dispatcher().setMaxRequestsPerHost(20);
            List<CompletableFuture<byte[]>> bodies = new ArrayList<>();
            for (int i = 0; i < 40; i++) {
                CompletableFuture<byte[]> body = new CompletableFuture<>();
                bodies.add(body);
                Request request = new Request.Builder().url(server.url("/")).post(RequestBody.create(large)).build();
                client.newCall(request).enqueue(new Callback() {
                    @Override
                    public void onFailure(Call call, IOException problem) {
                        body.completeExceptionally(problem);
                    }

                    @Override
                    public void onResponse(Call call, Response response) throws IOException {
                        try (response) {
                            body.complete(response.body().bytes());
                        } catch (IOException problem) {
                            body.completeExceptionally(problem);
                        }
                    }
                });
            }
            for (CompletableFuture<byte[]> body : bodies) {
                assertArrayEquals(large, body.get(TIMEOUT_S, TimeUnit.SECONDS));
            }
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void certificatesThatAreRefused(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse());
            OkHttpClient stranger = client(sides, TestKeys.OTHER).build();
            assertThrows(SSLHandshakeException.class, () -> call(stranger, server).execute());
            OkHttpClient pinned = client(sides, TestKeys.EC)
                    .certificatePinner(new CertificatePinner.Builder()
                            .add("localhost", CertificatePinner.pin(TestKeys.certificate(TestKeys.OTHER)))
                            .build())
                    .build();
            assertThrows(SSLPeerUnverifiedException.class, () -> call(pinned, server).execute());
            OkHttpClient well = client(sides, TestKeys.EC)
                    .certificatePinner(new CertificatePinner.Builder()
                            .add("localhost", CertificatePinner.pin(TestKeys.certificate(TestKeys.EC)))
                            .build())
                    .build();
            assertEquals("", body(call(well, server)));
            end(well);
        }
        try (MockWebServer server = server(sides, TestKeys.OTHER)) {
            OkHttpClient client = client(sides, TestKeys.OTHER).build();
            assertThrows(SSLPeerUnverifiedException.class, () -> call(client, server).execute());
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void certificatesOfClients(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.requireClientAuth();
            server.enqueue(new MockResponse().setBody("for alice"));
            OkHttpClient nobody = client(sides, TestKeys.EC).build();
            assertThrows(IOException.class, () -> call(nobody, server).execute());
            end(nobody);
            OkHttpClient alice = client(sides, TestKeys.EC, TestKeys.CLIENT).build();
            assertEquals("for alice", body(call(alice, server)));
            assertEquals("CN=alice", server.takeRequest().getHandshake().peerPrincipal().getName());
            end(alice);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void aHandshakeThatTheServerRefuses(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse().setSocketPolicy(SocketPolicy.FAIL_HANDSHAKE));
            server.enqueue(new MockResponse().setSocketPolicy(SocketPolicy.FAIL_HANDSHAKE));
            OkHttpClient client = client(sides, TestKeys.EC).build();
            assertThrows(SSLException.class, () -> call(client, server).execute());
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void oldVersions(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse().setBody("answer"));
            OkHttpClient client = client(sides, TestKeys.EC)
                    .connectionSpecs(List.of(new ConnectionSpec.Builder(ConnectionSpec.RESTRICTED_TLS)
                            .tlsVersions(TlsVersion.TLS_1_2)
                            .build()))
                    .build();
            try (Response response = call(client, server).execute()) {
                assertEquals("answer", response.body().string());
                assertEquals(TlsVersion.TLS_1_2, response.handshake().tlsVersion());
                assertTrue(ConnectionSpec.RESTRICTED_TLS.cipherSuites().contains(response.handshake().cipherSuite()));
            }
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void timeouts(Sides sides) throws Exception {
        MockResponse late = new MockResponse().setBody("answer").setBodyDelay(3L * SHORT_MS, TimeUnit.MILLISECONDS);
        // In the handshake, before the answer, and in the body.
        for (MockResponse response : List.of(new MockResponse().setSocketPolicy(SocketPolicy.STALL_SOCKET_AT_START),
                new MockResponse().setSocketPolicy(SocketPolicy.NO_RESPONSE), late)) {
            OkHttpClient client = client(sides, TestKeys.EC)
                    .readTimeout(SHORT_MS, TimeUnit.MILLISECONDS)
                    .retryOnConnectionFailure(false)
                    .build();
            assertTimeout(SocketTimeoutException.class, client, sides, response);
        }
        OkHttpClient client = client(sides, TestKeys.EC).callTimeout(SHORT_MS, TimeUnit.MILLISECONDS).build();
        assertTimeout(InterruptedIOException.class, client, sides, late);
    }

    private static void assertTimeout(Class<? extends IOException> problem, OkHttpClient client, Sides sides,
            MockResponse response) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            // It is tried at each address of localhost.
            server.enqueue(response);
            server.enqueue(response);
            assertThrows(problem, () -> body(call(client, server)));
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void aCallThatIsCancelled(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse().setSocketPolicy(SocketPolicy.NO_RESPONSE));
            OkHttpClient client = client(sides, TestKeys.EC).build();
            Call call = call(client, server);
            CompletableFuture<Void> cancelled = CompletableFuture.runAsync(() -> {
                try {
                    server.takeRequest();
                } catch (InterruptedException problem) {
                    throw new IllegalStateException(problem);
                }
                call.cancel();
            });
            assertThrows(IOException.class, call::execute);
            cancelled.get(TIMEOUT_S, TimeUnit.SECONDS);
            assertTrue(call.isCanceled());
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("policies")
    void aServerThatLeaves(Sides sides, SocketPolicy policy) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            // It is tried at each address of localhost.
            for (int i = 0; i < 2; i++) {
                server.enqueue(new MockResponse().setBody("x".repeat(100_000)).setSocketPolicy(policy));
            }
            OkHttpClient client = client(sides, TestKeys.EC).retryOnConnectionFailure(false).build();
            assertThrows(IOException.class, () -> body(call(client, server)));
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void aServerThatEndsTheConnectionAfterItsAnswer(Sides sides) throws Exception {
        List<SocketPolicy> ends = new ArrayList<>(List.of(SocketPolicy.DISCONNECT_AT_END));
        // The JDK's client waits until its timeout when it closes a connection of which one direction has ended.
        if (sides.protocol() == Protocol.HTTP_1_1 && sides.ourClient()) {
            ends.addAll(List.of(SocketPolicy.SHUTDOWN_OUTPUT_AT_END, SocketPolicy.SHUTDOWN_INPUT_AT_END));
        }
        for (SocketPolicy end : ends) {
            try (MockWebServer server = server(sides, TestKeys.EC)) {
                OkHttpClient client = client(sides, TestKeys.EC).build();
                for (int i = 0; i < 3; i++) {
                    server.enqueue(new MockResponse().setBody("answer").setSocketPolicy(end));
                    // The next call may come before the client sees the end.
                    assertEquals("answer", body(call(client, server)), end.name());
                    client.connectionPool().evictAll();
                }
                end(client);
            }
        }
    }

    /** A body without a length is complete only if the server says so. */
    @ParameterizedTest
    @MethodSource("sides")
    void aBodyUntilTheEnd(Sides sides) throws Exception {
        if (sides.protocol() == Protocol.HTTP_2) {
            return;
        }
        String large = "x".repeat(200_000);
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse().setBody(large)
                    .removeHeader("Content-Length")
                    .setSocketPolicy(SocketPolicy.DISCONNECT_AT_END));
            OkHttpClient client = client(sides, TestKeys.EC).build();
            assertEquals(large, body(call(client, server)));
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void throughAProxy(Sides sides) throws Exception {
        try (MockWebServer server = new MockWebServer()) {
            server.useHttps(TestKeys.context(sides.ourServer(), TestKeys.EC).getSocketFactory(), true);
            server.setProtocols(sides.protocols());
            server.enqueue(new MockResponse().setSocketPolicy(SocketPolicy.UPGRADE_TO_SSL_AT_END).clearHeaders());
            server.enqueue(new MockResponse().setBody("through"));
            OkHttpClient client = client(sides, TestKeys.EC).proxy(server.toProxyAddress()).build();
            Request request = new Request.Builder().url("https://localhost/").build();
            assertEquals("through", body(client.newCall(request)));
            assertEquals("CONNECT localhost:443 HTTP/1.1", server.takeRequest().getRequestLine());
            end(client);
        }
    }

    @ParameterizedTest
    @MethodSource("sides")
    void webSockets(Sides sides) throws Exception {
        try (MockWebServer server = server(sides, TestKeys.EC)) {
            server.enqueue(new MockResponse().withWebSocketUpgrade(new WebSocketListener() {
                @Override
                public void onMessage(WebSocket socket, String text) {
                    socket.send(text);
                }

                @Override
                public void onClosing(WebSocket socket, int code, String reason) {
                    socket.close(code, reason);
                }
            }));
            OkHttpClient client = client(sides, TestKeys.EC).build();
            CompletableFuture<String> echo = new CompletableFuture<>();
            CompletableFuture<Integer> closed = new CompletableFuture<>();
            WebSocket socket = client.newWebSocket(new Request.Builder().url(server.url("/")).build(), new WebSocketListener() {
                @Override
                public void onMessage(WebSocket socket, String text) {
                    echo.complete(text);
                    socket.close(1000, "done");
                }

                @Override
                public void onClosed(WebSocket socket, int code, String reason) {
                    closed.complete(code);
                }

                @Override
                public void onFailure(WebSocket socket, Throwable problem, Response response) {
                    echo.completeExceptionally(problem);
                    closed.completeExceptionally(problem);
                }
            });
            String large = "x".repeat(100_000);
            assertTrue(socket.send(large));
            assertEquals(large, echo.get(TIMEOUT_S, TimeUnit.SECONDS));
            assertEquals(1000, closed.get(TIMEOUT_S, TimeUnit.SECONDS));
            end(client);
        }
    }
}
