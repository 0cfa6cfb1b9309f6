package dormouse;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.SocketOption;
import java.nio.channels.SocketChannel;
import java.util.Set;

import javax.net.ssl.SSLSocket;

/** The part of an {@code SSLSocket} that is not TLS: addresses and options of the TCP socket below it. */
abstract class SocketDelegate extends SSLSocket {
    final Socket below;

    SocketDelegate(Socket below) {
        this.below = below;
    }

    @Override
    public SocketChannel getChannel() {
        return below.getChannel();
    }

    @Override
    public boolean isConnected() {
        return below.isConnected();
    }

    @Override
    public boolean isBound() {
        return below.isBound();
    }

    @Override
    public InetAddress getInetAddress() {
        return below.getInetAddress();
    }

    @Override
    public InetAddress getLocalAddress() {
        return below.getLocalAddress();
    }

    @Override
    public int getPort() {
        return below.getPort();
    }

    @Override
    public int getLocalPort() {
        return below.getLocalPort();
    }

    @Override
    public SocketAddress getRemoteSocketAddress() {
        return below.getRemoteSocketAddress();
    }

    @Override
    public SocketAddress getLocalSocketAddress() {
        return below.getLocalSocketAddress();
    }

    @Override
    public void setTcpNoDelay(boolean on) throws SocketException {
        below.setTcpNoDelay(on);
    }

    @Override
    public boolean getTcpNoDelay() throws SocketException {
        return below.getTcpNoDelay();
    }

    @Override
    public void setSoLinger(boolean on, int seconds) throws SocketException {
        below.setSoLinger(on, seconds);
    }

    @Override
    public int getSoLinger() throws SocketException {
        return below.getSoLinger();
    }

    @Override
    public void sendUrgentData(int data) throws SocketException {
        throw noUrgentData();
    }

    @Override
    public void setOOBInline(boolean on) throws SocketException {
        throw noUrgentData();
    }

    @Override
    public boolean getOOBInline() throws SocketException {
        throw noUrgentData();
    }

    private static SocketException noUrgentData() {
        return new SocketException("TLS has no urgent data");
    }

    @Override
    public void setSoTimeout(int timeout) throws SocketException {
        below.setSoTimeout(timeout);
    }

    @Override
    public int getSoTimeout() throws SocketException {
        return below.getSoTimeout();
    }

    @Override
    public void setSendBufferSize(int size) throws SocketException {
        below.setSendBufferSize(size);
    }

    @Override
    public int getSendBufferSize() throws SocketException {
        return below.getSendBufferSize();
    }

    @Override
    public void setReceiveBufferSize(int size) throws SocketException {
        below.setReceiveBufferSize(size);
    }

    @Override
    public int getReceiveBufferSize() throws SocketException {
        return below.getReceiveBufferSize();
    }

    @Override
    public void setKeepAlive(boolean on) throws SocketException {
        below.setKeepAlive(on);
    }

    @Override
    public boolean getKeepAlive() throws SocketException {
        return below.getKeepAlive();
    }

    @Override
    public void setTrafficClass(int trafficClass) throws SocketException {
        below.setTrafficClass(trafficClass);
    }

    @Override
    public int getTrafficClass() throws SocketException {
        return below.getTrafficClass();
    }

    @Override
    public void setReuseAddress(boolean on) throws SocketException {
        below.setReuseAddress(on);
    }

    @Override
    public boolean getReuseAddress() throws SocketException {
        return below.getReuseAddress();
    }

    @Override
    public void setPerformancePreferences(int connectionTime, int latency, int bandwidth) {
        below.setPerformancePreferences(connectionTime, latency, bandwidth);
    }

    @Override
    public <T> Socket setOption(SocketOption<T> name, T value) throws IOException {
        below.setOption(name, value);
        return this;
    }

    @Override
    public <T> T getOption(SocketOption<T> name) throws IOException {
        return below.getOption(name);
    }

    @Override
    public Set<SocketOption<?>> supportedOptions() {
        return below.supportedOptions();
    }
}
