package dormouse.jetty;

import dormouse.BatchEngine;

import javax.net.ssl.SSLEngine;

import org.eclipse.jetty.alpn.server.ALPNServerConnection;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.ssl.ALPNProcessor;
import org.eclipse.jetty.io.ssl.SslConnection;
import org.eclipse.jetty.io.ssl.SslHandshakeListener;

/** Lets Jetty's server choose the application protocol. Jetty's own processor serves only the JDK's engines. */
public final class ServerAlpn implements ALPNProcessor.Server {
    /** For Jetty. */
    public ServerAlpn() {}

    @Override
    public boolean appliesTo(SSLEngine engine) {
        return engine instanceof BatchEngine;
    }

    @Override
    public void configure(SSLEngine engine, Connection connection) {
        ALPNServerConnection alpn = (ALPNServerConnection) connection;
        engine.setHandshakeApplicationProtocolSelector((ofConnection, offered) -> {
            alpn.select(offered);
            return alpn.getProtocol();
        });
        SslConnection.SslEndPoint tls = (SslConnection.SslEndPoint) alpn.getEndPoint();
        tls.getSslConnection().addHandshakeListener(new SslHandshakeListener() {
            @Override
            public void handshakeSucceeded(Event event) {
                if (alpn.getProtocol() == null) {
                    // The client offers none.
                    alpn.unsupported();
                }
            }
        });
    }
}
