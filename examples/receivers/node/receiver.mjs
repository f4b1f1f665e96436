// A receiver in Node. It needs grpc-js and the .proto file, and nothing of Penstock.
//
//     npm install
//     node receiver.mjs ../../../proto/penstock/v1/receivers.proto 127.0.0.1:7450 [TOKEN]

import { createRequire } from 'node:module'
import { join } from 'node:path'

// Packages of this folder, or of the one that NODE_MODULES_OF names.
const require = createRequire(join(process.env.NODE_MODULES_OF ?? process.cwd(), 'package.json'))
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const [proto, address, token] = process.argv.slice(2)
const name = `node-${process.pid}`
const credits = 50

const tasks = {
  'example:add': ({ a, b }) => a + b,
  'example:fail': () => { throw new Error('this one always fails') },
}

const { penstock } = grpc.loadPackageDefinition(
  loader.loadSync(proto, { longs: String, keepCase: true, defaults: true }),
)
const receivers = new penstock.v1.Receivers(address, grpc.credentials.createInsecure())
const metadata = new grpc.Metadata()
if (token) metadata.set('authorization', `Bearer ${token}`)

const pause = () => new Promise((resolve) => setTimeout(resolve, 100 + Math.random() * 900))

// Run the job; how it ended.
async function settled(job) {
  const how = { id: job.id, attempt: job.attempt }
  try {
    const result = await tasks[job.task](JSON.parse(job.arguments))
    return { ...how, succeed: { result: Buffer.from(JSON.stringify(result ?? null)) } }
  } catch (error) {
    return job.failures < 3
      ? { ...how, retry_later: { error: String(error), after: String(2e9) } }
      : { ...how, fail: { error: String(error) } }
  }
}

// Sent again until it is answered: what arrived the first time is stale the second time.
async function settle(settlements) {
  for (;;) {
    const error = await new Promise((resolve) => {
      const deadline = new Date(Date.now() + 30_000)
      receivers.Settle({ receiver: name, settlements }, metadata, { deadline }, resolve)
    })
    if (!error) return
    console.error('settling again:', error.message)
    await pause()
  }
}

// One stream: a credit is given back for each job that was settled.
function receive() {
  return new Promise((resolve) => {
    const stream = receivers.Receive(metadata)
    stream.on('data', async ({ jobs }) => {
      if (!jobs.length) return // a sign of life
      await settle(await Promise.all(jobs.map(settled)))
      stream.write({ credits: jobs.length })
    })
    stream.on('error', (error) => {
      console.error('connecting again:', error.message)
      resolve()
    })
    stream.on('end', resolve)
    stream.write({ receiver: name, tasks: Object.keys(tasks), credits })
  })
}

for (;;) {
  await receive()
  await pause()
}
