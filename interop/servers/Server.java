// An HTTPS server: java Server.java HOST PORT KEYSTORE, with the password "interop".

import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.FileInputStream;
import java.net.InetSocketAddress;
import java.security.KeyStore;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

public class Server {
    public static void main(String[] arguments) throws Exception {
        char[] password = "interop".toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream file = new FileInputStream(arguments[2])) {
            store.load(file, password);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, password);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        InetSocketAddress address =
                new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        HttpsServer server = HttpsServer.create(address, 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context));
        server.createContext("/", exchange -> {
            byte[] answer = "hello\n".getBytes();
            exchange.getResponseHeaders().set("Connection", "close");
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }
}
