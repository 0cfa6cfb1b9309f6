// agent.cjs URL new|shared|kept: 40 requests: a new https.Agent for each, one for all, one with keepAlive.
const [url, how] = process.argv.slice(2);
const { Agent, get } = require(url.startsWith('https:') ? 'node:https' : 'node:http');

const shared = new Agent({ keepAlive: how === 'kept' });
const fetch = (agent) =>
  new Promise((done, failed) => {
    get(url, { agent }, (answer) => answer.resume().on('end', done)).on('error', failed);
  });
(async () => {
  for (let i = 0; i < 40; i++) await fetch(how === 'new' ? new Agent() : shared);
  shared.destroy();
})();
