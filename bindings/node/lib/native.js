'use strict';

// Loads the native half: the package's file for this platform, or the one built from this checkout.

const path = require('node:path');

const FILE = `dormouse.${process.platform}-${process.arch}.node`;
const places = [
  process.env.DORMOUSE_NATIVE,
  path.join(__dirname, '..', 'native', FILE),
].filter(Boolean);

function load() {
  const failures = [];
  for (const place of places) {
    try {
      return require(path.resolve(place));
    } catch (error) {
      failures.push(`${place}: ${error.message.split('\n')[0]}`);
    }
  }
  throw new Error(
    `dormouse: no native module for ${process.platform}-${process.arch}; build one with bindings/node/build ` +
    `in the sources of Dormouse, which takes Rust and a C compiler (${failures.join('; ')})`);
}

module.exports = load();
