package dormouse;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;

/** Compares a host with the names in a certificate (RFC 9525; common names are ignored). */
final class HostNames {
    private static final int DNS = 2;
    private static final int ADDRESS = 7;

    private HostNames() {}

    static void check(String host, X509Certificate certificate, String identification) throws CertificateException {
        if (!identification.equalsIgnoreCase("HTTPS") && !identification.equalsIgnoreCase("LDAPS")) {
            throw new CertificateException("the endpoint identification algorithm " + identification
                    + " is unknown; known are HTTPS and LDAPS");
        }
        if (host == null || host.isEmpty()) {
            throw new CertificateException("the engine has no peer host to compare the certificate with");
        }
        Collection<List<?>> names = certificate.getSubjectAlternativeNames();
        for (List<?> name : names == null ? List.<List<?>>of() : names) {
            int type = (Integer) name.get(0);
            if (type == DNS && !isAddress(host) && matches(host, (String) name.get(1))
                    || type == ADDRESS && isAddress(host) && sameAddress(host, (String) name.get(1))) {
                return;
            }
        }
        throw new CertificateException("the certificate is not for " + host);
    }

    /** A wildcard stands for the whole first label. */
    private static boolean matches(String host, String pattern) {
        String name = withoutDot(host);
        String wanted = withoutDot(pattern);
        if (!wanted.startsWith("*.")) {
            return name.equals(wanted);
        }
        int dot = name.indexOf('.');
        return dot > 0 && wanted.indexOf('.', 2) > 0 && name.substring(dot).equals(wanted.substring(1));
    }

    private static String withoutDot(String name) {
        String lower = name.toLowerCase(Locale.ROOT);
        return lower.endsWith(".") ? lower.substring(0, lower.length() - 1) : lower;
    }

    /** Whether the host is an IP address. No host is ever looked up. */
    static boolean isAddress(String host) {
        return host.indexOf(':') >= 0 || host.matches("[0-9]{1,3}(\\.[0-9]{1,3}){3}");
    }

    private static boolean sameAddress(String one, String other) {
        try {
            return isAddress(other)
                    && Arrays.equals(InetAddress.getByName(one).getAddress(), InetAddress.getByName(other).getAddress());
        } catch (UnknownHostException noAddress) {
            return false;
        }
    }
}
