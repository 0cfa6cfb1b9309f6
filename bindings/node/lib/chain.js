'use strict';

// The order of certificates.

/** A certificate and its issuers, as far as they are among `others`, which can have any order. */
function chainOf(own, others) {
  const chain = [own];
  const rest = [...others];
  for (let at; (at = rest.findIndex((one) => chain.at(-1).checkIssued(one))) >= 0;) chain.push(...rest.splice(at, 1));
  return chain;
}

module.exports = { chainOf };
