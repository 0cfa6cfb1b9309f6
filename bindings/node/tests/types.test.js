'use strict';

// The types, as a program in TypeScript uses them.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const test = require('node:test');
const { need } = require('./support');

test('a program in TypeScript compiles', (t) => {
  if (!need(t, 'typescript') || !need(t, '@types/node/package.json')) return;
  const compiler = require.resolve('typescript/bin/tsc');
  const how = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--types', 'node'];
  const { status, stdout } = spawnSync(process.execPath, [compiler, ...how, path.join(__dirname, 'types.ts')], { encoding: 'utf8' });
  assert.equal(status, 0, stdout);
});
