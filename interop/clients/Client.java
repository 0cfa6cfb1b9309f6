// Java's SSLSocket as a client. The command line and the answer are described in README.md.

import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public final class Client {
    private static final int PAUSE_AT = 1 << 20;
    private static final int BLOCK = 64 * 1024;
    private static final int[] MESSAGE_SIZES = {1, 5, 17, 100, 1400, 3000, 16384, 16385};

    private final Map<String, String> args;
    private final int total;
    private final int back;
    private final SSLContext context;
    private final Random random = new Random();
    private Socket tcp;
    private SSLSocket tls;
    private InputStream in;
    private OutputStream out;
    private long sent;
    private long received;
    private MessageDigest sentDigest;
    private MessageDigest receivedDigest;
    private String ended;
    private long firstSessionCreated = -1;
    private boolean resumed;

    private Client(Map<String, String> args) throws Exception {
        this.args = args;
        this.total = Integer.parseInt(args.getOrDefault("bytes", "0"));
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream file = new FileInputStream(args.get("ca"))) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        this.back = Integer.parseInt(args.getOrDefault("back", "0"));
        this.context = SSLContext.getInstance("TLS");
        this.context.init(null, trust.getTrustManagers(), null);
    }

    private void connect() throws Exception {
        String[] address = args.get("connect").split(":");
        tcp = new Socket();
        // Small buffers, so that unread data causes backpressure at the other end.
        tcp.setReceiveBufferSize(128 * 1024);
        tcp.setSendBufferSize(128 * 1024);
        tcp.setTcpNoDelay(true);
        tcp.setSoTimeout(60_000);
        tcp.connect(new InetSocketAddress(address[0], Integer.parseInt(address[1])), 20_000);
        String name = args.getOrDefault("name", "localhost");
        tls = (SSLSocket) context.getSocketFactory().createSocket(tcp, name, tcp.getPort(), false);
        SSLParameters parameters = tls.getSSLParameters();
        parameters.setProtocols(new String[] {"TLSv" + args.get("version")});
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setServerNames(java.util.List.of(new SNIHostName(name)));
        if (args.containsKey("alpn")) {
            parameters.setApplicationProtocols(args.get("alpn").split(","));
        }
        tls.setSSLParameters(parameters);
        tls.startHandshake();
        in = tls.getInputStream();
        out = tls.getOutputStream();
        sent = received = 0;
        sentDigest = MessageDigest.getInstance("SHA-256");
        receivedDigest = MessageDigest.getInstance("SHA-256");
        ended = "none";
        // A resumed session keeps the creation time of the first one.
        long created = tls.getSession().getCreationTime();
        resumed = created == firstSessionCreated;
        firstSessionCreated = created;
    }

    private void command(String line) throws IOException {
        out.write((line + "\n").getBytes());
        out.flush();
    }

    private void send(byte[] data, int length) throws IOException {
        out.write(data, 0, length);
        out.flush();
        sent += length;
        sentDigest.update(data, 0, length);
    }

    private void sendRandom(int count, boolean progress) throws IOException {
        byte[] data = new byte[BLOCK];
        while (sent < count) {
            random.nextBytes(data);
            send(data, (int) Math.min(BLOCK, count - sent));
            if (progress) {
                System.out.println("sent " + sent);
            }
        }
    }

    /** Returns how many bytes were received, or -1 when the other side has closed; `ended` then says how. */
    private int receive(byte[] into, int most) {
        int count = -1;
        try {
            count = in.read(into, 0, most);
            if (count < 0) {
                ended = "close_notify";
            }
        } catch (EOFException error) {
            ended = "truncated";
        } catch (SSLException error) {
            ended = error.getCause() instanceof EOFException ? "truncated" : endOf(error);
        } catch (IOException error) {
            ended = endOf(error);
        }
        if (count > 0) {
            received += count;
            receivedDigest.update(into, 0, count);
        }
        return count;
    }

    private static String endOf(IOException error) {
        Throwable cause = error.getCause() instanceof SocketException ? error.getCause() : error;
        return String.valueOf(cause.getMessage()).contains("reset") ? "reset" : "error: " + error.getMessage();
    }

    private byte[] receiveExactly(int count) throws IOException {
        byte[] data = new byte[count];
        byte[] part = new byte[count];
        for (int have = 0; have < count; ) {
            int n = receive(part, count - have);
            if (n < 0) {
                throw new IOException("the connection ended (" + ended + ") after " + have + " of " + count);
            }
            System.arraycopy(part, 0, data, have, n);
            have += n;
        }
        return data;
    }

    private void receiveToTheEnd() {
        byte[] into = new byte[BLOCK];
        while (receive(into, BLOCK) >= 0) {}
    }

    private void endSending() throws IOException {
        tls.shutdownOutput();
    }

    private void echo() throws IOException {
        command("echo");
        for (int turn = 0; sent < total; turn++) {
            byte[] message = new byte[MESSAGE_SIZES[turn % MESSAGE_SIZES.length]];
            random.nextBytes(message);
            send(message, message.length);
            if (!Arrays.equals(receiveExactly(message.length), message)) {
                throw new IOException("echo " + turn + " differs from what was sent");
            }
        }
        endSending();
        receiveToTheEnd();
    }

    private void run() throws Exception {
        switch (args.get("scenario")) {
            case "echo" -> echo();
            case "upload" -> {
                command("upload " + total + " pause");
                sendRandom(total, true);
                receiveExactly(65);
                endSending();
                receiveToTheEnd();
            }
            case "download" -> {
                command("download " + total);
                byte[] into = new byte[BLOCK];
                while (received < PAUSE_AT && receive(into, BLOCK) >= 0) {}
                System.out.println("paused " + received);
                System.in.read();
                receiveToTheEnd();
                endSending();
            }
            case "halfclose" -> {
                command("halfclose " + total);
                endSending();
                receiveToTheEnd();
            }
            case "backendfirst" -> {
                command("backendfirst " + total);
                receiveToTheEnd();
                sendRandom(back, false);
                endSending();
            }
            case "truncate" -> {
                command("sink");
                sendRandom(total, false);
                tcp.shutdownOutput();
                try {
                    while (tcp.getInputStream().read(new byte[BLOCK]) >= 0) {}
                    ended = "end";
                } catch (IOException error) {
                    ended = "reset";
                }
            }
            case "reset" -> {
                command("reset " + total);
                receiveExactly(total);
                send("got\n".getBytes(), 4);
                receiveToTheEnd();
            }
            case "resume" -> {
                echo();
                tls.close();
                tcp.close();
                Thread.sleep(20); // so that the creation times of two sessions must differ
                connect();
                echo();
            }
            default -> throw new IllegalArgumentException("unknown scenario " + args.get("scenario"));
        }
    }

    private String answer() {
        String alpn = tls.getApplicationProtocol();
        return String.format(
                "{\"version\":\"%s\",\"cipher\":\"%s\",\"group\":null,\"alpn\":%s,\"resumed\":%b,"
                        + "\"sent\":%d,\"sent_sha256\":\"%s\",\"received\":%d,\"received_sha256\":\"%s\",\"ended\":\"%s\"}",
                tls.getSession().getProtocol(), tls.getSession().getCipherSuite(),
                alpn == null || alpn.isEmpty() ? "null" : "\"" + alpn + "\"", resumed,
                sent, hex(sentDigest), received, hex(receivedDigest), ended.replace('"', '\''));
    }

    private static String hex(MessageDigest digest) {
        return HexFormat.of().formatHex(digest.digest());
    }

    public static void main(String[] argv) throws Exception {
        // A FIN without close_notify must be reported, not ignored.
        System.setProperty("com.sun.net.ssl.requireCloseNotify", "true");
        Map<String, String> args = new HashMap<>();
        for (int i = 0; i + 1 < argv.length; i += 2) {
            args.put(argv[i].substring(2), argv[i + 1]);
        }
        if (args.containsKey("group")) {
            System.setProperty("jdk.tls.namedGroups", args.get("group").equals("P-256") ? "secp256r1" : "x25519");
        }
        Client client = new Client(args);
        client.connect();
        client.run();
        System.out.println(client.answer());
        System.exit(0);
    }
}
