'use strict'
// The adapter node-tcp: node-tcp-proxy, which passes bytes on and reads none of them, in as many workers as the configuration
// says. Plain and TLS (ended here) to the backends' plain ports, and a pipe to their own TLS. A reload swaps the certificate
// and nothing else; primary.js says how. Arguments: the directory of the configuration, the directory of the modules.

const cluster = require('cluster')
const path = require('path')
const { createRequire } = require('module')
const { extended } = require('./config')
const { Origins } = require('./origins')
const { follow, lead, secrets } = require('./primary')

const [directory, modules] = process.argv.slice(-2)

function work () {
  const { createProxy } = createRequire(path.join(modules, 'x'))('node-tcp-proxy')
  let ended // the proxy that ends TLS

  follow('tcp', async (message) => {
    const { config } = message
    if (ended) return ended.server.setSecureContext(secrets(message))
    const origins = new Origins(config.origins)
    await origins.start()
    const hosts = config.origins.map(({ host }) => host)

    function open (port, ports, more) {
      // One connection, one backend: node-tcp-proxy tells nobody of a failure and tries no second one.
      const serviceHostSelected = () => origins.all.indexOf(origins.next(new Set()))
      const options = { hostname: config.host, serviceHostSelected, ...more }
      extended(config)(options, require)
      const proxy = createProxy(port, hosts, ports, options)
      proxy.server.on('connection', (socket) => socket.setNoDelay(true))
      return new Promise((resolve) => proxy.server.once('listening', () => resolve(proxy)))
    }

    const plain = config.origins.map(({ port }) => port)
    const secure = config.origins.map(({ tlsPort }) => tlsPort)
    const opening = [open(config.httpPort, plain), open(config.httpsPort, plain, { tls: true, customTlsOptions: secrets(message) })]
    if (config.tcpPort) opening.push(open(config.tcpPort, secure))
    ended = (await Promise.all(opening))[1]
  })
}

if (cluster.isMaster) lead('tcp', directory)
else work()
