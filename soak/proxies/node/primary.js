'use strict'
// The main process of what swaps its configuration without replacing a process: rocky.js and tcp.js, as many workers as the
// configuration says. HUP: check the configuration and hand it to the workers. TERM: end all at once. For Node 14, too.

const cluster = require('cluster')
const crypto = require('crypto')
const { read, words } = require('./config')

const say = (text) => process.stdout.write(`soak: ${text}\n`)

/** Keeps workers running; each gets `{ config, ticketKeys }` at its start and with each change. */
function lead (name, directory) {
  process.title = `soak ${name} main`
  let config = read(directory)
  // The same for all workers and for every certificate, or sessions could not be resumed
  const ticketKeys = crypto.randomBytes(48).toString('hex')
  const generations = new Map()
  let told = config.generation

  function fork () {
    const worker = cluster.fork()
    worker.on('message', (message) => {
      generations.set(worker.id, message.serves)
      const served = [...generations.values()].every((generation) => generation === config.generation)
      if (served && told !== config.generation) say(`reloaded: generation ${config.generation}`)
      if (served) told = config.generation
    })
    worker.send({ config, ticketKeys })
  }

  cluster.on('exit', (worker, code, signal) => {
    say(`worker ${worker.process.pid} ended: ${signal || code}`)
    generations.delete(worker.id)
    setTimeout(fork, 100)
  })
  process.on('SIGHUP', () => {
    try {
      config = read(directory)
    } catch (error) {
      say(`refused: ${words(error)}`)
      return
    }
    for (const worker of Object.values(cluster.workers)) worker.send({ config, ticketKeys })
  })
  process.on('SIGTERM', () => {
    for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGKILL')
    process.exit(0)
  })
  for (let i = 0; i < config.workers; i++) fork()
}

/** In a worker: takes one configuration after the other, and says which one it serves. */
function follow (name, apply) {
  process.title = `soak ${name} worker`
  process.on('unhandledRejection', (error) => { throw error })
  let turn = Promise.resolve()
  process.on('message', (message) => {
    turn = turn.then(() => apply(message)).then(() => process.send({ serves: message.config.generation }))
  })
}

/** What a listener shows, and how it goes on after a rotation. */
function secrets ({ config, ticketKeys }) {
  return { cert: config.pem, key: config.pem, minVersion: 'TLSv1.2', ticketKeys: Buffer.from(ticketKeys, 'hex') }
}

module.exports = { follow, lead, secrets }
