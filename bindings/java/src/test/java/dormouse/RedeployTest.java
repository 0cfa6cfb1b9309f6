package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;

import org.junit.jupiter.api.Test;

class RedeployTest {
    /** Also: threads end after the library has gone, and the process does not crash. */
    @Test
    void anApplicationCanBeUndeployed() throws Exception {
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        String said = Programs.run(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx256m", "-cp",
                classes, "dormouse.Redeployed", "provider", "engines", "connections");
        assertEquals("provider: gone\nengines: gone\nconnections: gone\n", said);
    }
}
