/**
 * TLS 1.2 and 1.3 as a security provider, with engines that cost a few hundred bytes between two records.
 *
 * <pre>{@code
 * SSLContext context = SSLContext.getInstance("TLS", new DormouseProvider());
 * }</pre>
 *
 * Any thread may use a context. An engine may be used by several threads, one after another; each method locks it.
 */
package dormouse;
