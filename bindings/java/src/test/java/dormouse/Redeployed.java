package dormouse;

import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;

/**
 * A server whose applications bring Dormouse along and are undeployed again: the class loader must go, while a thread
 * that has used the native library lives on. {@code RedeployTest} runs it in a process of its own.
 */
final class Redeployed {
    private Redeployed() {}

    public static void main(String[] applications) throws Exception {
        String[] classes = System.getProperty("java.class.path").split(":");
        URL[] urls = new URL[classes.length];
        for (int i = 0; i < classes.length; i++) {
            urls[i] = Path.of(classes[i]).toUri().toURL();
        }
        for (String name : applications) {
            CountDownLatch end = new CountDownLatch(1);
            WeakReference<ClassLoader> loader = deploy(urls, name, end);
            for (int i = 0; i < 200 && loader.get() != null; i++) {
                System.gc();
                Thread.sleep(100);
            }
            System.out.println(name + ": " + (loader.get() == null ? "gone" : "still there"));
            end.countDown();
        }
    }

    private static WeakReference<ClassLoader> deploy(URL[] urls, String name, CountDownLatch end) throws Exception {
        URLClassLoader loader = new URLClassLoader(urls, ClassLoader.getPlatformClassLoader());
        Runnable application = (Runnable) loader.loadClass("dormouse.Redeployed$Application")
                .getConstructor(String.class).newInstance(name);
        CountDownLatch done = new CountDownLatch(1);
        new Thread(new Worker(application, done, end)).start();
        done.await();
        loader.close();
        return new WeakReference<>(loader);
    }

    /** The server's thread. */
    private static final class Worker implements Runnable {
        private Runnable application;
        private final CountDownLatch done;
        private final CountDownLatch end;

        Worker(Runnable application, CountDownLatch done, CountDownLatch end) {
            this.application = application;
            this.done = done;
            this.end = end;
        }

        @Override
        public void run() {
            try {
                application.run();
                application = null;
                done.countDown();
                end.await();
            } catch (InterruptedException impossible) {
                throw new AssertionError(impossible);
            } finally {
                done.countDown();
            }
        }
    }

    /** Makes connections, and does not close them. */
    public static final class Application implements Runnable {
        private final String name;

        public Application(String name) {
            this.name = name;
        }

        @Override
        public void run() {
            try {
                new DormouseProvider();
                if (name.equals("provider")) {
                    return;
                }
                Pair pair = new Pair(TestKeys.context(true).createSSLEngine("localhost", 443),
                        TestKeys.context(true, TestKeys.EC).createSSLEngine());
                if (name.equals("engines")) {
                    return;
                }
                pair.handshake();
                byte[] data = new byte[100_000];
                Pair.send(pair.client, pair.server, data);
                if (!Arrays.equals(data, pair.server.received.toByteArray())) {
                    throw new IllegalStateException("other data has arrived");
                }
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        }
    }
}
