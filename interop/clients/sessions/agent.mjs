// Node's https with one Agent, which keeps sessions on its own; each connection is closed.
import { readFileSync } from "node:fs";
import https from "node:https";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: Object.fromEntries(
    ["url", "resolve", "ca", "version", "requests"].map((name) => [name, { type: "string" }]),
  ),
});
const version = `TLSv${values.version}`;
const agent = new https.Agent({
  keepAlive: false,
  ca: readFileSync(values.ca),
  minVersion: version,
  maxVersion: version,
  lookup: (_host, options, done) =>
    options.all ? done(null, [{ address: values.resolve, family: 4 }]) : done(null, values.resolve, 4),
});
let resumed = 0;
const requests = Number(values.requests);
for (let n = 0; n < requests; n += 1) {
  await new Promise((resolve, reject) => {
    https
      .get(`${values.url}/bytes/100`, { agent }, (answer) => {
        resumed += answer.socket.isSessionReused() ? 1 : 0;
        answer.on("error", reject).on("end", resolve).resume();
      })
      .on("error", reject);
  });
}
console.log(JSON.stringify({ requests, resumed }));
