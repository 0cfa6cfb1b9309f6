package dormouse;

import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;

/** The versions of TLS, oldest first. */
enum Protocol {
    TLS12("TLSv1.2"),
    TLS13("TLSv1.3");

    static final Set<Protocol> ALL = Collections.unmodifiableSet(EnumSet.allOf(Protocol.class));

    final String text;

    Protocol(String text) {
        this.text = text;
    }

    /** The names, newest first, as the JDK lists them. */
    static String[] names(Set<Protocol> protocols) {
        return Arrays.stream(values())
                .filter(protocols::contains)
                .sorted(Collections.reverseOrder())
                .map(one -> one.text)
                .toArray(String[]::new);
    }

    static Set<Protocol> parse(String[] names) {
        EnumSet<Protocol> found = EnumSet.noneOf(Protocol.class);
        for (String name : names) {
            found.add(Arrays.stream(values())
                    .filter(one -> one.text.equals(name))
                    .findFirst()
                    .orElseThrow(() -> new IllegalArgumentException(
                            "the protocol " + name + " is not supported; supported are TLSv1.3 and TLSv1.2")));
        }
        return Collections.unmodifiableSet(found);
    }
}
