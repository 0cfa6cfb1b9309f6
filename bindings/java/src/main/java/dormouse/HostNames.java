package dormouse;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** Compares a host with the names in a certificate (RFC 9525; common names are ignored). */
final class HostNames {
    private static final int DNS = 2;
    private static final int ADDRESS = 7;
    private static final String OCTET = "(25[0-5]|2[0-4]\\d|[01]?\\d?\\d)";
    private static final Pattern V4 = Pattern.compile(OCTET + "(\\." + OCTET + "){3}");
    /** Perhaps in brackets, perhaps with a zone. InetAddress looks up nothing that begins so and has a colon. */
    private static final Pattern V6 = Pattern.compile("\\[?[\\p{XDigit}:][\\p{XDigit}:.]*(%[^\\]]*)?\\]?");

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
        return V4.matcher(host).matches() || host.indexOf(':') >= 0 && V6.matcher(host).matches();
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
