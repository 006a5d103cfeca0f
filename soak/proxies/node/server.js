'use strict'
// One worker of the cluster that pm2.js runs: http-proxy-3 before the backends, plain and over TLS with HTTP/2.
// Started by pm2 with the accepted configuration and the directory of the modules as arguments.

const fs = require('fs')
const http = require('http')
const http2 = require('http2')
const path = require('path')
const { createRequire } = require('module')
const { extended } = require('./config')
const { Origins } = require('./origins')

const [accepted, modules] = process.argv.slice(-2)
const { createProxyServer } = createRequire(path.join(modules, 'x'))('http-proxy-3')

const GENERATION = 'X-Soak-Generation'
const ROUTE = 'X-Soak-Route'
const SILENCE_MS = 2000 // a backend that hangs
const CONNECT_MS = 1000
const IDLE_MS = 75000 // kept connections of clients
const REPEATABLE = new Set(['GET', 'HEAD'])

const config = JSON.parse(fs.readFileSync(accepted, 'utf8'))
const generation = String(config.generation)
const routes = new Map(Object.entries(config.routes))
const origins = new Origins(config.origins)
const proxy = createProxyServer({ connectTimeout: CONNECT_MS })
const middleware = []
let closing = false

extended(config)({ server: proxy, use: (...more) => middleware.push(...more) }, require)

proxy.on('error', () => {}) // each request has a callback of its own
proxy.on('proxyReq', (proxyReq, req) => proxyReq.once('timeout', () => { req.silent = true }))
proxy.on('proxyReqWs', (proxyReq) => proxyReq.prependListener('upgrade', (answer) => {
  answer.headers[GENERATION] = generation
}))
proxy.on('proxyRes', (answer, req, res) => {
  // http-proxy would pass on what the backend says of its own connection
  answer.headers.connection = res.shouldKeepAlive && !closing ? 'keep-alive' : 'close'
  answer.once('close', () => answer.complete || res.destroy()) // cut by the backend: never end it as if whole
})

/** Finds the host's route, and whether it is for the first backend alone; tells what was tried. */
function prepare (req) {
  const host = (req.headers[':authority'] || req.headers.host || '').replace(/:\d+$/, '').toLowerCase()
  const tried = new Set()
  if (req.url.startsWith('/single/')) {
    req.url = req.url.slice('/single'.length)
    origins.all.slice(1).forEach((origin) => tried.add(origin))
  }
  return { route: routes.get(host), tried }
}

function onRequest (req, res) {
  const { route, tried } = prepare(req)
  res.setHeader(GENERATION, generation)
  if (route) res.setHeader(ROUTE, route)
  res.once('close', () => closing && setImmediate(closeIdle)) // its head may have promised to keep the connection
  const step = (i) => (i < middleware.length ? middleware[i](req, res, () => step(i + 1)) : forward(req, res, tried))
  step(0)
}

function forward (req, res, tried) {
  const origin = origins.next(tried)
  tried.add(origin)
  const options = {
    target: origin.target,
    agent: origins.agent,
    headers: { connection: 'keep-alive' }, // the client's wish is for its own connection
    proxyTimeout: SILENCE_MS
  }
  let failed = false
  proxy.web(req, res, options, (error) => {
    if (failed) return // http-proxy tells of one failure on several ways
    failed = true
    origins.failed(origin, error)
    if (res.destroyed || (res.stream && res.stream.destroyed)) return
    if (res.headersSent) return res.destroy()
    if (REPEATABLE.has(req.method) && tried.size < origins.all.length) return forward(req, res, tried)
    res.statusCode = req.silent ? 504 : 502
    if (closing && req.httpVersionMajor === 1) res.setHeader('Connection', 'close')
    res.end(`${res.statusCode} ${http.STATUS_CODES[res.statusCode]}\n`)
  })
}

function onUpgrade (req, socket, head) {
  socket.on('error', () => socket.destroy())
  const { tried } = prepare(req)
  const origin = origins.next(tried)
  proxy.ws(req, socket, head, { target: origin.target }, (error) => {
    origins.failed(origin, error)
    if (!socket.writable || socket.bytesWritten > 0) return
    socket.end(`HTTP/1.1 502 Bad Gateway\r\n${GENERATION}: ${generation}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`)
  })
}

const kept = { keepAliveTimeout: IDLE_MS, noDelay: true }
const plain = http.createServer(kept, onRequest)
const secure = http2.createSecureServer(
  { ...kept, allowHTTP1: true, minVersion: 'TLSv1.2', cert: config.pem, key: config.pem },
  onRequest
)
const servers = [[plain, config.httpPort], [secure, config.httpsPort]]

function closeIdle () {
  servers.forEach(([server]) => server.closeIdleConnections())
}

/** No new connections, idle ones closed, the rest until they end; pm2 ends what is left after kill_timeout. */
async function close () {
  if (closing) return
  closing = true
  process.title = 'soak node worker is closing'
  await Promise.all(servers.map(([server]) => new Promise((resolve) => server.close(resolve))))
  origins.stop()
  process.exit(0)
}

async function start () {
  await origins.start()
  await Promise.all(servers.map(([server, port]) => {
    server.on('upgrade', onUpgrade)
    return new Promise((resolve) => server.listen({ port, host: config.host, backlog: 4096 }, resolve))
  }))
  process.title = 'soak node worker'
  process.send('ready')
}

process.on('SIGINT', close)
start()
