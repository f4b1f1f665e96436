// BullMQ on Redis, over ioredis, which its documentation uses.

"use strict";

const { FlowProducer, Queue, Worker } = require("bullmq");
const Redis = require("ioredis");
const work = require("./work.cjs");

const QUEUE = "bench";
const BATCH = 1000;
const GONE = { removeOnComplete: true, removeOnFail: true };
const OPEN = ["wait", "active", "delayed", "prioritized", "waiting-children", "paused"];
let queue = null;
let client = null;

function connection() {
  return new Redis(work.URL, { maxRetriesPerRequest: null });
}

function about() {
  return {
    library: "BullMQ",
    version: require("bullmq/package.json").version,
    bulk: `addBulk, ${BATCH.toLocaleString("en")} a call`,
    settings:
      "Node, async tasks, concurrency 100 (default: 1), " +
      `${work.THREADS} where tasks wait, jobs removed when they have ended; ` +
      "FlowProducer for the fan-out",
    kill: "lockDuration 10 s and stalledInterval 5 s (default: 30 and 30), maxStalledCount 10 (1)",
  };
}

async function openStore() {
  client = connection();
  queue = new Queue(QUEUE, { connection: client, defaultJobOptions: GONE });
  await queue.waitUntilReady();
}

async function closeStore() {
  await queue?.close();
  client?.disconnect();
  queue = client = null;
}

async function enqueue(task, first, count, text) {
  for (let number = first; number < first + count; number++) {
    await queue.add(task, { number, text });
  }
}

async function enqueueBulk(task, first, count, text) {
  for (const part of work.parts(first, count, text, BATCH)) {
    await queue.addBulk(part.map((data) => ({ name: task, data })));
  }
}

async function fanOut(count) {
  const producer = new FlowProducer({ connection: client });
  const [data] = work.parts(0, count, "", count);
  const children = data.map((one) => ({
    name: "nothing",
    queueName: QUEUE,
    data: one,
    opts: GONE,
  }));
  await producer.add({ name: "last", queueName: QUEUE, data: {}, opts: GONE, children });
}

async function left() {
  const counts = await queue.getJobCounts(...OPEN);
  return OPEN.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
}

function workers(kind, processes) {
  return Array.from({ length: processes }, () => [process.execPath, __filename]);
}

function serve() {
  const waits = work.KIND === "short" || work.KIND === "slow";
  const care =
    work.KIND === "short"
      ? { lockDuration: 10_000, stalledInterval: 5_000, maxStalledCount: 10 }
      : {};
  const concurrency = waits ? work.THREADS : 100;
  const run = (job) => work.TASKS[job.name](job.data);
  const worker = new Worker(QUEUE, run, { connection: connection(), concurrency, ...care });
  worker.on("error", (error) => console.error(error));
}

module.exports = { about, openStore, closeStore, enqueue, enqueueBulk, fanOut, left, workers };

if (require.main === module) {
  serve();
}
