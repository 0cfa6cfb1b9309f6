package dormouse.measure;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;

/** What the measured servers are asked by their standard input. */
final class Orders {
    private Orders() {}

    /** For each line it collects garbage and prints the bytes of all objects that are left. It ends with the input. */
    static void obey() throws IOException, InterruptedException {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        while (orders.readLine() != null) {
            System.gc();
            Thread.sleep(200);
            System.gc();
            Runtime runtime = Runtime.getRuntime();
            System.out.println(runtime.totalMemory() - runtime.freeMemory());
        }
        System.exit(0);
    }
}
