package io.grpc.testing.integration;

import dormouse.GrpcTest;

import io.grpc.ManagedChannelBuilder;
import io.grpc.ServerBuilder;
import io.grpc.netty.InternalNettyChannelBuilder;
import io.grpc.netty.InternalNettyServerBuilder;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.GeneralSecurityException;

import org.junit.Test;

/** gRPC's interoperability tests over Netty with this provider, with certificates of both sides. */
public class DormouseInteropTest extends AbstractInteropTest {
    @Override
    protected ServerBuilder<?> getServerBuilder() {
        NettyServerBuilder builder = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                .flowControlWindow(TEST_FLOW_CONTROL_WINDOW)
                .maxInboundMessageSize(MAX_MESSAGE_SIZE);
        try {
            builder.sslContext(GrpcTest.server());
        } catch (GeneralSecurityException | IOException problem) {
            throw new IllegalStateException(problem);
        }
        // The tests count calls themselves.
        InternalNettyServerBuilder.setStatsEnabled(builder, false);
        return builder.addStreamTracerFactory(createCustomCensusTracerFactory());
    }

    @Override
    protected ManagedChannelBuilder<?> createChannelBuilder() {
        int port = ((InetSocketAddress) getListenAddress()).getPort();
        NettyChannelBuilder builder = NettyChannelBuilder.forAddress("localhost", port)
                .flowControlWindow(TEST_FLOW_CONTROL_WINDOW)
                .maxInboundMessageSize(MAX_MESSAGE_SIZE);
        try {
            builder.sslContext(GrpcTest.client());
        } catch (GeneralSecurityException | IOException problem) {
            throw new IllegalStateException(problem);
        }
        InternalNettyChannelBuilder.setStatsEnabled(builder, false);
        return builder.intercept(createCensusStatsClientInterceptor());
    }

    @Test
    public void theServerSeesTheClientsCertificate() {
        assertX500SubjectDn("CN=alice");
    }
}
