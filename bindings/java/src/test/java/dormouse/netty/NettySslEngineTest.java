package dormouse.netty;

import dormouse.DormouseProvider;

import io.netty.handler.ssl.SSLEngineTest;
import io.netty.handler.ssl.SslProvider;

import java.security.Provider;

/** Netty's own tests of engines, with this provider on both sides. */
public class NettySslEngineTest extends SSLEngineTest {
    private static final Provider DORMOUSE = new DormouseProvider();

    public NettySslEngineTest() {
        super(true);
    }

    @Override
    protected SslProvider sslClientProvider() {
        return SslProvider.JDK;
    }

    @Override
    protected SslProvider sslServerProvider() {
        return SslProvider.JDK;
    }

    @Override
    protected Provider clientSslContextProvider() {
        return DORMOUSE;
    }

    @Override
    protected Provider serverSslContextProvider() {
        return DORMOUSE;
    }
}
