package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import javax.net.ssl.SSLContext;

import dormouse.SocketDifference.Case;
import dormouse.SocketLane.Event;
import dormouse.SocketLane.Kind;
import dormouse.SocketLane.Start;
import dormouse.SocketLane.State;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What sockets do after each event, beside the JDK's: {@code -Ddormouse.sequences}, {@code -Ddormouse.seed}. */
class SocketTableTest {
    private static final int SEQUENCES = Integer.getInteger("dormouse.sequences", 60);
    private static final int LENGTH_MAX = 4;
    private static final int SHOWN_MAX = 3;
    private static final int THREADS = 16;

    private final SSLContext ourContext = TestKeys.context(true, TestKeys.EC);
    private final SSLContext jdkContext = TestKeys.context(false, TestKeys.EC);
    private final Map<String, List<String>> unexplained = new TreeMap<>();
    private final EnumSet<SocketDifference> explained = EnumSet.noneOf(SocketDifference.class);

    SocketTableTest() throws Exception {}

    private static List<Start> starts() {
        List<Start> starts = new ArrayList<>();
        for (String version : List.of("TLSv1.2", "TLSv1.3")) {
            for (boolean isClient : new boolean[] {false, true}) {
                for (Kind kind : Kind.values()) {
                    for (State state : State.values()) {
                        Start start = new Start(isClient, version, kind, state);
                        if (start.exists()) {
                            starts.add(start);
                        }
                    }
                }
            }
        }
        return starts;
    }

    @Test
    void everyEvent() throws Exception {
        List<Callable<Void>> comparisons = new ArrayList<>();
        for (Start start : starts()) {
            for (Event event : Event.values()) {
                comparisons.add(() -> compare(start, List.of(event)));
            }
        }
        perform(comparisons);
        report("every event");
    }

    @Test
    void manySequences() throws Exception {
        long seed = Long.getLong("dormouse.seed", System.nanoTime());
        Random random = new Random(seed);
        List<Start> starts = starts();
        List<Callable<Void>> comparisons = new ArrayList<>();
        for (int i = 0; i < SEQUENCES; i++) {
            Start start = starts.get(random.nextInt(starts.size()));
            List<Event> events = new ArrayList<>();
            for (int length = 2 + random.nextInt(LENGTH_MAX - 1); events.size() < length; ) {
                Event event = Event.values()[random.nextInt(Event.values().length)];
                // Otherwise the peer's event and the handshake would race.
                if (!event.isOfPeer() || start.state() == State.ESTABLISHED) {
                    events.add(event);
                }
            }
            comparisons.add(() -> compare(start, events));
        }
        perform(comparisons);
        report("seed " + seed);
    }

    /** Each reason is still needed. */
    @ParameterizedTest
    @EnumSource(SocketDifference.class)
    void difference(SocketDifference difference) throws Exception {
        String[] words = difference.example.split(" ");
        compare(Start.parse(words), Arrays.stream(words).skip(4).map(Event::valueOf).toList());
        assertEquals(EnumSet.of(difference), explained, unexplained.toString());
    }

    /** At once, because sockets mostly wait. */
    private static void perform(List<Callable<Void>> comparisons) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            for (Future<Void> one : threads.invokeAll(comparisons)) {
                one.get();
            }
        } finally {
            threads.shutdown();
        }
    }

    private Void compare(Start start, List<Event> events) throws Exception {
        StringBuilder path = new StringBuilder(start.toString());
        try (SocketLane ours = new SocketLane(ourContext, jdkContext, start);
                SocketLane jdk = new SocketLane(jdkContext, jdkContext, start)) {
            for (Event event : events) {
                path.append(' ').append(event);
                String our = ours.happen(event);
                String their = jdk.happen(event);
                if (!our.equals(their)) {
                    note(new Case(start, event, path.toString(), our, their));
                    break;
                }
            }
        }
        return null;
    }

    private synchronized void note(Case one) {
        for (SocketDifference difference : SocketDifference.values()) {
            if (difference.explains(one)) {
                explained.add(difference);
                return;
            }
        }
        unexplained.computeIfAbsent(one.event() + ": " + one.ours() + "; the JDK: " + one.jdk(), key -> new ArrayList<>())
                .add(one.path());
    }

    private void report(String name) {
        StringBuilder report = new StringBuilder();
        unexplained.forEach((what, where) -> {
            report.append(where.size()).append(" x ").append(what).append('\n');
            where.stream().limit(SHOWN_MAX).forEach(one -> report.append("      ").append(one).append('\n'));
        });
        assertEquals("", report.toString(), name);
    }
}
