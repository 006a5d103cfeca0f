'use strict'
// The backends: in turn, over kept connections, without those that are down. Plain enough for Node 14.
// A backend is down after two failed checks in a row, or at once when it refuses a connection; one good check brings it back.

const http = require('http')

const INTERVAL_MS = 500
const TIMEOUT_MS = 500
const FALL = 2

class Origins {
  constructor (list) {
    this.agent = new http.Agent({ keepAlive: true, maxFreeSockets: 256 })
    this.all = list.map(({ name, host, port }) => ({
      name,
      host,
      port,
      target: new URL(`http://${host}:${port}`),
      failures: 0,
      down: false
    }))
    this.turn = 0
    this.timers = []
  }

  /** Returns the next one that is up and was not tried; if there is none, the next that was not tried; else undefined. */
  next (tried) {
    let second
    for (let i = 0; i < this.all.length; i++) {
      const origin = this.all[(this.turn + i) % this.all.length]
      if (tried.has(origin)) continue
      if (!origin.down) {
        this.turn = (this.turn + i + 1) % this.all.length
        return origin
      }
      second = second || origin
    }
    return second
  }

  /** Notes what a request met. Only what proves that nobody listens takes a backend out: a reset may be a stale connection. */
  failed (origin, error) {
    if (error.code === 'ECONNREFUSED' || error.code === 'ECONNECT_TIMEOUT') origin.down = true
  }

  /** Checks all once, then goes on in the background. A new process must not believe that all are up. */
  async start () {
    await Promise.all(this.all.map((origin) => this.check(origin, 1)))
    this.timers = this.all.map((origin) => setInterval(() => this.check(origin, FALL), INTERVAL_MS))
  }

  /** Ends the checks and the idle connections. */
  stop () {
    this.timers.forEach(clearInterval)
    this.agent.destroy()
  }

  async check (origin, fall) {
    const good = await this.ask(origin)
    origin.failures = good ? 0 : origin.failures + 1
    if (good) origin.down = false
    else if (origin.failures >= fall) origin.down = true
  }

  ask (origin) {
    return new Promise((resolve) => {
      const { host, port } = origin
      const request = http.get({ host, port, path: '/bytes/1', agent: this.agent }, (response) => {
        response.resume()
        response.once('end', () => resolve(response.statusCode === 200))
        response.once('close', () => resolve(false))
      })
      const timer = setTimeout(() => request.destroy(), TIMEOUT_MS)
      request.once('close', () => clearTimeout(timer))
      request.once('error', () => resolve(false))
    })
  }
}

module.exports = { Origins }
