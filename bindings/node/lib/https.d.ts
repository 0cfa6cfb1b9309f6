// Types of `dormouse/https`: in the shape of node:https.

import * as http from 'node:http';
import * as https from 'node:https';
import { ServerOptions as TlsServerOptions, TlsListener } from './index';

export interface ServerOptions extends TlsServerOptions, Omit<http.ServerOptions, keyof TlsServerOptions> {}

export class Server extends http.Server {
  constructor(options?: ServerOptions, listener?: http.RequestListener);
}
export interface Server extends TlsListener {}
export function createServer(listener?: http.RequestListener): Server;
export function createServer(options: ServerOptions, listener?: http.RequestListener): Server;

export class Agent extends https.Agent {}
export const globalAgent: Agent;
export const request: typeof https.request;
export const get: typeof https.get;
