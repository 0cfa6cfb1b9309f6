package dormouse;

import java.util.List;
import java.util.function.BiFunction;

import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;

/** What an engine's owner sets and reads: suites, protocols, names, client certificates. */
abstract class ConfiguredEngine extends SSLEngine {
    final ContextSpi context;
    private EngineSettings settings;
    private BiFunction<SSLEngine, List<String>, String> alpnSelector;

    ConfiguredEngine(ContextSpi context, String host, int port) {
        super(host, port);
        this.context = context;
        settings = context.defaults();
    }

    EngineSettings settings() {
        return settings;
    }

    private synchronized void set(EngineSettings changed) {
        settings = context.share(changed);
    }

    /** Takes another engine's settings. */
    void adopt(ConfiguredEngine other) {
        set(other.settings());
    }

    /** Client: the name to ask for, a host name or an address; null: none. */
    String requestedHost() {
        if (settings.serverNames() == null) {
            String host = getPeerHost();
            boolean isUsable = host != null && (HostNames.isAddress(host) || !Handshake.names(host).isEmpty());
            return isUsable ? host : null;
        }
        for (SNIServerName name : settings.serverNames()) {
            if (name instanceof SNIHostName host) {
                return host.getAsciiName();
            }
        }
        return null;
    }

    List<SNIServerName> requestedNames() {
        return settings.serverNames() != null ? settings.serverNames() : Handshake.names(getPeerHost());
    }

    @Override
    public String[] getSupportedCipherSuites() {
        return CipherSuite.names(CipherSuite.ALL);
    }

    @Override
    public String[] getEnabledCipherSuites() {
        return CipherSuite.names(settings.suites());
    }

    @Override
    public void setEnabledCipherSuites(String[] suites) {
        requireArgument(suites, "cipher suites");
        set(settings.withSuites(CipherSuite.parse(suites)));
    }

    @Override
    public String[] getSupportedProtocols() {
        return Protocol.names(Protocol.ALL);
    }

    @Override
    public String[] getEnabledProtocols() {
        return Protocol.names(settings.protocols());
    }

    @Override
    public void setEnabledProtocols(String[] protocols) {
        requireArgument(protocols, "protocols");
        set(settings.withProtocols(Protocol.parse(protocols)));
    }

    @Override
    public void setNeedClientAuth(boolean need) {
        set(settings.withClientCertificates(
                need ? EngineSettings.ClientCertificates.REQUIRED : EngineSettings.ClientCertificates.NONE));
    }

    @Override
    public boolean getNeedClientAuth() {
        return settings.clientCertificates() == EngineSettings.ClientCertificates.REQUIRED;
    }

    @Override
    public void setWantClientAuth(boolean want) {
        set(settings.withClientCertificates(
                want ? EngineSettings.ClientCertificates.WANTED : EngineSettings.ClientCertificates.NONE));
    }

    @Override
    public boolean getWantClientAuth() {
        return settings.clientCertificates() == EngineSettings.ClientCertificates.WANTED;
    }

    @Override
    public void setEnableSessionCreation(boolean allowed) {
        if (!allowed) {
            throw new UnsupportedOperationException("a handshake can't be limited to known sessions");
        }
    }

    @Override
    public boolean getEnableSessionCreation() {
        return true;
    }

    @Override
    public synchronized void setHandshakeApplicationProtocolSelector(
            BiFunction<SSLEngine, List<String>, String> selector) {
        alpnSelector = selector;
    }

    @Override
    public synchronized BiFunction<SSLEngine, List<String>, String> getHandshakeApplicationProtocolSelector() {
        return alpnSelector;
    }

    @Override
    public SSLParameters getSSLParameters() {
        EngineSettings current = settings;
        SSLParameters parameters =
                new SSLParameters(CipherSuite.names(current.suites()), Protocol.names(current.protocols()));
        switch (current.clientCertificates()) {
            case REQUIRED -> parameters.setNeedClientAuth(true);
            case WANTED -> parameters.setWantClientAuth(true);
            default -> { }
        }
        parameters.setApplicationProtocols(current.alpn().toArray(String[]::new));
        parameters.setEndpointIdentificationAlgorithm(current.endpointIdentification());
        List<SNIServerName> names = getUseClientMode() ? requestedNames() : List.of();
        if (current.serverNames() != null || !names.isEmpty()) {
            parameters.setServerNames(names);
        }
        if (!current.matchers().isEmpty()) {
            parameters.setSNIMatchers(current.matchers());
        }
        parameters.setAlgorithmConstraints(current.constraints());
        parameters.setUseCipherSuitesOrder(false);
        return parameters;
    }

    @Override
    public void setSSLParameters(SSLParameters parameters) {
        requireArgument(parameters, "parameters");
        EngineSettings.ClientCertificates certificates = parameters.getNeedClientAuth()
                ? EngineSettings.ClientCertificates.REQUIRED
                : parameters.getWantClientAuth()
                        ? EngineSettings.ClientCertificates.WANTED
                        : EngineSettings.ClientCertificates.NONE;
        String[] protocols = parameters.getProtocols();
        String[] suites = parameters.getCipherSuites();
        set(new EngineSettings(
                protocols == null ? settings.protocols() : Protocol.parse(protocols),
                suites == null ? settings.suites() : CipherSuite.parse(suites),
                certificates,
                List.of(parameters.getApplicationProtocols()),
                parameters.getEndpointIdentificationAlgorithm(),
                parameters.getServerNames() == null ? settings.serverNames() : parameters.getServerNames(),
                parameters.getSNIMatchers() == null ? settings.matchers() : parameters.getSNIMatchers(),
                parameters.getAlgorithmConstraints()));
    }

    private static void requireArgument(Object argument, String what) {
        if (argument == null) {
            throw new IllegalArgumentException("the " + what + " can't be null");
        }
    }
}
