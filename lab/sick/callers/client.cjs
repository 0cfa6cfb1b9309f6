// A client on Node.js that requests `/` twelve times, each on a new connection: node client.cjs FAULT URL
//
//   fault         what it does                                                  twin
//   sessions-off  one Agent, which caches no sessions                           one-agent
//   agent-each    an Agent for each request                                     one-agent
//   context-each  the same, and each parses the system's authorities            one-context: parses them once
const { readFileSync } = require('node:fs');
const https = require('node:https');

const [fault, url] = process.argv.slice(2);
const authorities = () =>
  ['/etc/ssl/certs/ca-certificates.crt', process.env.SSL_CERT_FILE].map((file) => readFileSync(file));
const ca = fault.includes('context') ? authorities() : readFileSync(process.env.SSL_CERT_FILE);
const shared = new https.Agent({ ca, maxCachedSessions: fault === 'sessions-off' ? 0 : 100 });
const agent = () => (fault.endsWith('-each') ? new https.Agent({ ca }) : shared);
const get = () =>
  new Promise((done, failed) => {
    https.get(url, { agent: agent() }, (answer) => answer.resume().on('end', done)).on('error', failed);
  });
(async () => {
  for (let i = 0; i < 12; i++) await get();
})();
