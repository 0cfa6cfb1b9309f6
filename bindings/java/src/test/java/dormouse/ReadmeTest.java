package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.StringWriter;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

import javax.net.ssl.KeyManager;
import javax.net.ssl.TrustManager;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

import io.netty.channel.Channel;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The README's first example, as a reader would run it: with a certificate, an answer, and curl. */
class ReadmeTest {
    private static final String PROGRAM = """
            import io.netty.bootstrap.*;
            import io.netty.channel.*;
            import io.netty.channel.nio.*;
            import io.netty.channel.socket.*;
            import io.netty.channel.socket.nio.*;
            import javax.net.ssl.*;

            public class Readme {
                static class Answer extends ChannelInboundHandlerAdapter {
                    public void channelRead(ChannelHandlerContext context, Object message) {
                        String text = "HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nhello\\n";
                        io.netty.util.ReferenceCountUtil.release(message);
                        context.writeAndFlush(io.netty.buffer.Unpooled.copiedBuffer(text, io.netty.util.CharsetUtil.UTF_8));
                    }
                }

                public static Channel serve(KeyManager[] keyManagers, TrustManager[] trustManagers) throws Exception {
            EXAMPLE
                }
            }
            """;

    @Test
    void theFirstExample(@TempDir Path folder) throws Exception {
        String readme = Files.readString(Path.of("README.md"));
        int start = readme.indexOf("```java\n") + "```java\n".length();
        String example = readme.substring(start, readme.indexOf("```", start)).strip();
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        assertTrue(example.endsWith("}).bind(8443).sync();"), example);
        example = example.replace("8443", Integer.toString(port)).replace("new ServerBootstrap()", "return new ServerBootstrap()")
                .replace(".sync();", ".sync().channel();");
        Path source = folder.resolve("Readme.java");
        Files.writeString(source, PROGRAM.replace("EXAMPLE", example));
        compile(source);
        try (java.net.URLClassLoader loader = new java.net.URLClassLoader(new java.net.URL[] {folder.toUri().toURL()})) {
            Channel server = (Channel) loader.loadClass("Readme")
                    .getMethod("serve", KeyManager[].class, TrustManager[].class)
                    .invoke(null, TestKeys.keyManagers(TestKeys.EC), null);
            String certificate = TestKeys.pemFiles(TestKeys.EC)[0].toString();
            String url = "https://localhost:" + port + "/";
            assertEquals("hello\n", Programs.run("curl", "-sS", "--cacert", certificate, url));
            server.close().sync();
        }
    }

    private static void compile(Path source) throws Exception {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter said = new StringWriter();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
            Iterable<? extends javax.tools.JavaFileObject> units = files.getJavaFileObjects(new File[] {source.toFile()});
            List<String> options = List.of("-cp", classes, "-d", source.getParent().toString());
            assertTrue(compiler.getTask(said, files, null, options, null, units).call(), said.toString());
        }
    }
}
