package dormouse;

import java.security.Provider;
import java.util.Set;

/**
 * The provider {@code Dormouse}: {@code SSLContext} for {@code TLS}, {@code TLSv1.3} and {@code TLSv1.2}.
 *
 * <p>Keys and trust come from the managers that {@code SSLContext.init} gets, as with the JDK's provider. The JDK's
 * factories for key and trust managers work unchanged.
 */
public final class DormouseProvider extends Provider {
    private static final long serialVersionUID = 1;

    /** The provider's name. */
    public static final String NAME = "Dormouse";

    /**
     * Loads the native library.
     *
     * @throws UnsatisfiedLinkError if there is none for this platform, or it can't be loaded
     */
    public DormouseProvider() {
        super(NAME, "0.1.0", "TLS whose quiet connections are 128 bytes");
        NativeLibrary.load();
        putService(new ContextService(this, "TLS", Protocol.ALL));
        putService(new ContextService(this, "TLSv1.3", Protocol.ALL));
        putService(new ContextService(this, "TLSv1.2", Set.of(Protocol.TLS12)));
    }

    /** Creates contexts whose engines have these protocols enabled by default. */
    private static final class ContextService extends Service {
        private final Set<Protocol> protocols;

        ContextService(Provider provider, String algorithm, Set<Protocol> protocols) {
            super(provider, "SSLContext", algorithm, ContextSpi.class.getName(), null, null);
            this.protocols = protocols;
        }

        @Override
        public Object newInstance(Object parameter) {
            return new ContextSpi(protocols);
        }
    }
}
