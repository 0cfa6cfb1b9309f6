package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.ApplicationProtocolConfig.Protocol;
import io.netty.handler.ssl.ApplicationProtocolConfig.SelectedListenerFailureBehavior;
import io.netty.handler.ssl.ApplicationProtocolConfig.SelectorFailureBehavior;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;
import java.util.Random;
import java.util.concurrent.TimeUnit;

import org.junit.jupiter.api.Test;

// library: grpc-java (grpc-netty) | with a note | `SslContextBuilder` with `sslContextProvider`; `GrpcSslContexts.configure` refuses providers that it does not know
/** grpc-java with contexts of Netty that the guide shows. grpc's own {@code GrpcSslContexts} knows only some providers. */
public class GrpcTest {
    private static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
            }
        }
    };
    private static final MethodDescriptor<byte[], byte[]> ECHO = MethodDescriptor.newBuilder(BYTES, BYTES)
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName("test.Echo/Echo")
            .build();

    private static SslContextBuilder with(SslContextBuilder builder) {
        return builder.sslProvider(SslProvider.JDK)
                .sslContextProvider(TestKeys.DORMOUSE)
                .applicationProtocolConfig(new ApplicationProtocolConfig(Protocol.ALPN,
                        SelectorFailureBehavior.NO_ADVERTISE, SelectedListenerFailureBehavior.ACCEPT,
                        ApplicationProtocolNames.HTTP_2));
    }

    public static SslContext server() throws GeneralSecurityException, IOException {
        return with(SslContextBuilder.forServer(TestKeys.keyManagers(TestKeys.EC)[0]))
                .trustManager(TestKeys.trustManagers(TestKeys.CLIENT)[0])
                .clientAuth(ClientAuth.REQUIRE)
                .build();
    }

    public static SslContext client() throws GeneralSecurityException, IOException {
        return with(SslContextBuilder.forClient())
                .keyManager(TestKeys.keyManagers(TestKeys.CLIENT)[0])
                .trustManager(TestKeys.trustManagers(TestKeys.EC)[0])
                .build();
    }

    @Test
    void calls() throws Exception {
        ServerServiceDefinition echo = ServerServiceDefinition.builder("test.Echo")
                .addMethod(ECHO, ServerCalls.asyncUnaryCall((request, answer) -> {
                    answer.onNext(request);
                    answer.onCompleted();
                }))
                .build();
        Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                .sslContext(server())
                .addService(echo)
                .build()
                .start();
        ManagedChannel channel = NettyChannelBuilder.forAddress("localhost", server.getPort())
                .sslContext(client())
                .build();
        try {
            byte[] large = new byte[1_000_000];
            new Random(1).nextBytes(large);
            for (byte[] message : new byte[][] {{}, {1, 2, 3}, large}) {
                assertArrayEquals(message, ClientCalls.blockingUnaryCall(channel, ECHO, CallOptions.DEFAULT, message));
            }
        } finally {
            channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
            server.shutdownNow().awaitTermination();
        }
    }
}
