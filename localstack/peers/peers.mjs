// DynamoDB and SQS for tests: dynalite and fauxqs in one process, on loopback
// ports that the system picks. Prints one line of JSON when both answer, and
// ends when its standard input closes, so that a killed test leaves nothing.
import { AsyncLocalStorage } from 'node:async_hooks'
import dynalite from 'dynalite'
import { buildApp } from 'fauxqs'
// The queue's class is not exported; package.json pins the version it is in.
import { SqsQueue } from './node_modules/fauxqs/dist/sqs/sqsStore.js'

const host = '127.0.0.1'

// dynalite 4.0.0 rethrows the error of a request whose client hangs up before
// its body is whole, and that ends the process. Its listener is in place when
// this one runs, in the same turn, and is taken away.
function surviveHangUps(server) {
  server.on('request', (request) => request.removeAllListeners('error').on('error', () => {}))
}

// fauxqs 1.9.2 gives a message to a long poll whose client has gone: nobody
// handles it until its visibility timeout, and a receive is counted. Such a
// poll gets nothing here, and the message goes to the next one.
function giveNothingToTheDead(app) {
  const connection = new AsyncLocalStorage()
  const take = SqsQueue.prototype.dequeue
  SqsQueue.prototype.dequeue = function (...args) {
    return connection.getStore()?.destroyed ? [] : take.apply(this, args)
  }
  app.addHook('preHandler', (request, reply, next) => connection.run(request.raw.socket, next))
}

const database = dynalite({ createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
surviveHangUps(database)
await new Promise((resolve, reject) => database.once('error', reject).listen(0, host, resolve))

const queues = buildApp({ logger: false })
giveNothingToTheDead(queues)

console.log(JSON.stringify({
  pid: process.pid,
  dynamodb: `http://${host}:${database.address().port}`,
  sqs: await queues.listen({ host, port: 0 }),
}))

const end = () => process.exit(0)
process.stdin.on('end', end).on('close', end).resume()
