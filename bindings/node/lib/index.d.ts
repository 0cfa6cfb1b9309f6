// Types of `dormouse`. Everything else is as in node:tls, or throws ERR_FEATURE_UNAVAILABLE.

import { KeyObject, X509Certificate } from 'node:crypto';
import * as net from 'node:net';
import { Duplex } from 'node:stream';
import * as tls from 'node:tls';

export type Bytes = string | NodeJS.ArrayBufferView;
export type Version = 'TLSv1.2' | 'TLSv1.3';
/** Allows older versions, which are not used. */
export type OldestVersion = Version | 'TLSv1' | 'TLSv1.1';

/** A private key that is encrypted, with its passphrase. */
export interface EncryptedKey {
  pem: Bytes;
  passphrase?: string;
}

export interface SecureContextOptions {
  /** Trusted certificates, PEM. Default: those that Node.js trusts. */
  ca?: Bytes | Bytes[];
  /** Certificate chains, PEM, each with its own certificate first. */
  cert?: Bytes | Bytes[];
  /** A key for each chain. */
  key?: Bytes | KeyObject | EncryptedKey | Array<Bytes | KeyObject | EncryptedKey>;
  /** PKCS #12 files: chains with their keys. Their authorities are trusted too. */
  pfx?: Bytes | Array<Bytes | { buf: Bytes; passphrase?: string }>;
  passphrase?: string;
  /** Names of cipher suites. For servers; clients offer all. */
  ciphers?: string;
  /** Key exchange groups, separated by colons: X25519MLKEM768, X25519, prime256v1, secp384r1. */
  ecdhCurve?: string;
  minVersion?: OldestVersion;
  maxVersion?: Version;
  secureProtocol?: string;
  secureOptions?: number;
  /** Servers: revocation lists, PEM. */
  crl?: Bytes | Bytes[];
  /** 48 or 80 bytes. Servers with the same keys resume each other's sessions. */
  ticketKeys?: NodeJS.ArrayBufferView;
  /** Lifetime of a session in seconds. */
  sessionTimeout?: number;
  /** Accepted without ticketKeys: then each context resumes only its own sessions. */
  sessionIdContext?: string;
  /** Whether connections keep the secret that `exportKeyingMaterial()` needs. */
  exportKeyingMaterial?: boolean;
  /** Accepted without effect: the client's order decides, and all suites are equally strong. */
  honorCipherOrder?: boolean;
}

export class SecureContext {
  constructor(options?: SecureContextOptions);
  readonly context: SecureContext;
}
export function createSecureContext(options?: SecureContextOptions): SecureContext;

export interface CommonOptions {
  secureContext?: SecureContext;
  ALPNProtocols?: string[] | NodeJS.ArrayBufferView[] | NodeJS.ArrayBufferView;
  rejectUnauthorized?: boolean;
  /** Whether an end of the transport without close_notify counts as a proper end, as with node:tls. */
  allowTruncation?: boolean;
}

export interface TLSSocketOptions extends SecureContextOptions, CommonOptions {
  isServer?: boolean;
  requestCert?: boolean;
  SNICallback?: SNICallback;
  ALPNCallback?: ALPNCallback;
  handshakeTimeout?: number;
  servername?: string;
  session?: Buffer | string;
  checkServerIdentity?: typeof tls.checkServerIdentity;
  allowHalfOpen?: boolean;
  highWaterMark?: number;
  signal?: AbortSignal;
}

export type SNICallback = (servername: string, callback: (error: Error | null, context?: SecureContext) => void) => void;
export type ALPNCallback = (hello: { servername?: string; protocols: string[] }) => string | undefined;

export class TLSSocket extends net.Socket {
  constructor(socket: Duplex, options?: TLSSocketOptions);
  readonly encrypted: true;
  readonly authorized: boolean;
  readonly authorizationError: string | null;
  readonly secureConnecting: boolean;
  readonly servername: string | false | null;
  readonly alpnProtocol: string | false | null;
  getProtocol(): Version | 'unknown' | null;
  getCipher(): tls.CipherNameAndProtocol | null | undefined;
  getEphemeralKeyInfo(): { type?: string; name?: string; size?: number } | null;
  getPeerCertificate(detailed: true): tls.DetailedPeerCertificate | Record<string, never> | null;
  getPeerCertificate(detailed?: false): tls.PeerCertificate | Record<string, never> | null;
  getPeerX509Certificate(): X509Certificate | undefined;
  isSessionReused(): boolean | null;
  /** A client's newest session, if it keeps sessions. */
  getSession(): Buffer | null | undefined;
  exportKeyingMaterial(length: number, label: string, context?: NodeJS.ArrayBufferView): Buffer;
  setServername(name: string): void;
  setSession(session: Buffer | string): void;
  disableRenegotiation(): void;
  /** Ends the connection in this process. `restore()` continues it, here or in another process. */
  export(): { state: Buffer; socket: net.Socket };

  on(event: 'secureConnect', listener: () => void): this;
  on(event: 'session' | 'keylog', listener: (bytes: Buffer) => void): this;
  on(event: string, listener: (...args: any[]) => void): this;
}

export interface ServerOptions extends SecureContextOptions, CommonOptions, net.ServerOpts {
  requestCert?: boolean;
  handshakeTimeout?: number;
  SNICallback?: SNICallback;
  ALPNCallback?: ALPNCallback;
}

/** Methods of TLS servers, in addition to those of their class. */
export interface TlsListener {
  readonly requestCert: boolean;
  readonly rejectUnauthorized: boolean;
  addContext(servername: string, context: SecureContextOptions | SecureContext): void;
  setSecureContext(options: SecureContextOptions): void;
  getTicketKeys(): Buffer;
  setTicketKeys(keys: Buffer): void;
  /** Continues a connection of `TLSSocket.export()`, as one of this server. */
  restore(state: Buffer, socket: net.Socket): TLSSocket;
}

export class Server extends net.Server {
  constructor(options?: ServerOptions, listener?: (socket: TLSSocket) => void);
  on(event: 'secureConnection', listener: (socket: TLSSocket) => void): this;
  on(event: 'tlsClientError', listener: (error: Error, socket: TLSSocket) => void): this;
  on(event: 'keylog', listener: (line: Buffer, socket: TLSSocket) => void): this;
  on(event: string, listener: (...args: any[]) => void): this;
}
export interface Server extends TlsListener {}
export function createServer(listener?: (socket: TLSSocket) => void): Server;
export function createServer(options: ServerOptions, listener?: (socket: TLSSocket) => void): Server;

export interface ConnectOptions extends SecureContextOptions, CommonOptions {
  host?: string;
  port?: number;
  path?: string;
  /** A stream to use in place of a new connection. */
  socket?: Duplex;
  servername?: string;
  session?: Buffer | string;
  /** Whether `getSession()` returns sessions, also without a listener for 'session' and without `session`. */
  keepSession?: boolean;
  checkServerIdentity?: typeof tls.checkServerIdentity;
  timeout?: number;
  allowHalfOpen?: boolean;
  highWaterMark?: number;
  lookup?: net.LookupFunction;
  localAddress?: string;
  family?: number;
  noDelay?: boolean;
  keepAlive?: boolean;
  keepAliveInitialDelay?: number;
  onread?: net.OnReadOpts;
  signal?: AbortSignal;
}
export function connect(options: ConnectOptions, callback?: () => void): TLSSocket;
export function connect(port: number, host?: string, options?: ConnectOptions, callback?: () => void): TLSSocket;
export function connect(port: number, options?: ConnectOptions, callback?: () => void): TLSSocket;

/** Continues, as a client, a connection of `TLSSocket.export()`. */
export function restore(state: Buffer, socket: net.Socket): TLSSocket;

/** Creates a self-signed certificate for `name`, for tests. */
export function selfSigned(name: string): { cert: string; key: string };

export const checkServerIdentity: typeof tls.checkServerIdentity;
export const rootCertificates: readonly string[];
export function getCiphers(): string[];
export const DEFAULT_ECDH_CURVE: 'auto';
export const DEFAULT_MAX_VERSION: 'TLSv1.3';
export const DEFAULT_MIN_VERSION: 'TLSv1.2';
