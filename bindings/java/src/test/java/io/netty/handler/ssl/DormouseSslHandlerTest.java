package io.netty.handler.ssl;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dormouse.DormouseProvider;

import java.security.Security;

import javax.net.ssl.SSLContext;

import org.junit.jupiter.api.BeforeAll;

/**
 * Netty's own tests of its handler, with this provider in place of the JDK's. It runs in a process of its own:
 * Netty notes the default provider once.
 */
public class DormouseSslHandlerTest extends ParameterizedSslHandlerTest {
    static {
        Security.insertProviderAt(new DormouseProvider(), 1);
    }

    @BeforeAll
    static void isTheDefault() throws Exception {
        assertTrue(SSLContext.getInstance("TLS").getProvider() instanceof DormouseProvider);
        SslContext context = SslContextBuilder.forClient().sslProvider(SslProvider.JDK).build();
        String engine = context.newEngine(io.netty.buffer.UnpooledByteBufAllocator.DEFAULT).toString();
        assertTrue(engine.contains("Dormouse"), engine);
    }
}
