package dormouse;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import javax.net.ssl.SSLException;

/**
 * The engine's contexts of one {@code SSLContext}: one for each combination of settings that its connections use,
 * prepared for the first handshake that needs it.
 */
final class Contexts {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int CACHED_MAX = 64;

    private final PeerTrust trust;
    private final Lru<ServerKey, Context> servers = new Lru<>(CACHED_MAX);
    private final Lru<ClientKey, Context> clients = new Lru<>(CACHED_MAX);

    /** A context of the engine. */
    static final class Context {
        final long handle;

        private Context(long handle, Runnable free) {
            this.handle = handle;
            CLEANER.register(this, free);
        }
    }

    // No component has a class of this package: see EngineSettings.

    private record ServerKey(
            List<Identities.Identity> identities, int protocols, int suites, int clientCertificates,
            int ticketLifetimeS) {}

    /** Includes whether and how names are checked, because a resumed session is not checked again. */
    private record ClientKey(
            Object identity, int protocols, int suites, List<String> alpn, String endpointIdentification,
            int sessionsMax) {}

    Contexts(PeerTrust trust) {
        this.trust = trust;
    }

    Context server(List<Identities.Identity> identities, EngineSettings settings, SessionContext sessions)
            throws SSLException {
        ServerKey key = new ServerKey(identities, settings.protocolBits(), settings.suiteBits(),
                settings.clientCertificates().ordinal(), sessions.ticketLifetimeS());
        Context known = servers.get(key);
        if (known == null) {
            long[] handles = identities.stream().mapToLong(one -> one.handle).toArray();
            boolean asks = settings.clientCertificates() != EngineSettings.ClientCertificates.NONE;
            long handle = Native.serverContext(handles, key.protocols, key.suites, key.clientCertificates,
                    asks ? trust.authorities() : null, key.ticketLifetimeS);
            Reference.reachabilityFence(identities);
            known = new Context(handle, () -> Native.freeServerContext(handle));
            servers.put(key, known);
        }
        return known;
    }

    /** {@code resumes}: whether the server is known by name, so that its sessions can be resumed. */
    Context client(Identities.Identity identity, EngineSettings settings, SessionContext sessions, boolean resumes)
            throws SSLException {
        ClientKey key = new ClientKey(identity, settings.protocolBits(), settings.suiteBits(), settings.alpn(),
                settings.endpointIdentification(), resumes ? sessions.sessionsMax() : 0);
        Context known = clients.get(key);
        if (known == null) {
            List<byte[]> alpn = new ArrayList<>();
            for (String name : key.alpn) {
                alpn.add(name.getBytes(StandardCharsets.ISO_8859_1));
            }
            long handle = Native.clientContext(identity == null ? 0 : identity.handle, key.protocols, key.suites,
                    alpn.toArray(byte[][]::new), key.sessionsMax);
            Reference.reachabilityFence(identity);
            known = new Context(handle, () -> Native.freeClientContext(handle));
            clients.put(key, known);
        }
        return known;
    }
}
