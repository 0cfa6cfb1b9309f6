package dormouse;

import java.util.LinkedHashMap;
import java.util.Map;

/** A cache that evicts the least recently used entry. Any thread may use it. */
final class Lru<K, V> {
    private final Map<K, V> entries;

    Lru(int max) {
        entries = new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
                return size() > max;
            }
        };
    }

    synchronized V get(K key) {
        return entries.get(key);
    }

    synchronized void put(K key, V value) {
        entries.put(key, value);
    }

    /** Returns the cached object that equals this one; if there is none, caches this one. */
    static <T> T canonical(Lru<T, T> cache, T object) {
        synchronized (cache) {
            T known = cache.get(object);
            if (known != null) {
                return known;
            }
            cache.put(object, object);
            return object;
        }
    }
}
