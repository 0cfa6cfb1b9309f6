package dormouse;

/**
 * What sockets intentionally do differently from the JDK's, and why. {@code bindings/java/differences} prints it for the
 * documentation.
 */
enum SocketDifference {
    A_TRUNCATED_RECORD(
            "TLSv1.3 client OWN ESTABLISHED PEER_SENDS_PART PEER_CUTS READ",
            "An end within a record is an error: data is missing. The JDK takes it for the end of the data.") {
        @Override
        boolean explains(Case one) {
            return one.path().contains("PEER_SENDS_PART") && one.ours().startsWith("SSLException")
                    && one.jdk().startsWith("read ");
        }
    },
    NOT_A_RECORD(
            "TLSv1.3 client OWN ESTABLISHED PEER_SENDS_HTTP READ",
            "Bytes that are no record are an error at once. The JDK waits for as many as they seem to announce.") {
        @Override
        boolean explains(Case one) {
            return one.path().contains("PEER_SENDS_HTTP") && one.ours().startsWith("SSLException");
        }
    },
    A_CLOSE_IN_TLS13(
            "TLSv1.3 server OWN ESTABLISHED PEER_CLOSES READ",
            "After the peer's close_notify the socket can still send. The JDK's close() announces itself with the alert"
                    + " user_canceled, after which its sockets end both directions.") {
        @Override
        boolean explains(Case one) {
            return one.start().version().equals("TLSv1.3") && one.path().contains("PEER_CLOSES")
                    && one.jdk().equals(one.ours() + " output-shut");
        }
    },
    SHUTDOWN_OF_A_LOST_CONNECTION(
            "TLSv1.3 client OWN ESTABLISHED PEER_RESETS SHUT_OUTPUT",
            "shutdownOutput() fails if the peer has closed or reset the TCP connection.") {
        @Override
        boolean explains(Case one) {
            return one.event() == SocketLane.Event.SHUT_OUTPUT && one.ours().startsWith("SocketException")
                    && (one.path().contains("PEER_RESETS") || one.path().contains("PEER_CUTS")
                            || one.path().contains("PEER_CLOSES"));
        }
    },
    SHUTDOWN_AFTER_CLOSE(
            "TLSv1.2 server OWN ESTABLISHED CLOSE SHUT_INPUT",
            "shutdownInput() of a closed socket does nothing. The JDK's throws in TLS 1.2.") {
        @Override
        boolean explains(Case one) {
            return one.event() == SocketLane.Event.SHUT_INPUT && one.path().contains(" CLOSE ")
                    && one.jdk().equals("SocketException" + one.ours());
        }
    },
    AN_END_BEFORE_THE_HANDSHAKE(
            "TLSv1.3 server OVER_LENT CONNECTED SHUT_OUTPUT",
            "Without its half of the handshake nothing can arrive: shutdownOutput() ends both directions.") {
        @Override
        boolean explains(Case one) {
            return one.start().state() == SocketLane.State.CONNECTED && one.path().contains(" SHUT_OUTPUT");
        }
    },
    RENEGOTIATION(
            "TLSv1.2 server OWN ESTABLISHED START_HANDSHAKE",
            "Renegotiation is not supported (RFC 9325 section 3.5); the connection can still be used.") {
        @Override
        boolean explains(Case one) {
            return one.event() == SocketLane.Event.START_HANDSHAKE && one.start().version().equals("TLSv1.2")
                    && one.ours().equals("SSLException")
                    // The JDK notices a reset as it asks for the new handshake; here nothing is sent.
                    && (one.jdk().equals("established") || one.path().contains(" PEER_RESETS "));
        }
    };

    /** Both sockets' answers to an event. */
    record Case(SocketLane.Start start, SocketLane.Event event, String path, String ours, String jdk) {}

    /** A socket and events that show it. */
    final String example;
    final String reason;

    SocketDifference(String example, String reason) {
        this.example = example;
        this.reason = reason;
    }

    abstract boolean explains(Case one);
}
