// The tasks of work.py, for a library of Node: the same marks in the same files, and the same clock.
//
// Node maps no file into memory, so a mark is a write (about a microsecond); only `short`, whose
// worker is killed, reads how often its job ran before.

"use strict";

const fs = require("node:fs");
const path = require("node:path");

const URL = process.env.BENCH_URL;
const KIND = process.env.BENCH_KIND ?? ""; // in a worker: which measurement it is for
const THREADS = 10; // of one worker process, where tasks wait: as many in every peer
const LAST = 9999; // as in marks.py
const CPU_NANOSECONDS = 1_000_000n;

const ran = fs.openSync(path.join(process.env.BENCH_MARKS, "ran"), "r+");
const began = fs.openSync(path.join(process.env.BENCH_MARKS, "began"), "r+");
const arrived = path.join(process.env.BENCH_MARKS, "arrived");
const once = Buffer.from([1]);
let first = true;

// Seconds of the clock that all processes of a machine share.
function now() {
  return Number(process.hrtime.bigint()) / 1e9;
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function markRan(number, times = once) {
  if (first) {
    first = false;
    fs.appendFileSync(arrived, ".");
  }
  fs.writeSync(ran, times, 0, 1, number);
}

function markBegan(number) {
  const moment = Buffer.alloc(8);
  moment.writeDoubleLE(now());
  fs.writeSync(began, moment, 0, 8, 8 * number);
}

const TASKS = {
  nothing: async ({ number }) => markRan(number),
  stamp: async ({ number }) => {
    markBegan(number);
    markRan(number);
  },
  short: async ({ number }) => {
    await pause(50);
    const times = Buffer.alloc(1);
    fs.readSync(ran, times, 0, 1, number);
    times[0] = Math.min(times[0] + 1, 255);
    markRan(number, times);
  },
  slow: async ({ number }) => {
    await pause(10);
    markRan(number);
  },
  cpu: async ({ number }) => {
    const until = process.hrtime.bigint() + CPU_NANOSECONDS;
    while (process.hrtime.bigint() < until);
    markRan(number);
  },
  last: async () => markBegan(LAST),
};

// Payloads of the jobs `from` to `from + count - 1`, at most `most` at a time.
function* parts(from, count, text, most) {
  for (let start = 0; start < count; start += most) {
    const size = Math.min(most, count - start);
    yield Array.from({ length: size }, (_, place) => ({ number: from + start + place, text }));
  }
}

module.exports = { URL, KIND, THREADS, TASKS, now, pause, parts };
