// Graphile Worker on PostgreSQL, in batches, as its page about performance says.

"use strict";

const { makeWorkerUtils, run, Logger } = require("graphile-worker");
const work = require("./work.cjs");

const BATCH = 1000;
const logger = new Logger(() => (level, message) => {
  if (level === "error") {
    console.error(message);
  }
});
let utils = null;

function about() {
  return {
    library: "Graphile Worker",
    version: require("graphile-worker/package.json").version,
    bulk: `addJobs, ${BATCH.toLocaleString("en")} a call`,
    settings:
      "Node, async tasks, 24 at a time with a local queue of 500 and completions in batches, " +
      `${work.THREADS} at a time with a local queue of ${work.THREADS + 1} where tasks wait`,
    kill: "nothing to set: what a killed worker held is let go after 4 hours",
  };
}

async function openStore() {
  utils = await makeWorkerUtils({ connectionString: work.URL, logger });
  await utils.migrate();
}

async function closeStore() {
  const closed = utils;
  utils = null;
  await closed?.release();
}

async function enqueue(task, first, count, text) {
  for (let number = first; number < first + count; number++) {
    await utils.addJob(task, { number, text });
  }
}

async function enqueueBulk(task, first, count, text) {
  for (const part of work.parts(first, count, text, BATCH)) {
    await utils.addJobs(part.map((payload) => ({ identifier: task, payload })));
  }
}

const fanOut = null; // it has none

async function left() {
  const count = "select count(*)::int as count from graphile_worker.jobs";
  return utils.withPgClient(async (client) => (await client.query(count)).rows[0].count);
}

function workers(kind, processes) {
  return Array.from({ length: processes }, () => [process.execPath, __filename]);
}

async function serve() {
  const waits = work.KIND === "short" || work.KIND === "slow";
  const preset = {
    worker: {
      connectionString: work.URL,
      concurrentJobs: waits ? work.THREADS : 24,
      maxPoolSize: 26,
      localQueue: { size: waits ? work.THREADS + 1 : 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger,
    },
  };
  await run({ preset, taskList: work.TASKS });
}

module.exports = { about, openStore, closeStore, enqueue, enqueueBulk, fanOut, left, workers };

if (require.main === module) {
  serve();
}
