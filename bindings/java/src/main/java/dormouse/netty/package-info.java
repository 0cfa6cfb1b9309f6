/**
 * TLS for Netty's channels without an {@code SslHandler}: {@link dormouse.netty.DormouseHandler}.
 *
 * <p>This package needs {@code io.netty:netty-handler} on the class path, which the program provides.
 */
package dormouse.netty;
