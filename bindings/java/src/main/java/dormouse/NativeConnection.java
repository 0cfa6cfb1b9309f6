package dormouse;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;

/**
 * Owns an engine's native connection: its secrets are wiped when the engine ends, or else when nothing refers to
 * the engine any more.
 *
 * <p>The secrets lie outside Java's heap, where the collector would leave copies and a heap dump would show them.
 * This is one object rather than a {@code Cleaner}'s two, since each connection has one.
 */
final class NativeConnection extends PhantomReference<DormouseEngine> {
    private static final ReferenceQueue<DormouseEngine> FORGOTTEN = new ReferenceQueue<>();
    /** How long the thread outlives the last connection: less would start it for every connection of some clients. */
    private static final long LINGER_MS = 5_000;
    /** All connections, so that the references themselves stay reachable. */
    private static NativeConnection first;
    /** Whether the thread runs that frees forgotten connections. */
    private static boolean isWatched;

    private long handle;
    private NativeConnection next;
    private NativeConnection previous;

    NativeConnection(DormouseEngine engine, long handle) {
        super(engine, FORGOTTEN);
        this.handle = handle;
        synchronized (NativeConnection.class) {
            next = first;
            if (first != null) {
                first.previous = this;
            }
            first = this;
            if (!isWatched) {
                isWatched = true;
                watch();
            }
        }
    }

    /** The caller locks the engine. */
    long handle() {
        return handle;
    }

    void free() {
        long freed;
        synchronized (NativeConnection.class) {
            freed = handle;
            if (freed == 0) {
                return;
            }
            handle = 0;
            if (next != null) {
                next.previous = previous;
            }
            if (previous != null) {
                previous.next = next;
            } else {
                first = next;
            }
            next = previous = null;
        }
        clear();
        Native.freeConnection(freed);
    }

    /** The connections of this process. */
    static synchronized int count() {
        int count = 0;
        for (NativeConnection one = first; one != null; one = one.next) {
            count++;
        }
        return count;
    }

    /**
     * Starts the thread that frees forgotten connections. It ends when there are none left, because it keeps the class
     * loader of this class, and no other one.
     */
    private static void watch() {
        Thread thread = new Thread(null, NativeConnection::freeForgotten, "dormouse-forgotten", 0, false);
        thread.setContextClassLoader(null);
        thread.setDaemon(true);
        thread.start();
    }

    private static void freeForgotten() {
        while (true) {
            try {
                NativeConnection forgotten = (NativeConnection) FORGOTTEN.remove(LINGER_MS);
                if (forgotten != null) {
                    forgotten.free();
                    continue;
                }
            } catch (InterruptedException ignored) {
                // No code interrupts this thread on purpose.
                continue;
            }
            synchronized (NativeConnection.class) {
                if (first == null) {
                    isWatched = false;
                    return;
                }
            }
        }
    }
}
