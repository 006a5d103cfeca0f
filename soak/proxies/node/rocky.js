'use strict'
// The adapter rocky: rocky before the backends, in as many workers as the configuration says, on Node 14.
// A reload swaps routing and certificate; no process is replaced. primary.js says how.
// Arguments: the directory of the configuration, the directory of the modules.

const cluster = require('cluster')
const http = require('http')
const https = require('https')
const path = require('path')
const { createRequire } = require('module')
const { extended } = require('./config')
const { Origins } = require('./origins')
const { follow, lead, secrets } = require('./primary')

const [directory, modules] = process.argv.slice(-2)
const GENERATION = 'X-Soak-Generation'
const ROUTE = 'X-Soak-Route'
const SILENCE_MS = 2000 // a backend that hangs
const IDLE_MS = 75000 // kept connections of clients

const rocky = cluster.isWorker && createRequire(path.join(modules, 'x'))('rocky')

/** Builds what answers requests with this configuration. */
function site (config, origins) {
  const generation = String(config.generation)
  const routes = new Map(Object.entries(config.routes))
  const proxy = rocky({ headers: { connection: 'keep-alive' }, proxyTimeout: SILENCE_MS })
  proxy.use((req, res, next) => {
    const host = (req.headers.host || '').replace(/:\d+$/, '').toLowerCase()
    res.setHeader(GENERATION, generation)
    if (routes.has(host)) res.setHeader(ROUTE, routes.get(host))
    next()
  })
  proxy.useForward((req, res, next) => {
    req.rocky.options.agent = origins.agent // after rocky has made a deep copy of the options
    next()
  })
  proxy.on('proxyRes', (answer, req, res) => {
    // http-proxy would pass on what the backend says of its own connection
    answer.headers.connection = res.shouldKeepAlive ? 'keep-alive' : 'close'
    answer.once('close', () => answer.complete || res.destroy()) // cut by the backend: never end it as if whole
  })
  proxy.on('proxy:error', (error, req) => origins.failed(req.origin, error))
  extended(config)(proxy, require)
  proxy.all('/single/*').use((req, res, next) => {
    req.url = req.url.slice('/single'.length)
    aim(req, origins.all[0], next)
  })
  proxy.all('/*').use((req, res, next) => aim(req, origins.next(new Set()), next))
  return proxy.middleware()
}

function aim (req, origin, next) {
  req.origin = origin
  req.rocky.options.target = origin.target.href
  next()
}

/** rocky's websockets have one target for each instance. */
function sockets (origins) {
  const { dispatcher: Dispatcher } = rocky.protocols.ws
  const dispatchers = new Map(origins.all.map((origin) => [
    origin,
    new Dispatcher(rocky({ ws: true }).forward(origin.target.href))
  ]))
  return (req, socket, head) => {
    const origin = origins.next(new Set())
    socket.on('error', () => socket.destroy())
    dispatchers.get(origin).dispatch(req, socket, head, (error) => {
      if (error) origins.failed(origin, error)
      if (error && socket.writable && !socket.bytesWritten) socket.end('HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\n\r\n')
    })
  }
}

function work () {
  let origins, servers, requests, upgrades

  follow('rocky', async (message) => {
    const { config } = message
    if (!origins) { // they are the same for the whole run
      origins = new Origins(config.origins)
      await origins.start()
      upgrades = sockets(origins)
    }
    requests = site(config, origins)
    if (servers) servers[1].setSecureContext(secrets(message))
    else servers = await listen(config, secrets(message))
  })

  function listen (config, secrets) {
    const answer = (req, res) => requests(req, res, () => { res.statusCode = 404; res.end() })
    const both = [http.createServer(answer), https.createServer(secrets, answer)]
    return Promise.all(both.map((server, i) => {
      server.keepAliveTimeout = IDLE_MS
      server.headersTimeout = IDLE_MS + 5000 // must be longer, or kept connections are reset
      server.on('connection', (socket) => socket.setNoDelay(true))
      server.on('upgrade', (...all) => upgrades(...all))
      const port = [config.httpPort, config.httpsPort][i]
      return new Promise((resolve) => server.listen({ port, host: config.host, backlog: 4096 }, () => resolve(server)))
    }))
  }
}

if (cluster.isMaster) lead('rocky', directory)
else work()
