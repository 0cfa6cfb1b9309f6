'use strict';

// Puts this package in place of node:tls and node:https, for the tests of Node.js.

const Module = require('node:module');
const https = require('node:https');
const tls = require('node:tls');
const dormouse = require('..');
const ourHttps = require('../lib/https');

const load = Module._load;
const over = (theirs, ours) => ({ ...theirs, ...ours });
const replaced = {
  tls: over(tls, { ...dormouse, DEFAULT_CIPHERS: tls.DEFAULT_CIPHERS }),
  https: over(https, ourHttps),
};

Module._load = function(name, ...rest) {
  return replaced[name.replace(/^node:/, '')] ?? load.call(this, name, ...rest);
};
