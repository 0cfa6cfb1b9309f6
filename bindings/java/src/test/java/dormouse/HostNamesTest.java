package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** {@code InetAddress} asks the DNS for everything that is not an address. */
class HostNamesTest {
    @ParameterizedTest
    @CsvSource({"127.0.0.1, true", "255.255.255.255, true", "010.1.1.1, true", "::1, true", "fe80::1%1, true",
        "[2001:db8::1], true", "::ffff:192.0.2.1, true", "999.1.1.1, false", "1.1.1.256, false", "1.1.1, false",
        "host:443, false", ".:, false", "localhost, false", "a.test, false"})
    void addresses(String host, boolean isAddress) {
        assertEquals(isAddress, HostNames.isAddress(host));
    }
}
