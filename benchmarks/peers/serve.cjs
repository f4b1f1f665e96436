// `node serve.cjs bullmq`: serve.py for a library of Node, over the same protocol. A peer exports:
//
//     about()                                library, version, and how it is set up
//     openStore(), closeStore()
//     enqueue(task, first, count, text)      one call and one commit each
//     enqueueBulk(task, first, count, text)  by the way in that its documentation has for many
//     fanOut(count)                          null: it has none
//     left()                                 jobs that the store has not seen end
//     workers(kind, processes)               [command line, ...]

"use strict";

const path = require("node:path");
const readline = require("node:readline");
const { now, pause } = require("./work.cjs");

const peer = require(path.join(__dirname, `${process.argv[2]}.cjs`));
// Whatever a library prints goes to stderr: stdout belongs to the answers alone.
console.log = console.info = console.error;

const requests = {
  about: async () => ({ ...(await peer.about()), has_fan_out: peer.fanOut !== null }),
  open: () => peer.openStore(),
  close: () => peer.closeStore(),
  left: () => peer.left(),
  workers: ({ kind, processes }) => peer.workers(kind, processes),
  enqueue: async ({ task, count, size, bulk }) => {
    const text = "x".repeat(size);
    const began = now();
    await (bulk ? peer.enqueueBulk : peer.enqueue)(task, 0, count, text);
    return now() - began;
  },
  pace: async ({ task, first, count, size, rate }) => {
    const text = "x".repeat(size);
    const called = [];
    const start = now();
    for (let number = 0; number < count; number++) {
      await pause(Math.max(start + number / rate - now(), 0) * 1000);
      called.push(now());
      await peer.enqueue(task, first + number, 1, text);
    }
    return called;
  },
  fan_out: async ({ count }) => {
    const called = now();
    await peer.fanOut(count);
    return called;
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line);
    let reply;
    try {
      reply = { answer: (await requests[name](request)) ?? null };
    } catch (error) {
      reply = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  }
  process.exit(0);
}

main();
