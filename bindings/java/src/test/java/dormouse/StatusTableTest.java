package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;

import dormouse.StatusDifference.Case;
import dormouse.StatusLane.Answer;
import dormouse.StatusLane.Event;
import dormouse.StatusLane.State;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Every answer to every event in every state beside the JDK's; {@code bindings/target/java/statuses.md} is the table.
 * {@code -Ddormouse.sequences=50000} for a longer run, {@code -Ddormouse.seed} repeats one.
 */
class StatusTableTest {
    private static final int SEQUENCES = Integer.getInteger("dormouse.sequences", 500);
    private static final int LENGTH_MAX = 8;
    /** A few of each are enough to find a fault. */
    private static final int SHOWN_MAX = 3;
    private static final String RESUMED = "resumed";

    private final SSLContext ourContext = TestKeys.context(true, TestKeys.EC);
    private final SSLContext jdkContext = TestKeys.context(false, TestKeys.EC);
    private int lanes;
    private final Map<String, List<String>> unexplained = new TreeMap<>();
    private final StringBuilder table = new StringBuilder("| before | event | answer | the JDK's |\n|---|---|---|---|\n");
    private final EnumSet<StatusDifference> explained = EnumSet.noneOf(StatusDifference.class);

    StatusTableTest() throws Exception {}

    /** A version, a side, and the state of a first connection or of one that resumes its session. */
    private record Start(boolean isClient, String version, boolean resumes, State state) {
        static List<Start> all() {
            List<Start> all = new ArrayList<>();
            for (State state : State.values()) {
                for (String version : List.of("TLSv1.2", "TLSv1.3")) {
                    for (boolean isClient : new boolean[] {false, true}) {
                        if (state.exists(isClient, version)) {
                            all.add(new Start(isClient, version, false, state));
                            all.add(new Start(isClient, version, true, state));
                        }
                    }
                }
            }
            return all;
        }

        /** Takes its words off the queue. */
        static Start parse(Deque<String> words) {
            String version = words.remove();
            boolean isClient = words.remove().equals("client");
            boolean resumes = words.peek().equals(RESUMED) && words.remove() != null;
            return new Start(isClient, version, resumes, State.valueOf(words.remove()));
        }

        @Override
        public String toString() {
            return version + " " + (isClient ? "client " : "server ") + (resumes ? RESUMED + " " : "") + state;
        }
    }

    @Test
    void everyEvent() throws Exception {
        for (Start start : Start.all()) {
            for (Event event : Event.values()) {
                Case compared = compare(start, List.of(event));
                table.append("| ").append(start).append(" | ").append(event).append(" | ").append(compared.ours())
                        .append(" | ").append(compared.isEqual() ? "the same" : compared.jdk()).append(" |\n");
                if (start.state == State.ESTABLISHED) {
                    for (Event next : Event.values()) {
                        compare(start, List.of(event, next));
                    }
                }
            }
        }
        report("every event");
        Files.writeString(Path.of("..", "target", "java", "statuses.md"), table);
    }

    @Test
    void manySequences() throws Exception {
        long seed = Long.getLong("dormouse.seed", System.nanoTime());
        Random random = new Random(seed);
        List<Start> starts = Start.all();
        for (int i = 0; i < SEQUENCES; i++) {
            List<Event> events = new ArrayList<>();
            for (int length = 2 + random.nextInt(LENGTH_MAX - 1); events.size() < length; ) {
                events.add(Event.values()[random.nextInt(Event.values().length)]);
            }
            compare(starts.get(random.nextInt(starts.size())), events);
        }
        report("seed " + seed);
    }

    private void report(String name) {
        StringBuilder report = new StringBuilder();
        unexplained.forEach((what, where) -> {
            report.append(where.size()).append(" x ").append(what).append('\n');
            where.stream().limit(SHOWN_MAX).forEach(one -> report.append("      ").append(one).append('\n'));
        });
        assertEquals("", report.toString(), name);
    }

    /** Each reason is still needed. */
    @ParameterizedTest
    @EnumSource(StatusDifference.class)
    void difference(StatusDifference difference) throws Exception {
        Deque<String> words = new ArrayDeque<>(List.of(difference.example.split(" ")));
        Start start = Start.parse(words);
        compare(start, words.stream().map(Event::valueOf).toList());
        assertEquals(EnumSet.of(difference), explained, unexplained.toString());
    }

    /** Makes the events happen to both engines until their answers differ. Returns the last answers. */
    private Case compare(Start start, List<Event> events) throws Exception {
        StatusLane ours = lane(ourContext, start);
        StatusLane jdk = lane(jdkContext, start);
        boolean isEstablished = start.state.ordinal() >= State.TICKET_ARRIVED.ordinal();
        Case last = null;
        Answer before = ours.answer("");
        StringBuilder path = new StringBuilder(start.toString());
        for (Event event : events) {
            path.append(' ').append(event);
            Answer our = ours.answer(ours.happen(event));
            Answer their = jdk.answer(jdk.happen(event));
            last = new Case(start.isClient, start.version, isEstablished, event, before, our, their);
            if (!last.isEqual()) {
                note(last, path.toString());
                break;
            }
            isEstablished |= our.result().contains("FINISHED");
            before = our;
        }
        assertNull(ours.endlessAnswer(), path.toString());
        return last;
    }

    private void note(Case one, String path) {
        for (StatusDifference difference : StatusDifference.values()) {
            if (difference.explains(one)) {
                explained.add(difference);
                return;
            }
        }
        String what = one.event() + ": " + one.ours() + "; the JDK: " + one.jdk();
        unexplained.computeIfAbsent(what, key -> new ArrayList<>()).add(path + "; before: " + one.before());
    }

    private StatusLane lane(SSLContext context, Start start) throws SSLException {
        // A client offers a session to the server of the same name only, and each lane has its own.
        String host = "lane" + lanes++ + ".test";
        if (start.resumes) {
            lane(context, start, host).reach(State.ESTABLISHED, start.isClient);
        }
        StatusLane lane = lane(context, start, host);
        lane.reach(start.state, start.isClient);
        return lane;
    }

    private StatusLane lane(SSLContext context, Start start, String host) {
        SSLEngine subject = context.createSSLEngine(host, 443);
        SSLEngine peer = jdkContext.createSSLEngine(host, 443);
        subject.setEnabledProtocols(new String[] {start.version});
        peer.setEnabledProtocols(new String[] {start.version});
        return new StatusLane(subject, peer);
    }
}
