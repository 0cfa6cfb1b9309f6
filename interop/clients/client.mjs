// Node's tls module as a client. The command line and the answer are described in README.md.
import crypto from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import { parseArgs } from "node:util";
import tls from "node:tls";

const PAUSE_AT = 1 << 20;
const BLOCK = 64 * 1024;
const MESSAGE_SIZES = [1, 5, 17, 100, 1400, 3000, 16384, 16385];

const { values: args } = parseArgs({
  options: Object.fromEntries(
    ["connect", "name", "ca", "version", "scenario", "bytes", "back", "alpn", "group"].map((name) => [name, { type: "string" }]),
  ),
});
const total = Number(args.bytes ?? 0);
const back = Number(args.back ?? 0);

class Client {
  constructor() {
    this.session = undefined;
    this.sessions = 0;
  }

  async connect() {
    const [host, port] = args.connect.split(":");
    this.tcp = net.connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true });
    await once(this.tcp, "connect");
    const version = `TLSv${args.version}`;
    this.tls = tls.connect({
      socket: this.tcp,
      servername: args.name ?? "localhost",
      ca: fs.readFileSync(args.ca),
      minVersion: version,
      maxVersion: version,
      allowHalfOpen: true,
      session: this.session,
      ALPNProtocols: args.alpn ? args.alpn.split(",") : undefined,
      ecdhCurve: args.group ?? "auto",
    });
    this.tls.on("session", (session) => (this.session = session));
    this.sent = this.received = 0;
    this.sentHash = crypto.createHash("sha256");
    this.receivedHash = crypto.createHash("sha256");
    this.ended = "none";
    this.tls.on("error", (error) => {
      this.ended = error.code === "ECONNRESET" ? "reset" : `error: ${error.message}`;
    });
    // Node emits `end` for a close_notify and for a bare FIN.
    this.tls.on("end", () => {
      if (this.ended === "none") this.ended = "end";
    });
    this.tls.on("close", () => {
      if (this.ended === "none") this.ended = "reset";
    });
    await once(this.tls, "secureConnect");
    // Read now, because a closed socket no longer has them.
    this.facts = {
      version: this.tls.getProtocol(),
      cipher: this.tls.getCipher().name,
      group: this.tls.getEphemeralKeyInfo()?.name ?? null,
      alpn: this.tls.alpnProtocol || null,
      resumed: this.tls.isSessionReused(),
    };
  }

  async write(data) {
    if (!this.tls.write(data)) await this.oneOf("drain", "close");
    if (this.tls.destroyed) throw new Error(`the connection ended while sending: ${this.ended}`);
  }

  command(line) {
    return this.write(`${line}\n`);
  }

  async send(data) {
    await this.write(data);
    this.sent += data.length;
    this.sentHash.update(data);
  }

  async sendRandom(count, progress = false) {
    while (this.sent < count) {
      await this.send(crypto.randomBytes(Math.min(BLOCK, count - this.sent)));
      if (progress) console.log("sent", this.sent);
    }
  }

  /** Received bytes, or null when the other side has closed; `ended` then says how. */
  async receive(exactly) {
    for (;;) {
      const data = this.tls.read(exactly) ?? (this.tls.readableEnded ? null : this.tls.read());
      if (data !== null) {
        this.received += data.length;
        this.receivedHash.update(data);
        return data;
      }
      if (this.ended !== "none") return null;
      await this.oneOf("readable", "end", "close");
    }
  }

  /** Waits for the first of these events, and removes its listeners. */
  oneOf(...names) {
    return new Promise((resolve) => {
      const done = () => {
        for (const name of names) this.tls.off(name, done);
        resolve();
      };
      for (const name of names) this.tls.on(name, done);
    });
  }

  async receiveExactly(count) {
    const parts = [];
    for (let have = 0; have < count; ) {
      const data = await this.receive();
      if (data === null) throw new Error(`the connection ended (${this.ended}) after ${have} of ${count} bytes`);
      parts.push(data);
      have += data.length;
    }
    return Buffer.concat(parts);
  }

  async receiveToTheEnd() {
    while ((await this.receive()) !== null);
  }

  endSending() {
    this.tls.end();
  }

  async echo() {
    await this.command("echo");
    for (let turn = 0; this.sent < total; turn++) {
      const message = crypto.randomBytes(MESSAGE_SIZES[turn % MESSAGE_SIZES.length]);
      await this.send(message);
      if (!message.equals(await this.receiveExactly(message.length))) throw new Error(`echo ${turn} differs`);
    }
    this.endSending();
    await this.receiveToTheEnd();
  }

  async upload() {
    await this.command(`upload ${total} pause`);
    await this.sendRandom(total, true);
    await this.receiveExactly(65);
    this.endSending();
    await this.receiveToTheEnd();
  }

  async download() {
    await this.command(`download ${total}`);
    while (this.received < PAUSE_AT && (await this.receive()) !== null);
    console.log("paused", this.received);
    await once(process.stdin, "data");
    await this.receiveToTheEnd();
    this.endSending();
  }

  async halfclose() {
    await this.command(`halfclose ${total}`);
    this.endSending();
    await this.receiveToTheEnd();
  }

  async backendfirst() {
    await this.command(`backendfirst ${total}`);
    await this.receiveToTheEnd();
    await this.sendRandom(back);
    this.endSending();
    await once(this.tls, "finish");
  }

  async truncate() {
    await this.command("sink");
    await this.sendRandom(total);
    // Closes the socket below TLS, without close_notify.
    this.tcp.end();
    this.tls.resume();
    await this.oneOf("end", "close");
  }

  async reset() {
    await this.command(`reset ${total}`);
    await this.receiveExactly(total);
    await this.send(Buffer.from("got\n"));
    await this.receiveToTheEnd();
  }

  async resume() {
    await this.echo();
    this.tls.destroy();
    await this.connect();
    await this.echo();
  }

  answer() {
    return {
      ...this.facts,
      sent: this.sent,
      sent_sha256: this.sentHash.digest("hex"),
      received: this.received,
      received_sha256: this.receivedHash.digest("hex"),
      ended: this.ended,
    };
  }
}

const client = new Client();
await client.connect();
await client[args.scenario]();
console.log(JSON.stringify(client.answer()));
// Sockets that the scenario leaves open must not keep the process alive.
process.stdout.write("", () => process.exit(0));
