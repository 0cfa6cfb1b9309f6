'use strict';

// The README's example, as a reader copies it.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const { folder, hasProgram, issue, run } = require('./support');

test('the first example of the README, with curl', { skip: !hasProgram('curl') }, async (t) => {
  const readme = fs.readFileSync(path.join(__dirname, '..', 'README.md'), 'utf8');
  const [, example] = /```js\n([^]*?)```/.exec(readme);
  assert.ok(example.trim().split('\n').length <= 10);
  const place = fs.mkdtempSync(path.join(folder, 'readme-'));
  fs.mkdirSync(path.join(place, 'node_modules'));
  fs.symlinkSync(path.join(__dirname, '..'), path.join(place, 'node_modules', 'dormouse'));
  const own = issue();
  fs.writeFileSync(path.join(place, 'cert.pem'), own.cert);
  fs.writeFileSync(path.join(place, 'key.pem'), own.key);
  fs.writeFileSync(path.join(place, 'ca.pem'), own.ca);
  // A free port in place of 8443, which another program may have.
  const port = 20_000 + process.pid % 10_000;
  fs.writeFileSync(path.join(place, 'server.js'), example.replace('8443', String(port)));
  const server = spawn(process.execPath, ['server.js'], { cwd: place, stdio: 'inherit' });
  t.after(() => server.kill());
  const { stdout, stderr } = await run('curl', ['-sS', '--retry', '20', '--retry-delay', '1', '--retry-connrefused',
    '--cacert', path.join(place, 'ca.pem'), `https://localhost:${port}/`]);
  assert.equal(stdout, 'hello\n', stderr);
});
