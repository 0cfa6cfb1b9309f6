/**
 * Application protocols (ALPN) for Jetty 12, which looks for the classes of this package by itself. Programs need not
 * name them; they need Jetty's modules {@code jetty-alpn-server} or {@code jetty-alpn-client}.
 */
package dormouse.jetty;
