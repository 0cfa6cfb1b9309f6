package dormouse;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;

import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocket;

/** Accepts connections, whose sockets get its settings. */
final class DormouseServerSocket extends SSLServerSocket {
    private final ContextSpi context;
    /** An engine without a connection, which has the settings. */
    private final SocketEngine settings;

    DormouseServerSocket(ContextSpi context) throws IOException {
        this.context = context;
        settings = settings(context);
    }

    DormouseServerSocket(ContextSpi context, int port, int backlog, InetAddress address) throws IOException {
        super(port, backlog, address);
        this.context = context;
        settings = settings(context);
    }

    private static SocketEngine settings(ContextSpi context) {
        SocketEngine settings = new SocketEngine(context, null);
        settings.setUseClientMode(false);
        return settings;
    }

    @Override
    public Socket accept() throws IOException {
        Socket accepted = new Socket();
        implAccept(accepted);
        return new DormouseSocket(context, accepted, settings);
    }

    @Override
    public String[] getSupportedCipherSuites() {
        return settings.getSupportedCipherSuites();
    }

    @Override
    public String[] getEnabledCipherSuites() {
        return settings.getEnabledCipherSuites();
    }

    @Override
    public void setEnabledCipherSuites(String[] suites) {
        settings.setEnabledCipherSuites(suites);
    }

    @Override
    public String[] getSupportedProtocols() {
        return settings.getSupportedProtocols();
    }

    @Override
    public String[] getEnabledProtocols() {
        return settings.getEnabledProtocols();
    }

    @Override
    public void setEnabledProtocols(String[] protocols) {
        settings.setEnabledProtocols(protocols);
    }

    @Override
    public void setNeedClientAuth(boolean need) {
        settings.setNeedClientAuth(need);
    }

    @Override
    public boolean getNeedClientAuth() {
        return settings.getNeedClientAuth();
    }

    @Override
    public void setWantClientAuth(boolean want) {
        settings.setWantClientAuth(want);
    }

    @Override
    public boolean getWantClientAuth() {
        return settings.getWantClientAuth();
    }

    @Override
    public void setUseClientMode(boolean mode) {
        settings.setUseClientMode(mode);
    }

    @Override
    public boolean getUseClientMode() {
        return settings.getUseClientMode();
    }

    @Override
    public void setEnableSessionCreation(boolean allowed) {
        settings.setEnableSessionCreation(allowed);
    }

    @Override
    public boolean getEnableSessionCreation() {
        return settings.getEnableSessionCreation();
    }

    @Override
    public SSLParameters getSSLParameters() {
        return settings.getSSLParameters();
    }

    @Override
    public void setSSLParameters(SSLParameters parameters) {
        settings.setSSLParameters(parameters);
    }

    @Override
    public String toString() {
        return "DormouseServerSocket(" + getLocalSocketAddress() + ")";
    }
}
