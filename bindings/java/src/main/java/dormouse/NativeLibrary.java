package dormouse;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Locale;

/**
 * Finds the native library in the jar and loads it.
 *
 * <p>The library is copied to a new directory that only this user can enter, its digest is checked, and both are
 * deleted as soon as it is loaded. {@code -Ddormouse.library=/path/to/libdormouse_java.so} loads a file in place,
 * for systems where nothing in the temporary directory may be executed.
 */
final class NativeLibrary {
    private static final String NAME = "libdormouse_java.so";
    private static boolean loaded;

    private NativeLibrary() {}

    static synchronized void load() {
        if (loaded) {
            return;
        }
        String given = System.getProperty("dormouse.library");
        if (given != null) {
            System.load(Path.of(given).toAbsolutePath().toString());
        } else {
            try {
                loadFromJar("/META-INF/native/" + platform() + "/" + NAME);
            } catch (IOException problem) {
                UnsatisfiedLinkError error = new UnsatisfiedLinkError("the native library can't be unpacked to "
                        + System.getProperty("java.io.tmpdir") + ": " + problem
                        + "; set -Djava.io.tmpdir, or -Ddormouse.library to the file");
                error.initCause(problem);
                throw error;
            }
        }
        loaded = true;
    }

    private static void loadFromJar(String resource) throws IOException {
        byte[] library = read(resource);
        String expected = new String(read(resource + ".sha256"), java.nio.charset.StandardCharsets.US_ASCII).trim();
        if (!expected.equals(digest(library))) {
            throw new IOException(resource + " is damaged: its SHA-256 is not " + expected);
        }
        Path directory = Files.createTempDirectory(
                "dormouse", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        Path file = directory.resolve(NAME);
        try {
            Files.write(file, library, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
            System.load(file.toString());
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(directory);
        }
    }

    private static byte[] read(String resource) throws IOException {
        try (InputStream stream = NativeLibrary.class.getResourceAsStream(resource)) {
            if (stream == null) {
                throw new UnsatisfiedLinkError("the jar has no " + resource + "; build it for this platform "
                        + "(bindings/java/build), or set -Ddormouse.library");
            }
            return stream.readAllBytes();
        }
    }

    private static String digest(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Such as {@code linux-x86_64}. */
    static String platform() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return system + "-" + (machine.equals("amd64") ? "x86_64" : machine);
    }
}
