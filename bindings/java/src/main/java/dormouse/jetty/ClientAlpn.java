package dormouse.jetty;

import dormouse.BatchEngine;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;

import org.eclipse.jetty.alpn.client.ALPNClientConnection;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.ssl.ALPNProcessor;
import org.eclipse.jetty.io.ssl.SslConnection;
import org.eclipse.jetty.io.ssl.SslHandshakeListener;

/** Offers the application protocols of Jetty's client. Jetty's own processor serves only the JDK's engines. */
public final class ClientAlpn implements ALPNProcessor.Client {
    /** For Jetty. */
    public ClientAlpn() {}

    @Override
    public boolean appliesTo(SSLEngine engine) {
        return engine instanceof BatchEngine;
    }

    @Override
    public void configure(SSLEngine engine, Connection connection) {
        ALPNClientConnection alpn = (ALPNClientConnection) connection;
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setApplicationProtocols(alpn.getProtocols().toArray(String[]::new));
        engine.setSSLParameters(parameters);
        SslConnection.SslEndPoint tls = (SslConnection.SslEndPoint) alpn.getEndPoint();
        tls.getSslConnection().addHandshakeListener(new SslHandshakeListener() {
            @Override
            public void handshakeSucceeded(Event event) {
                String chosen = engine.getApplicationProtocol();
                alpn.selected(chosen == null || chosen.isEmpty() ? null : chosen);
            }
        });
    }
}
