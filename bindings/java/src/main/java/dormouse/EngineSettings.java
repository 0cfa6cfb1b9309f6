package dormouse;

import java.security.AlgorithmConstraints;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

import javax.net.ssl.SNIMatcher;
import javax.net.ssl.SNIServerName;

/**
 * The settings of an engine. Equal settings of the engines of a context are one object ({@link ContextSpi#share}).
 *
 * @param clientCertificates server: whether client certificates are requested
 * @param serverNames client: the names to request; null: the peer's host
 */
record EngineSettings(
        Set<Protocol> protocols,
        Set<CipherSuite> suites,
        ClientCertificates clientCertificates,
        List<String> alpn,
        String endpointIdentification,
        List<SNIServerName> serverNames,
        Collection<SNIMatcher> matchers,
        AlgorithmConstraints constraints) {

    /** In the order of the native method. */
    enum ClientCertificates {
        NONE,
        WANTED,
        REQUIRED
    }

    // The methods of a record would keep the class loader of its components' classes for ever (JDK 17: ObjectMethods).

    @Override
    public boolean equals(Object other) {
        return other instanceof EngineSettings that && parts().equals(that.parts());
    }

    @Override
    public int hashCode() {
        return parts().hashCode();
    }

    private List<Object> parts() {
        return Arrays.asList(protocols, suites, clientCertificates, alpn, endpointIdentification, serverNames, matchers,
                constraints);
    }

    static EngineSettings of(Set<Protocol> protocols) {
        return new EngineSettings(
                protocols, CipherSuite.ALL, ClientCertificates.NONE, List.of(), null, null, List.of(), null);
    }

    EngineSettings withProtocols(Set<Protocol> changed) {
        return new EngineSettings(changed, suites, clientCertificates, alpn, endpointIdentification, serverNames,
                matchers, constraints);
    }

    EngineSettings withSuites(Set<CipherSuite> changed) {
        return new EngineSettings(protocols, changed, clientCertificates, alpn, endpointIdentification, serverNames,
                matchers, constraints);
    }

    EngineSettings withClientCertificates(ClientCertificates changed) {
        return new EngineSettings(protocols, suites, changed, alpn, endpointIdentification, serverNames, matchers,
                constraints);
    }

    /** The enabled protocols for which a suite is enabled. */
    Set<Protocol> usableProtocols() {
        EnumSet<Protocol> usable = EnumSet.noneOf(Protocol.class);
        for (CipherSuite suite : suites) {
            if (protocols.contains(suite.protocol())) {
                usable.add(suite.protocol());
            }
        }
        return usable;
    }

    /** A bit for each usable protocol, for the engine. */
    int protocolBits() {
        return bits(usableProtocols());
    }

    /** A bit for each suite, for the engine. */
    int suiteBits() {
        return bits(suites);
    }

    private static int bits(Set<? extends Enum<?>> set) {
        return set.stream().mapToInt(one -> 1 << one.ordinal()).sum();
    }
}
