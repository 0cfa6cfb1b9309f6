'use strict';
// Node.js unloads a native module when the last worker that has loaded it ends. The worker's thread ends afterwards, and
// runs what the module has registered for the end of a thread.

const { test } = require('node:test');
const assert = require('node:assert');
const { spawnSync } = require('node:child_process');

const program = `
const { Worker } = require('node:worker_threads');
const used = 'require(' + JSON.stringify(process.argv[1]) + ').selfSigned("localhost")';
const next = (left) => left === 0 ? console.log('done')
  : new Worker(used, { eval: true }).on('exit', (code) => code === 0 ? next(left - 1) : process.exit(code));
next(3);
`;

test('a worker that has used the module ends', () => {
  const ended = spawnSync(process.execPath, ['-e', program, require.resolve('..')], { encoding: 'utf8' });
  assert.deepStrictEqual([ended.status, ended.signal, ended.stdout], [0, null, 'done\n'], ended.stderr);
});
