// pg-boss on PostgreSQL, whose worker looks for jobs on a clock.

"use strict";

const PgBoss = require("pg-boss");
const work = require("./work.cjs");

const QUEUE = "bench";
const BATCH = 2000;
let boss = null;

function about() {
  return {
    library: "pg-boss",
    version: require("pg-boss/package.json").version,
    bulk: `insert, ${BATCH.toLocaleString("en")} a call`,
    settings:
      `Node, async tasks, batches of ${BATCH.toLocaleString("en")}, ${work.THREADS} where tasks ` +
      "wait, polled every 0.5 s (the least; default: 2), at once after a full batch",
    kill: "expireInSeconds 10 on the job (default: 15 minutes), maintenance every 5 s (default: 60)",
  };
}

async function openStore() {
  boss = new PgBoss({ connectionString: work.URL, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue(QUEUE);
}

async function closeStore() {
  const closed = boss;
  boss = null;
  await closed?.stop({ graceful: false, wait: true, timeout: 5000 });
}

function options(task) {
  return task === "short" ? { expireInSeconds: 10, retryLimit: 10 } : {};
}

async function enqueue(task, first, count, text) {
  for (let number = first; number < first + count; number++) {
    await boss.send(QUEUE, { task, number, text }, options(task));
  }
}

async function enqueueBulk(task, first, count, text) {
  for (const part of work.parts(first, count, text, BATCH)) {
    await boss.insert(
      part.map((one) => ({ name: QUEUE, data: { task, ...one }, ...options(task) })),
    );
  }
}

const fanOut = null; // it has none

async function left() {
  return Number(await boss.getQueueSize(QUEUE, { before: "completed" }));
}

function workers(kind, processes) {
  return Array.from({ length: processes }, () => [process.execPath, __filename]);
}

async function serve() {
  const care = work.KIND === "short" ? { maintenanceIntervalSeconds: 5 } : {};
  const worker = new PgBoss({ connectionString: work.URL, ...care });
  worker.on("error", (error) => console.error(error));
  await worker.start();
  const batchSize = work.KIND === "short" || work.KIND === "slow" ? work.THREADS : BATCH;
  let id = null;
  const run = async (jobs) => {
    await Promise.all(jobs.map(({ data }) => work.TASKS[data.task](data)));
    if (jobs.length === batchSize && id !== null) {
      worker.notifyWorker(id); // there may be more: do not wait for the clock
    }
  };
  id = await worker.work(QUEUE, { batchSize, pollingIntervalSeconds: 0.5 }, run);
}

module.exports = { about, openStore, closeStore, enqueue, enqueueBulk, fanOut, left, workers };

if (require.main === module) {
  serve();
}
