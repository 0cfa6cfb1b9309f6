package dormouse;

import javax.net.ssl.SSLEngineResult.HandshakeStatus;

import dormouse.StatusLane.Answer;
import dormouse.StatusLane.Event;

/**
 * The answers in which the engine intentionally differs from the JDK's, and why. {@code bindings/java/differences} prints
 * them for the documentation.
 */
enum StatusDifference {
    REFUSES_FOREIGN_BYTES_AT_ONCE(
            "TLSv1.3 server ESTABLISHED UNWRAP_PLAIN_HTTP",
            "Bytes that can't be a record are refused at once. The JDK waits for as many as they seem to announce.") {
        @Override
        boolean explains(Case one) {
            return one.event == Event.UNWRAP_PLAIN_HTTP && one.jdk.result().startsWith("BUFFER_UNDERFLOW");
        }
    },
    NO_ALERT_FOR_A_FOREIGN_SERVER(
            "TLSv1.3 client HELLO_SENT UNWRAP_PLAIN_HTTP",
            "A client sends no alert to a server that does not speak TLS.") {
        @Override
        boolean explains(Case one) {
            return one.event == Event.UNWRAP_PLAIN_HTTP && one.isClient && one.before.isHandshaking()
                    && one.ours.result().equals(one.jdk.result()) && one.jdk.status() == HandshakeStatus.NEED_WRAP;
        }
    },
    NO_RENEGOTIATION(
            "TLSv1.2 client ESTABLISHED BEGIN_HANDSHAKE",
            "TLS 1.2 is not renegotiated (RFC 9325 section 3.5). A peer's request gets a warning.") {
        @Override
        boolean explains(Case one) {
            boolean isRequest = one.isUnwrap() && one.jdk.result().equals("OK/NEED_TASK consumed")
                    && one.ours.result().startsWith("OK/");
            return !one.isTls13() && one.isEstablished()
                    && (isRequest || one.event == Event.BEGIN_HANDSHAKE && one.ours.result().equals("SSLException"));
        }
    },
    A_REFUSED_CALL_CHANGES_NOTHING(
            "TLSv1.3 client ESTABLISHED CLOSE_OUTBOUND BEGIN_HANDSHAKE",
            "beginHandshake() after an end is refused. The JDK then ends both directions, with an alert.") {
        @Override
        boolean explains(Case one) {
            boolean isRefusal = one.event == Event.BEGIN_HANDSHAKE && one.ours.result().equals("SSLException")
                    && one.jdk.result().equals("SSLException");
            boolean isItsAlert = one.isWrap() && one.jdk.result().equals(one.ours.result() + " produced");
            return isRefusal || isItsAlert;
        }
    },
    A_CLOSE_WAITS_FOR_THE_TASK(
            "TLSv1.3 client TASK_TAKEN CLOSE_OUTBOUND",
            "While a delegated task runs, only the task uses the connection.") {
        @Override
        boolean explains(Case one) {
            return one.ours.status() == HandshakeStatus.NEED_TASK && one.event == Event.CLOSE_OUTBOUND;
        }
    },
    AN_END_BEFORE_THE_HANDSHAKE_ENDS_BOTH_DIRECTIONS(
            "TLSv1.3 client HELLO_SENT CLOSE_OUTBOUND",
            "closeOutbound() before the end of the handshake ends both directions and sends no alert: no data can come"
                    + " any more, and the peer sees the transport's end. The JDK sends user_canceled and close_notify.") {
        @Override
        boolean explains(Case one) {
            return one.event == Event.CLOSE_OUTBOUND && !one.isEstablished();
        }
    },
    NO_HANDSHAKE_WITHOUT_THE_PEER(
            "TLSv1.3 client HELLO_SENT CLOSE_INBOUND WRAP",
            "After closeInbound() a handshake can't end. The next wrap returns CLOSED, and the engine is done. The JDK's"
                    + " asks for wraps for ever, and seals data without a key.") {
        @Override
        boolean explains(Case one) {
            return one.before.isInboundDone() && one.ours.result().equals("CLOSED/NOT_HANDSHAKING")
                    && one.ours.isOutboundDone() && !one.jdk.isOutboundDone();
        }
    },
    RECORDS_OF_A_HANDSHAKE_ARE_WRAPPED_TOGETHER(
            "TLSv1.3 server ANSWER_WAITS WRAP",
            "A wrap moves all records of a handshake for which there is room, and needs no more room than they take. The"
                    + " JDK's moves one, and wants room for the largest.") {
        @Override
        boolean explains(Case one) {
            boolean jdkHasMore = one.jdk.status() == HandshakeStatus.NEED_WRAP;
            return one.isWrap() && one.before.status() == HandshakeStatus.NEED_WRAP && one.ours.result().contains("produced")
                    && jdkHasMore;
        }
    },
    MESSAGES_OF_A_HANDSHAKE_ARE_HANDLED_IN_OTHER_STEPS(
            "TLSv1.2 server ANSWER_SENT PEER_TURN UNWRAP",
            "During a handshake tasks and answers come in another order: a client sends change_cipher_spec with its"
                    + " Finished, and a task handles a record rather than a message.") {
        @Override
        boolean explains(Case one) {
            boolean isOurAnswerUnread = one.before.status() == HandshakeStatus.NEED_WRAP
                    && one.jdk.result().equals("OK/NEED_WRAP");
            boolean isFaultForTask = one.before.isHandshaking() && one.ours.result().equals("SSLHandshakeException")
                    && one.jdk.result().equals("OK/NEED_TASK consumed");
            return (isOurAnswerUnread || isFaultForTask) && one.isUnwrap()
                    || one.before.isHandshaking() && one.ours.isHandshaking() && one.jdk.isHandshaking()
                            && !one.ours.result().endsWith("Exception") && !one.jdk.result().endsWith("Exception");
        }
    },
    THE_CLASS_OF_A_FAILED_HANDSHAKE(
            "TLSv1.3 server ANSWER_SENT PEER_TURN UNWRAP_FORGED",
            "The engine can find another fault than the JDK's in the same bytes, and throw another subclass of"
                    + " SSLException. Nearly every failure of a handshake is an SSLHandshakeException.") {
        @Override
        boolean explains(Case one) {
            return one.isUnwrap() && !one.isEstablished && one.ours.result().matches("SSL(Handshake)?Exception")
                    && one.jdk.result().matches("SSL(Protocol)?Exception")
                    && one.ours.status() == one.jdk.status();
        }
    },
    AN_UNPROTECTED_ALERT_DURING_THE_HANDSHAKE(
            "TLSv1.3 server ANSWER_SENT PEER_CLOSES UNWRAP",
            "A server of TLS 1.3 reads the alert of a client that has no keys yet. The JDK's refuses it.") {
        @Override
        boolean explains(Case one) {
            return one.isUnwrap() && one.isTls13() && !one.isClient && !one.isEstablished
                    && one.jdk.result().matches("SSL(Handshake|Protocol)Exception");
        }
    },
    AN_UNKNOWN_WARNING_DURING_THE_HANDSHAKE(
            "TLSv1.2 client HELLO_SENT PEER_CLOSES UNWRAP_FORGED",
            "A warning that no RFC has is ignored. The JDK ends the handshake.") {
        @Override
        boolean explains(Case one) {
            return one.event == Event.UNWRAP_FORGED && !one.isEstablished && one.ours.result().startsWith("OK")
                    && one.jdk.result().equals("SSLProtocolException");
        }
    },
    A_PEER_THAT_GIVES_UP(
            "TLSv1.3 client HELLO_SENT PEER_CLOSES UNWRAP UNWRAP",
            "A close_notify before the end of the handshake is a failure, also after user_canceled. The JDK then returns"
                    + " CLOSED.") {
        @Override
        boolean explains(Case one) {
            return one.isUnwrap() && !one.isEstablished && one.ours.result().equals("SSLHandshakeException")
                    && one.jdk.result().startsWith("CLOSED");
        }
    },
    A_DIRECTION_ENDS_ALONE(
            "TLSv1.3 client ANSWER_WAITS PEER_CLOSES WRAP UNWRAP UNWRAP",
            "close_notify after user_canceled ends the peer's direction, like any close_notify of TLS 1.3. The JDK's engine"
                    + " then ends its own, too.") {
        @Override
        boolean explains(Case one) {
            return one.isUnwrap() && one.isTls13() && one.ours.result().equals("CLOSED/NOT_HANDSHAKING consumed")
                    && one.jdk.result().equals("CLOSED/NEED_WRAP consumed");
        }
    },
    NEW_KEYS_OF_ONE_DIRECTION(
            "TLSv1.3 server ESTABLISHED BEGIN_HANDSHAKE WRAP PEER_TURN UNWRAP",
            "beginHandshake() replaces the keys of this direction. The JDK asks the peer to replace its own, too, so"
                    + " there is an answer.") {
        @Override
        boolean explains(Case one) {
            return one.isUnwrap() && one.isTls13() && one.isEstablished
                    && one.ours.result().startsWith("BUFFER_UNDERFLOW");
        }
    },
    FINISHED_ONCE(
            "TLSv1.3 client TICKET_ARRIVED UNWRAP",
            "FINISHED is for handshakes, and for new keys that this side has asked for. The JDK reports it for tickets and"
                    + " for the answer to a peer's KeyUpdate, too.") {
        @Override
        boolean explains(Case one) {
            return one.isTls13() && one.isEstablished() && one.jdk.result().contains("FINISHED")
                    && one.ours.result().equals(one.jdk.result().replace("FINISHED", one.ours.status().name()));
        }
    };

    /** Both engines' answers to an event. {@code before}: the answer to the previous event. */
    record Case(
            boolean isClient, String version, boolean isEstablished, Event event, Answer before, Answer ours,
            Answer jdk) {
        boolean isEqual() {
            return ours.equals(jdk);
        }

        boolean isTls13() {
            return version.equals("TLSv1.3");
        }

        boolean isWrap() {
            return event.name().startsWith("WRAP");
        }

        boolean isUnwrap() {
            return event.name().startsWith("UNWRAP");
        }
    }

    /** A state and events that show it. */
    final String example;
    final String reason;

    StatusDifference(String example, String reason) {
        this.example = example;
        this.reason = reason;
    }

    abstract boolean explains(Case one);
}
